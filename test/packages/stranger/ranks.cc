// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>
#include <ronde/ronde.hpp>
#include <span>
#include <vector>

int main() try {
  ronde::Engine engine;
  std::vector<float> values(1000, static_cast<float>(1 + engine.rank()));
  engine.allreduce("values", std::span(values), ronde::sum).wait();
  std::printf("rank %d: %d ranks, sum %.0f\n", engine.rank(), engine.size(), values[999]);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
