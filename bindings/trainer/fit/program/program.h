// SPDX-License-Identifier: Apache-2.0
// How a training program runs under a strategy: its flags, which replica prints an error, and how
// the process ends.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bindings/trainer/fit/agreement.h"
#include "bindings/trainer/fit/metrics.h"
#include "bindings/trainer/fit/program/flags.h"
#include "bindings/trainer/fit/strategy/per_replica.h"
#include "bindings/trainer/fit/strategy/strategy.h"

namespace ronde::trainer {

// Returns what `call` returns. An exception becomes a line and exit_code_of() it. It is for a
// program without other ranks.
int report_errors(const std::string& program, const std::function<int()>& call);

// Reads the flags, makes the strategy that they ask for (--strategy, --replicas, --threads and
// --cross-device, which are added to the table), compares the flags of its replicas, runs the body
// in its Scope and returns the body's exit code. An error is one line of one replica where all
// have it, and ends the process once the body has been left: what is destroyed later could wait
// for a rank that is dead.
//
//   int main(int argc, char** argv) {
//     FlagTable flags("learn", "Learns a line.");
//     ...
//     return run_program(argc, argv, flags, [&](Strategy& strategy) { ... });
//   }
//
// `served`, where there is one, makes the strategy of --strategy server, with so many threads of
// kernels; none where this process has been a server (server/settings.h).
using ServedMaker = std::function<std::unique_ptr<Strategy>(int threads)>;
int run_program(int argc, char** argv, FlagTable& flags, const std::function<int(Strategy&)>& body,
                const ServedMaker& served = {});

// Collective, outside of steps: calls `call` once in each process, and returns its result. Where it
// throws in some process all of them throw the first error.
template <typename Call>
[[nodiscard]] auto on_all_processes(Strategy& strategy, const Call& call) {
  std::optional<decltype(call())> result;
  strategy.run([&](Replica& here) {
    succeed_on_all(here, [&] {
      if (here.local() == 0) result.emplace(call());
    });
  });
  return std::move(*result);
}

// Collective, outside of steps: the sums over all replicas of the current strategy.
[[nodiscard]] Metrics total(const PerReplica<Metrics>& parts);

// Whether standard error ends at a person's terminal (mpirun forwards it through a pipe).
[[nodiscard]] bool stderr_is_terminal();

}  // namespace ronde::trainer
