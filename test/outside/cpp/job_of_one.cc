// SPDX-License-Identifier: Apache-2.0
// An outsider's C++ program: a job of one rank, without mpirun.
#include <cstdio>
#include <exception>
#include <ronde/ronde.hpp>
#include <span>
#include <string>
#include <vector>

namespace {

bool run() {
  ronde::Engine engine;
  if (engine.size() != 1 || engine.rank() != 0) return false;

  std::vector<float> gradient = {1.0F, 2.0F, 3.0F};
  ronde::Work work = engine.allreduce("gradient", std::span(gradient), ronde::average);
  work.wait();
  if (gradient != std::vector<float>{1.0F, 2.0F, 3.0F}) return false;

  ronde::GradientAverager averager(engine);
  const auto id = averager.add("fc1/weight", std::span(gradient));
  averager.ready(id);
  averager.wait();

  const std::vector<int> mine = {7, 8};
  if (engine.allgather_blocking("counts", std::span(mine)) != mine) return false;

  try {
    engine.broadcast_blocking("weights", std::span(gradient), 1);
    return false;  // there is no rank 1
  } catch (const ronde::Error& error) {
    if (std::string(error.what()).find("weights") == std::string::npos) return false;
  }
  engine.close();
  return true;
}

}  // namespace

int main() {
  try {
    if (!run()) {
      std::fputs("a job of one gives wrong results\n", stderr);
      return 1;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::printf("ronde %s from C++: a job of one rank works\n", ronde_version());
  return 0;
}
