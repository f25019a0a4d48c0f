// SPDX-License-Identifier: Apache-2.0
// Runs a function as every rank of a job inside this process.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <ronde/ronde.hpp>
#include <thread>
#include <vector>

#include "bindings/trainer/fit/strategy/strategy.h"

namespace ronde::trainer {

// One rank of a job inside this process, as MultiWorkerMirrored is in a process of its own.
class JobRank : public Strategy {
 public:
  JobRank(const LocalJob& job, int rank)
      : Strategy({.name = "JobRank", .open = [&](std::size_t) { return Engine(job, rank); }}) {}
  [[nodiscard]] Replica& here() { return replica(0); }
  [[nodiscard]] Engine& engine() { return here().engine(); }

 private:
  const Scope scope_{*this};
};

// Throws what the lowest rank threw that threw.
inline void run_ranks(int ranks, const std::function<void(const LocalJob&, int)>& body) {
  const LocalJob job(ranks);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(job, rank);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace ronde::trainer
