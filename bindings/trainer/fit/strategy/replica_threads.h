// SPDX-License-Identifier: Apache-2.0
// The threads of the replicas of one process.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/trainer/fit/strategy/pinning.h"

namespace ronde::trainer {

// Runs a function as every replica at once: replica 0 on the thread that asks, each other one on a
// thread of its own, which stays the same from call to call.
//
// Thread safety: run() and the destructor belong to the thread that made this.
class ReplicaThreads {
 public:
  using Body = std::function<void(std::size_t replica)>;

  explicit ReplicaThreads(std::size_t replicas);
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;
  ~ReplicaThreads();

  // From the next run() on each replica's body runs on these cores; empty: on any.
  void pin(std::vector<Cores> cores) { cores_ = std::move(cores); }
  // Returns once all replicas are done. Throws what the first of them (in time) has thrown, and
  // AgreedError only where none has thrown anything else; a replica that throws something else
  // calls `failed` at once, in the handler, on its thread, so that no other waits for it.
  void run(const Body& body, const Body& failed);

 private:
  void serve(std::size_t replica);
  void end();
  void call(std::size_t replica) noexcept;
  void keep(bool agreed) noexcept;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t round_ = 0;  // how many times run() was called
  std::size_t working_ = 0;  // threads that have not finished this round
  bool ending_ = false;
  const Body* body_ = nullptr;
  const Body* failed_ = nullptr;
  std::exception_ptr first_;
  bool first_is_agreed_ = false;
  std::vector<Cores> cores_;  // by replica
  std::vector<std::thread> threads_;
};

}  // namespace ronde::trainer
