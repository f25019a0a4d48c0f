// SPDX-License-Identifier: Apache-2.0
// A replica's calls over its engine.
#include "bindings/trainer/fit/replica.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace ronde::trainer {

namespace {

Op op_of(Reduction how) { return how == Reduction::kSum ? ronde::sum : ronde::max; }

}  // namespace

double steady_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

template <typename Call>
auto Replica::timed(const Call& call) {
  // Counts what a call that throws took, too.
  struct Timer {
    double& total;
    double begin;
    ~Timer() { total += steady_seconds() - begin; }
  };
  const Timer timer{waited_seconds_, steady_seconds()};
  return call();
}

void Replica::allreduce(const std::string& name, std::span<double> numbers, Reduction how) {
  timed([&] { engine_.allreduce_blocking(name, numbers, op_of(how)); });
}

void Replica::allreduce(const std::string& name, std::span<float> numbers, Reduction how) {
  timed([&] { engine_.allreduce_blocking(name, numbers, op_of(how)); });
}

std::vector<char> Replica::allgather(const std::string& name, std::span<const char> mine) {
  return timed([&] { return engine_.allgather_blocking(name, mine); });
}

void Replica::broadcast(const std::string& name, std::span<float> numbers, int root) {
  if (!shares_memory_) {
    timed([&] { engine_.broadcast_blocking(name, numbers, root); });
    return;
  }
  std::vector<float> sent(numbers.begin(), numbers.end());
  timed([&] { engine_.broadcast_blocking(name, sent, root); });
  if (std::memcmp(sent.data(), numbers.data(), numbers.size_bytes()) != 0) {
    std::ranges::copy(sent, numbers.begin());
  }
}

void Replica::barrier(const std::string& name) {
  timed([&] { engine_.barrier_blocking(name); });
}

double Replica::transfer_seconds() const {
  return 1e-9 * static_cast<double>(engine_.statistics().execution_nanoseconds);
}

}  // namespace ronde::trainer
