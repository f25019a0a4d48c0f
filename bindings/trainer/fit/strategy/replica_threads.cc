// SPDX-License-Identifier: Apache-2.0
// A round of all replicas, and its first exception.
#include "bindings/trainer/fit/strategy/replica_threads.h"

#include <utility>

#include "bindings/trainer/fit/agreement.h"

namespace ronde::trainer {

ReplicaThreads::ReplicaThreads(std::size_t replicas) {
  try {
    for (std::size_t replica = 1; replica < replicas; ++replica) {
      threads_.emplace_back([this, replica] { serve(replica); });
    }
  } catch (...) {  // std::system_error: the system has no thread left
    end();
    throw;
  }
}

ReplicaThreads::~ReplicaThreads() { end(); }

void ReplicaThreads::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReplicaThreads::run(const Body& body, const Body& failed) {
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    failed_ = &failed;
    working_ = threads_.size();
    ++round_;
  }
  changed_.notify_all();
  call(0);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return working_ == 0; });
  if (const std::exception_ptr first = std::exchange(first_, nullptr)) {
    std::rethrow_exception(first);
  }
}

void ReplicaThreads::serve(std::size_t replica) {
  std::uint64_t seen = 0;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ending_ || round_ != seen; });
      if (ending_) return;
      seen = round_;
    }
    call(replica);
    const std::lock_guard lock(mutex_);
    if (--working_ == 0) changed_.notify_all();
  }
}

// In the handler of an exception. One that the replicas agree on says less than one of a single
// replica, which ends them all.
void ReplicaThreads::keep(bool agreed) noexcept {
  const std::lock_guard lock(mutex_);
  if (first_ && (agreed || !first_is_agreed_)) return;
  first_ = std::current_exception();
  first_is_agreed_ = agreed;
}

void ReplicaThreads::call(std::size_t replica) noexcept {
  const Pinned pinned(cores_.empty() ? Cores() : cores_[replica]);
  try {
    (*body_)(replica);
  } catch (const AgreedError&) {
    keep(true);
  } catch (...) {
    keep(false);
    (*failed_)(replica);
  }
}

}  // namespace ronde::trainer
