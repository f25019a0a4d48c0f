// SPDX-License-Identifier: Apache-2.0
// Where a blocking allreduce by name spends its time: so many calls, each marked in a timeline,
// which has the rest. Start it with mpirun; phases.py reads the file.
//
//   phases FILE [bytes] [calls]
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <ronde/ronde.hpp>
#include <span>
#include <string>
#include <vector>

namespace {

int run(const std::string& file, std::size_t bytes, int calls) {
  ronde::Engine engine;
  std::vector<float> buffer(bytes / sizeof(float), 1.0F);
  const auto call = [&] { engine.allreduce_blocking("x", std::span(buffer), ronde::average); };
  for (int i = 0; i < 100; ++i) call();  // the plan learns it
  engine.start_timeline(file);
  for (int i = 0; i < calls; ++i) {
    engine.barrier_blocking("start");
    const ronde::MarkedSpan marked(engine.get(), "call");
    call();
  }
  engine.stop_timeline();
  engine.close();
  return buffer.back() == 1.0F ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "usage: phases FILE [bytes] [calls]\n");
    return 2;
  }
  return run(argv[1], argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 8,
             argc > 3 ? std::atoi(argv[3]) : 1000);
} catch (const std::exception& error) {
  std::fprintf(stderr, "phases: %s\n", error.what());
  return 1;
}
