// SPDX-License-Identifier: Apache-2.0
// A job of engines in this process, as a program outside sees it.
#pragma once

#include <functional>
#include <ronde/ronde.hpp>
#include <string>
#include <thread>
#include <vector>

namespace ronde::testing {

// Every rank of a job, in its own thread.
inline void on_ranks(int ranks, const std::function<void(Engine&)>& body) {
  const LocalJob job(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&job, &body, rank] {
      Engine engine(job, rank);
      body(engine);
      engine.close();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// What `call` throws; empty when it throws no Error.
template <typename Call>
std::string thrown_by(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace ronde::testing
