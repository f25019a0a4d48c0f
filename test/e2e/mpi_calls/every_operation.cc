// SPDX-License-Identifier: Apache-2.0
// Opens an engine, lets it do everything it can, many times and in many sizes, rests, and closes
// it. Prints which MPI functions were called in each of these phases, one line per phase and rank.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <ronde/ronde.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "test/e2e/mpi_calls/mpi_call_counter.h"

namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("wrong result: " + what);
}

class Operations {
 public:
  explicit Operations(ronde::Engine& engine)
      : engine_(engine), rank_(engine.rank()), size_(engine.size()) {}

  void all(std::size_t elements) {
    allreduces(elements);
    groups(elements);
    moves(elements);
    engine_.barrier_blocking();
  }

 private:
  // The sum of rank + 1 over the ranks.
  [[nodiscard]] float sum() const { return static_cast<float>(size_ * (size_ + 1) / 2); }
  [[nodiscard]] std::vector<float> mine(std::size_t elements) const {
    return std::vector<float>(elements, static_cast<float>(rank_ + 1));
  }
  static void require_all(const std::vector<float>& data, float value, const std::string& what) {
    for (const float x : data) require(x == value, what);
  }

  void allreduces(std::size_t elements) {
    std::vector<float> data = mine(elements);
    engine_.allreduce_blocking("in place", std::span(data), ronde::sum);
    require_all(data, sum(), "allreduce");
    const std::vector<float> input = mine(elements);
    ronde::Work work =
        engine_.allreduce("out of place", std::span(input), std::span(data), ronde::max);
    while (!work.poll()) static_cast<void>(work.wait_for(std::chrono::microseconds(50)));
    require_all(data, static_cast<float>(size_), "allreduce out of place");
    data = mine(elements);
    ronde::AllreduceOptions options;
    options.compression = ronde::Compression::kBf16;
    engine_.allreduce_blocking("compressed", std::span(data), ronde::sum, options);
    require_all(data, sum(), "compressed allreduce");
    std::vector<std::int64_t> whole(elements, rank_);
    engine_.allreduce_blocking("whole", std::span(whole), ronde::min);
    for (const std::int64_t x : whole) require(x == 0, "allreduce of i64");
  }

  void groups(std::size_t elements) {
    std::vector<float> one = mine(elements);
    std::vector<float> other = mine(elements / 3 + 1);
    engine_.grouped_allreduce_blocking<float>({{"one", one}, {"other", other}}, ronde::sum);
    require_all(one, sum(), "grouped allreduce");
    require_all(other, sum(), "grouped allreduce");
    one = mine(elements);
    other = mine(elements / 3 + 1);
    engine_.grouped_broadcast_blocking<float>({{"one", one}, {"other", other}}, size_ - 1);
    require_all(other, static_cast<float>(size_), "grouped broadcast");
  }

  void moves(std::size_t elements) {
    const auto ranks = static_cast<std::size_t>(size_);
    std::vector<float> data = mine(elements);
    engine_.broadcast_blocking("broadcast", std::span(data), 0);
    require_all(data, 1.0F, "broadcast");

    const std::vector<float> rows = mine(elements + static_cast<std::size_t>(rank_));
    const std::vector<float> gathered = engine_.allgather_blocking("allgather", std::span(rows));
    require(gathered.size() == ranks * elements + ranks * (ranks - 1) / 2, "length of allgather");
    require(gathered.empty() || gathered.back() == static_cast<float>(size_), "allgather");

    const std::vector<float> parts = mine(elements * ranks);
    std::vector<float> part(elements);
    engine_.reduce_scatter_blocking("reduce-scatter", std::span(parts), std::span(part),
                                    ronde::sum);
    require_all(part, sum(), "reduce-scatter");

    const ronde::Work exchanged = engine_.all_to_all_blocking("all-to-all", std::span(parts));
    const auto received = exchanged.output<float>();
    require(received.size() == elements * ranks, "length of all-to-all");
    require(elements == 0 || received.back() == static_cast<float>(size_), "all-to-all");
  }

  ronde::Engine& engine_;
  int rank_;
  int size_;
};

// Gradients in flight together, in another order on each rank.
void backward(ronde::Engine& engine) {
  constexpr std::size_t kTensors = 20;
  std::vector<std::vector<float>> gradients(kTensors);
  std::vector<ronde::Work> works;
  for (std::size_t i = 0; i < kTensors; ++i) {
    const std::size_t t = (i * 7 + static_cast<std::size_t>(engine.rank()) * 3) % kTensors;
    gradients[t].assign(t * t * 50 + 1, 1.0F);
    works.push_back(
        engine.allreduce("gradient " + std::to_string(t), std::span(gradients[t]), ronde::sum));
  }
  for (ronde::Work& work : works) work.wait();
  require(gradients.back().back() == static_cast<float>(engine.size()), "gradients");
}

void report(int rank, const char* phase) {
  std::printf("rank %d %s: %s\n", rank, phase, take_mpi_calls().c_str());
  std::fflush(stdout);
}

void run() {
  ronde::Engine engine;
  const int rank = engine.rank();
  report(rank, "opening");
  Operations operations(engine);
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t elements : {0U, 1U, 2U, 6U, 7U, 1000U, 16384U, 70001U, 1000000U}) {
      operations.all(elements);
    }
    backward(engine);
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));
  operations.all(10);
  report(rank, "working");
  engine.close();
  report(rank, "closing");
}

}  // namespace

int main() {
  try {
    run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "every_operation: %s\n", error.what());
    return 1;
  }
}
