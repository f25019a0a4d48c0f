// SPDX-License-Identifier: Apache-2.0
// The thread that gathers, and the ring between it and the consumer.
#include "bindings/trainer/data/prefetcher.h"

namespace ronde::trainer {

Prefetcher::Prefetcher(const Pipeline& pipeline, std::uint64_t epoch, std::size_t first_step)
    : gatherer_(pipeline, epoch, first_step), ring_(pipeline.prefetch + 1) {  // one is lent
  if (pipeline.prefetch == 0) return;
  thread_ = std::jthread([this](const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!ended_ && changed_.wait(lock, stop, [this] { return full_ < ring_.size(); })) {
      gather(lock, stop);
    }
  });
}

const StepBatch* Prefetcher::next() {
  std::unique_lock lock(mutex_);
  if (lent_) {
    lent_ = false;
    first_ = (first_ + 1) % ring_.size();
    --full_;
    changed_.notify_all();
  }
  if (ring_.size() == 1 && !ended_) gather(lock, {});
  changed_.wait(lock, [this] { return full_ > 0 || ended_; });
  if (full_ > 0) {
    lent_ = true;
    return &ring_[first_];
  }
  if (error_ != nullptr) std::rethrow_exception(error_);
  return nullptr;
}

void Prefetcher::gather(std::unique_lock<std::mutex>& lock, const std::stop_token& stop) {
  StepBatch& batch = ring_[(first_ + full_) % ring_.size()];
  lock.unlock();
  bool more = false;
  std::exception_ptr error;
  try {
    more = gatherer_.gather(batch, stop);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  if (more) ++full_;
  ended_ = !more;
  error_ = error;
  changed_.notify_all();
}

}  // namespace ronde::trainer
