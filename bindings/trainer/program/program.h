// SPDX-License-Identifier: Apache-2.0
// How a training program runs as one rank of a job: its flags, which rank prints an error, and how
// the process ends.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <ronde/ronde.hpp>
#include <string>
#include <utility>

#include "bindings/trainer/data/dataset.h"
#include "bindings/trainer/loop/agreement.h"
#include "bindings/trainer/loop/replica.h"
#include "bindings/trainer/program/flags.h"

namespace ronde::trainer {

// Returns what `call` returns. An exception becomes a line and exit_code_of() it. It is for a
// program without other ranks.
int report_errors(const std::string& program, const std::function<int()>& call);

// Reads the flags, joins the job, compares the flags of the ranks, runs the body as one of them and
// returns its exit code. An error is one line of one rank where all have it, and ends the process
// once the body has been left: other destructors could wait for a rank that is dead.
//
//   int main(int argc, char** argv) {
//     FlagTable flags("learn", "Learns a line.");
//     ...
//     return run_program(argc, argv, flags, [&](Engine& engine, Replica& replica) { ... });
//   }
using Body = std::function<int(Engine&, Replica&)>;
int run_program(int argc, char** argv, FlagTable& flags, const Body& body);

// Collective: what `call` returns. Where it throws on some rank all of them throw the first error.
template <typename Call>
[[nodiscard]] auto on_all_ranks(Replica& replica, const Call& call) {
  std::optional<decltype(call())> result;
  succeed_on_all(replica, [&] { result.emplace(call()); });
  return std::move(*result);
}

// Which part of every batch a replica has: shard(rank, ranks).
[[nodiscard]] inline Share share_of(const Replica& replica) {
  return {static_cast<std::size_t>(replica.rank()), static_cast<std::size_t>(replica.size())};
}

// Whether standard error ends at a person's terminal (mpirun forwards it through a pipe).
[[nodiscard]] bool stderr_is_terminal();

}  // namespace ronde::trainer
