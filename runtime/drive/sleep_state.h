// SPDX-License-Identifier: Apache-2.0
// Whether the thread that holds the agent's role may sleep: everything that decides it besides the
// role's own words (agent_role.h). The model of the role runs this class, too.
//
// - asked: the holder is about to stop watching, so peers ring and descriptors are watched. Only
//   the holder uses it.
// - watched, of each descriptor: the background thread's epoll has it. The holder sets it before it
//   hands the descriptor over, and clears it when it watches itself again; the background thread
//   clears it when the descriptor has become readable, since the epoll tells that once.
// - left: the last look has left work that nothing announces, no ring and no descriptor. Stored by
//   the holder, and read by a thread that has just freed the role.
//
// Why nothing is slept through, beside what agent_role.h says of rings:
// - holder:      left = ...;                            then role = free
//   leaver:      role = free;                           then left?
// - holder:      takes all that a descriptor has;       then watched = true; then hands it over
//   epoll:       is told at once of what has come since
// - background:  the epoll has told;                    then watched = false; then posts
//   leaver:      role = free;                           then posts != seen? The look that follows
//                                                       hands the descriptor over again
// A holder may find `watched` still true after the epoll has told: it hands nothing over, but the
// post comes after that. Were the descriptor handed over before `watched` is set, the background
// thread could clear the word in between, and the descriptor would never be handed over again.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace ronde::runtime {

// Words provides:
// - asked(), set_asked(bool); left(), watched(slot): atomics
// - kSlots, slot_of(fd): the slot of a descriptor, taken when it is first asked for; find(fd): the
//   same, or kSlots where it has none
// - hand_over(slot), take_back(slot): gives a descriptor to the epoll, and takes it away
//
// Thread safety: as each function says.
template <typename Words>
class SleepStateOn {
 public:
  template <typename... Args>
  explicit SleepStateOn(Args&&... args) : words_(std::forward<Args>(args)...) {}

  // ---- the holder ----
  [[nodiscard]] bool asked() { return words_.asked(); }
  void ask(bool wanted) {
    words_.set_asked(wanted);
    if (wanted) return;  // the look that follows hands descriptors over
    for (std::size_t slot = 0; slot < Words::kSlots; ++slot) {
      // Where that fails, an event wakes a thread too many.
      if (words_.watched(slot).exchange(false, std::memory_order_seq_cst)) words_.take_back(slot);
    }
  }
  // This look has taken all that the descriptor has.
  base::Status watch(int fd) {
    if (!asked()) return {};
    const std::size_t slot = words_.slot_of(fd);
    if (words_.watched(slot).exchange(true, std::memory_order_seq_cst)) return {};
    return words_.hand_over(slot);
  }
  // The end of a look.
  void note_left(bool left) {
    if (left != words_.left().load(std::memory_order_relaxed)) {
      words_.left().store(left, std::memory_order_seq_cst);
    }
  }

  // ---- a thread that has just freed the role ----
  [[nodiscard]] bool work_left() { return words_.left().load(std::memory_order_seq_cst); }

  // ---- the background thread ----
  // The epoll has told of this descriptor; false: it is none of these.
  bool on_event(int fd) {
    const std::size_t slot = words_.find(fd);
    if (slot == Words::kSlots) return false;
    words_.watched(slot).store(false, std::memory_order_seq_cst);
    return true;
  }

 private:
  Words words_;
};

// The words of a process.
class SleepWords {
 public:
  using Epoll = std::function<base::Status(int fd, bool watched)>;
  static constexpr std::size_t kSlots = 2;  // links to other hosts, and the transport

  explicit SleepWords(Epoll epoll) : epoll_(std::move(epoll)) {}

  [[nodiscard]] bool asked() const { return asked_; }
  void set_asked(bool wanted) { asked_ = wanted; }
  std::atomic<bool>& left() { return left_; }
  std::atomic<bool>& watched(std::size_t slot) { return watched_.at(slot); }

  [[nodiscard]] std::size_t find(int fd) const {
    std::size_t slot = 0;
    while (slot < kSlots && fds_[slot].load(std::memory_order_acquire) != fd) ++slot;
    return slot;
  }
  std::size_t slot_of(int fd) {
    std::size_t slot = find(fd);
    if (slot < kSlots) return slot;
    slot = find(-1);
    base::check(slot < kSlots, "an agent watches two descriptors at most");
    fds_[slot].store(fd, std::memory_order_release);
    return slot;
  }
  base::Status hand_over(std::size_t slot) {
    return epoll_(fds_.at(slot).load(std::memory_order_relaxed), true);
  }
  void take_back(std::size_t slot) {
    epoll_(fds_.at(slot).load(std::memory_order_relaxed), false).ignore();
  }

 private:
  Epoll epoll_;
  bool asked_ = false;  // only the holder of the role uses it
  std::atomic<bool> left_{false};
  std::array<std::atomic<bool>, kSlots> watched_{};
  std::array<std::atomic<int>, kSlots> fds_{{-1, -1}};
};

using SleepState = SleepStateOn<SleepWords>;

}  // namespace ronde::runtime
