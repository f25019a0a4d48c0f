// SPDX-License-Identifier: Apache-2.0
#include "runtime/member/submitters.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace ronde::runtime {

namespace {

std::int32_t number_of_this_thread() {
  // Asked for once: it is a call of the system. A forked child, where it would be wrong, is refused
  // before it comes here.
  thread_local const auto kNumber = static_cast<std::int32_t>(::gettid());
  return kNumber;
}

bool has_ended(std::int32_t number) {
  return ::syscall(SYS_tgkill, ::getpid(), number, 0) != 0 && errno == ESRCH;
}

}  // namespace

Submitters::Thread* Submitters::own() {
  const std::int32_t number = number_of_this_thread();
  const auto home = static_cast<std::size_t>(number) % kMostThreads;
  for (std::size_t i = 0; i < kMostThreads; ++i) {
    Thread& thread = threads_[(home + i) % kMostThreads];
    const std::int32_t found = thread.number.load(std::memory_order_acquire);
    if (found == number) return &thread;
    if (found == 0) break;  // places are taken from home on, and none becomes free
  }
  return place(number);
}

// Takes a place that nobody has, or one of a thread that has ended.
Submitters::Thread* Submitters::place(std::int32_t number) {
  const auto home = static_cast<std::size_t>(number) % kMostThreads;
  for (const bool of_the_ended : {false, true}) {
    for (std::size_t i = 0; i < kMostThreads; ++i) {
      Thread& thread = threads_[(home + i) % kMostThreads];
      std::int32_t found = thread.number.load(std::memory_order_acquire);
      if (found != 0 && (!of_the_ended || !has_ended(found))) continue;
      if (!thread.number.compare_exchange_strong(found, number, std::memory_order_acq_rel))
        continue;
      thread.submits.store(false, std::memory_order_relaxed);
      thread.waits_until.store(0, std::memory_order_relaxed);
      for (Thread::Wait& wait : thread.last_waits) wait.end.store(0, std::memory_order_relaxed);
      thread.unfinished.store(nullptr, std::memory_order_relaxed);
      thread.move();
      return &thread;
    }
  }
  full_.store(true, std::memory_order_relaxed);
  return nullptr;
}

void Submitters::submitted() {
  if (of_job_ != nullptr) of_job_->submitted();
  Thread* const thread = own();
  if (thread == nullptr) return;
  thread->submits.store(true, std::memory_order_relaxed);
  thread->waits_until.store(0, std::memory_order_relaxed);
  thread->move();
}

void Submitters::has_waited(base::Instant begin, base::Instant end, const void* work, bool done) {
  Thread* const thread = own();
  if (thread == nullptr) return;
  const std::size_t next = thread->next_wait.load(std::memory_order_relaxed);
  const void* const before = thread->unfinished.load(std::memory_order_relaxed);
  thread->unfinished.store(done ? nullptr : work, std::memory_order_relaxed);
  if (before == work) {
    // It goes on, and what it did between two slices was no waiting.
    Thread::Wait& last = thread->last_waits[(next - 1) % thread->last_waits.size()];
    const std::int64_t gap = begin.count() - last.end.load(std::memory_order_relaxed);
    last.begin.fetch_add(gap, std::memory_order_relaxed);
    last.end.store(end.count(), std::memory_order_relaxed);
    return;
  }
  Thread::Wait& wait = thread->last_waits[next % thread->last_waits.size()];
  wait.begin.store(begin.count(), std::memory_order_relaxed);
  wait.end.store(end.count(), std::memory_order_relaxed);
  thread->next_wait.store(next + 1, std::memory_order_relaxed);
}

base::Nanoseconds Submitters::waited_since(base::Instant since) {
  Thread* const thread = own();
  base::Nanoseconds waited{0};
  if (thread == nullptr) return waited;
  for (const Thread::Wait& wait : thread->last_waits) {
    const base::Instant begin(wait.begin.load(std::memory_order_relaxed));
    const base::Instant end(wait.end.load(std::memory_order_relaxed));
    if (end > since) waited += end - std::max(begin, since);
  }
  return waited;
}

Submitters::Waiting::Waiting(Submitters& submitters)
    : threads_{submitters.own(),
               submitters.of_job_ == nullptr ? nullptr : submitters.of_job_->own()} {
  for (Thread* const thread : threads_) {
    if (thread != nullptr) thread->wait(1);
  }
}

Submitters::Waiting::~Waiting() {
  for (Thread* const thread : threads_) {
    if (thread == nullptr) continue;
    thread->move();
    thread->wait(-1);
  }
}

void Submitters::waits_until(base::Instant until) {
  if (of_job_ != nullptr) of_job_->waits_until(until);
  Thread* const thread = own();
  if (thread == nullptr) return;
  thread->waits_until.store(until.count(), std::memory_order_relaxed);
  if (until == base::Instant{}) thread->move();
}

Submitters::Look Submitters::look(base::Instant now) const {
  Look look;
  bool waits = false;
  bool moves = full_.load(std::memory_order_relaxed);
  for (const Thread& thread : threads_) {
    const std::int32_t number = thread.number.load(std::memory_order_acquire);
    if (number == 0) continue;
    const bool waiting = thread.waits.load(std::memory_order_acquire) > 0 ||
                         thread.waits_until.load(std::memory_order_relaxed) > now.count();
    look.moves += thread.moves.load(std::memory_order_relaxed);
    if (waiting) {
      waits = true;
    } else if (thread.submits.load(std::memory_order_relaxed) && !has_ended(number)) {
      moves = true;
    }
  }
  look.still = waits && !moves;
  return look;
}

}  // namespace ronde::runtime
