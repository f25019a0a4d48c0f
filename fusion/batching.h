// SPDX-License-Identifier: Apache-2.0
// Which of the ready tensors are executed together, and in which order. Pure, so that it can be
// tested over all small cases; a set's coordinator asks whenever the data plane is free.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/numbers.h"

namespace ronde::fusion {

// The tensors that are ready, as `Item`s. They wait in one queue for each class and priority, so
// that neither adding one nor a batch of those that do not fuse costs more when more are waiting.
// Tensors fuse only with an equal class; `Class` needs operator<=>.
//
// The rule: a batch begins with the first of the highest priority. Every tensor of its class that
// keeps the sum within the limit follows, higher priority first, earlier readiness first among
// equals; those of another class, or too large for what is left, are skipped and stay ready. A
// first tensor above the limit goes alone.
//
// Thread safety: none.
template <typename Class, typename Item>
class ReadyQueues {
 public:
  struct Kind {
    bool of_device = false;           // it can be held back
    std::optional<Class> fuses_with;  // nullopt: with nothing
    std::int32_t priority = 0;
  };

  // The tensor is ready after all that were pushed before it.
  void push(Kind kind, base::Bytes bytes, Item item) {
    Waiting waiting{pushed_++, bytes, std::move(item)};
    if (empty()) {
      alone_.emplace_back(std::move(kind), std::move(waiting));
      return;
    }
    for (auto& [its_kind, before] : alone_) enqueue(std::move(its_kind), std::move(before));
    alone_.clear();
    enqueue(std::move(kind), std::move(waiting));
  }

  // Takes the next batch, in order of execution; hold_devices: without tensors of devices. Empty
  // only if no tensor may go.
  std::vector<Item> take(base::Bytes limit, bool hold_devices) {
    std::vector<Item> batch;
    if (!alone_.empty()) {
      if (!any(hold_devices)) return batch;
      batch.push_back(std::move(alone_.front().second.item));
      alone_.clear();
      return batch;
    }
    const Heads* heads = heads_to_take(hold_devices);
    if (heads == nullptr) return batch;
    auto queue = heads->begin()->second;
    const Kind kind = queue->first;  // the queue is erased when it is empty
    unlist(queue);
    const base::Bytes first = queue->second.front().bytes;
    batch.push_back(std::move(queue->second.front().item));
    queue->second.pop_front();
    if (!kind.fuses_with || first > limit) {
      list_or_erase(queue);
      return batch;
    }
    base::Bytes room = limit - first;
    while (true) {
      take_what_fits(queue->second, room, batch);
      queue = list_or_erase(queue);
      // The other priorities of a class follow, the highest first.
      if (queue == queues_.end() || !same_class(queue->first, kind)) return batch;
      unlist(queue);
    }
  }

  [[nodiscard]] bool empty() const { return alone_.empty() && queues_.empty(); }
  // Whether take() would return a batch.
  [[nodiscard]] bool any(bool hold_devices) const {
    if (!alone_.empty()) return !hold_devices || !alone_.front().first.of_device;
    return heads_to_take(hold_devices) != nullptr;
  }

  // Calls function(item) for each that waits. The items may be changed.
  template <typename Function>
  void for_each(const Function& function) {
    for (auto& [kind, waiting] : alone_) function(waiting.item);
    for (auto& [kind, queue] : queues_) {
      for (Waiting& waiting : queue) function(waiting.item);
    }
  }

 private:
  struct Waiting {
    std::uint64_t order = 0;
    base::Bytes bytes;
    Item item;
  };
  using Queue = std::list<Waiting>;
  static bool same_class(const Kind& a, const Kind& b) {
    return a.of_device == b.of_device && a.fuses_with == b.fuses_with;
  }
  struct ByClass {
    bool operator()(const Kind& a, const Kind& b) const {
      if (a.of_device != b.of_device) return b.of_device;
      const auto classes = a.fuses_with <=> b.fuses_with;
      return classes != 0 ? classes < 0 : a.priority > b.priority;
    }
  };
  using Queues = std::map<Kind, Queue, ByClass>;
  using QueueIterator = typename Queues::iterator;

  // The front of a queue: which of the queues is served first.
  struct Head {
    std::int32_t priority = 0;
    std::uint64_t order = 0;
    friend bool operator<(const Head& a, const Head& b) {
      return a.priority != b.priority ? a.priority > b.priority : a.order < b.order;
    }
  };
  using Heads = std::map<Head, QueueIterator>;

  void enqueue(Kind kind, Waiting waiting) {
    const auto queue = queues_.try_emplace(std::move(kind)).first;
    queue->second.push_back(std::move(waiting));
    if (queue->second.size() == 1) list(queue);
  }
  static Head head_of(QueueIterator queue) {
    return {queue->first.priority, queue->second.front().order};
  }
  Heads& heads_of(QueueIterator queue) { return heads_.at(queue->first.of_device ? 1 : 0); }
  void list(QueueIterator queue) { heads_of(queue).emplace(head_of(queue), queue); }
  void unlist(QueueIterator queue) { heads_of(queue).erase(head_of(queue)); }
  // Returns the queue after it.
  QueueIterator list_or_erase(QueueIterator queue) {
    if (queue->second.empty()) return queues_.erase(queue);
    list(queue);
    return std::next(queue);
  }

  [[nodiscard]] const Heads* heads_to_take(bool hold_devices) const {
    const auto& [of_host, of_devices] = heads_;
    if (hold_devices || of_devices.empty()) return of_host.empty() ? nullptr : &of_host;
    if (of_host.empty()) return &of_devices;
    return of_devices.begin()->first < of_host.begin()->first ? &of_devices : &of_host;
  }

  static void take_what_fits(Queue& queue, base::Bytes& room, std::vector<Item>& batch) {
    for (auto waiting = queue.begin(); waiting != queue.end();) {
      if (waiting->bytes > room) {
        ++waiting;
        continue;
      }
      room = room - waiting->bytes;
      batch.push_back(std::move(waiting->item));
      waiting = queue.erase(waiting);
    }
  }

  // The only one that is ready, as in a loop of blocking calls: it needs no queue, hence no memory.
  std::vector<std::pair<Kind, Waiting>> alone_;
  Queues queues_;               // none is empty; all are where there is one alone
  std::array<Heads, 2> heads_;  // of the queues of the host, and of devices
  std::uint64_t pushed_ = 0;
};

}  // namespace ronde::fusion
