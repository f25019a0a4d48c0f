// SPDX-License-Identifier: Apache-2.0
// A replica's part of the data, and its calls over an engine.
#include "bindings/trainer/fit/replica.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "bindings/trainer/fit/strategy/strategy.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

Op op_of(Reduction how) { return how == Reduction::kSum ? ronde::sum : ronde::max; }

}  // namespace

double steady_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

Replica::Replica(Strategy& strategy, std::size_t local, Engine engine)
    : strategy_(strategy),
      local_(local),
      engine_(std::move(engine)),
      tape_(strategy.threads_per_replica()),
      rank_(engine_.rank()),
      size_(engine_.size()),
      is_chief_(rank_ == 0 && strategy.may_be_chief()) {}

Dataset Replica::shard_to_score(const Dataset& data) const {
  return strategy_.is_served() ? data.shard(0, 1) : shard(data);
}

Dataset Replica::shard(const Dataset& data, std::size_t parts) const {
  const std::size_t replicas = strategy_.num_replicas_in_sync();
  try {
    if (strategy_.reads_data() && data.samples().value_or(replicas) < replicas) {
      throw TrainerError("the data set has " + std::to_string(*data.samples()) + " samples, and " +
                         strategy_.name() + " has " + std::to_string(replicas) +
                         " replicas: give each of them one, or use fewer replicas");
    }
    if (!strategy_.is_served()) {
      return data.shard(static_cast<std::size_t>(rank_), replicas, parts);
    }
    const std::size_t worker = strategy_.worker();
    return worker < replicas ? data.shard(worker, replicas, parts).alone()
                             : data.shard(0, 1, replicas);
  } catch (const TrainerError& error) {  // the same on all replicas
    throw AgreedError(error.what(), 0, kExitConfiguration);
  }
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
  if (!strategy_.shares_variables()) {
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
