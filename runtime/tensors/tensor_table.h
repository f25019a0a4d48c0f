// SPDX-License-Identifier: Apache-2.0
// The tensor table: what is in flight on this rank, and what this rank knows of the plan. It is the
// one place where the submitting threads and the agent meet; it touches nothing but its own memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "runtime/tensors/local_tensor.h"
#include "runtime/tensors/signature.h"
#include "runtime/tensors/waiting_habit.h"

namespace ronde::runtime {

// Tensors in the order of their submission. It links them by their `neighbours[notice]`, so that
// any of them can be taken out at once and adding one takes no memory. It owns none of them.
//
// Thread safety: none; the table's lock guards it.
class SubmissionOrder {
 public:
  explicit SubmissionOrder(std::size_t notice) : notice_(notice) {}
  [[nodiscard]] LocalTensor* first() const { return first_; }
  void append(LocalTensor& tensor) noexcept;
  // Does nothing where the tensor is not listed.
  void remove(LocalTensor& tensor) noexcept;

 private:
  const std::size_t notice_;
  LocalTensor* first_ = nullptr;
  LocalTensor* last_ = nullptr;
};

// Where to announce a tensor: at an entry of the plan, or, if entry is -1, by a full request.
struct Ticket {
  std::int32_t entry = -1;
  std::uint32_t generation = 0;
  WaitingHabit* habit = nullptr;  // the entry's; belongs to the table
  std::uint32_t expected = 0;     // how many ranks of this host arrive there; 0: all
};

// Thread safety: every function may be called from any thread; those below "for the agent" are
// called by one thread at a time.
class TensorTable {
 public:
  // With `check_memory` insert() compares the memory of a tensor with that of all in flight, as
  // this rank of `size` uses it.
  explicit TensorTable(std::int32_t rank, std::int32_t size = 1, bool check_memory = false)
      : rank_(rank), size_(size), check_memory_(check_memory) {}

  // Puts a tensor, or a whole group, in flight; each object once. Returns an error, and puts
  // nothing in flight, if its name or that of a member is in flight already, alone or in a group
  // (kDuplicateName), if its memory overlaps with that of another in flight and is checked
  // (kInvalidArgument), or if the table was shut. `prepare` is called where the ticket has no
  // entry, before anybody sees the tensor: what it, or this, throws leaves nothing in flight.
  base::Result<Ticket> insert(const LocalTensorPtr& tensor,
                              const std::function<void()>& prepare = nullptr);

  // From now on insert() returns this error. Later calls do not replace the first error.
  void shut(const base::Status& why);

  [[nodiscard]] bool empty() const;
  // Whether others move data with this rank that it has not submitted.
  [[nodiscard]] bool stands_in() const;

  // The tensor or group in flight of that name, in words: "'a', submitted at train.cc:12".
  [[nodiscard]] std::string describe(const std::string& name) const;
  // Likewise what was submitted first of all that is in flight; empty if nothing is.
  [[nodiscard]] std::string describe_oldest() const;

  // ---- for the agent ----
  base::Status bind(const BindDecision& decision);
  void evict(std::int32_t entry);
  // What is bound from now on is agreed without these ranks, and `expected` ranks of this host
  // arrive at it (0: all).
  void leave_out(std::vector<std::int32_t> joined, std::uint32_t expected);
  // All ranks have joined: this rank may submit again. Takes its join out of the table; nullptr: it
  // has ended before.
  LocalTensorPtr end_join();
  // Returns the tensors in flight that the items of a batch stand for, at least one, and marks them
  // as being in a batch. An error if one is not in flight here: then this rank's decisions differ
  // from the others'.
  struct Claimed {
    AgreedTensor agreed;  // the first one's: what all of a batch must have in common is there
    std::vector<LocalTensorPtr> tensors;
    std::uint32_t alone = 0;  // how often this one tensor was a batch by itself since it was bound
  };
  base::Result<Claimed> claim(const std::vector<BatchItem>& items);
  // Takes a tensor that is not in a batch out of the table; nullptr if there is none of that name.
  LocalTensorPtr remove_waiting(const std::string& name);
  // Takes a tensor out of the table, so that its name may be used again.
  void remove(const LocalTensor& tensor);
  // Takes out all that is in flight, oldest first; with_batched = false: only what is in no batch.
  std::vector<LocalTensorPtr> remove_all(bool with_batched);

  // Returns the tensors that have been in flight since before `limit`, each once per `notice` (0:
  // warning, 1: failure).
  std::vector<LocalTensorPtr> overdue(base::Instant limit, std::size_t notice);
  // What is in flight, if none of it is in a batch.
  struct Waiting {
    std::vector<std::pair<std::string, std::string>> oldest;  // names and places
    std::size_t more = 0;
  };
  [[nodiscard]] std::optional<Waiting> waiting(std::size_t most) const;
  // Returns the tensors whose own deadline has passed, each once.
  std::vector<LocalTensorPtr> past_deadline(base::Instant now);
  // The earliest of those; kNever: there is none. Cheap.
  [[nodiscard]] base::Instant next_deadline() const {
    return base::Instant(next_deadline_.load(std::memory_order_acquire));
  }
  // When the oldest tensor of that notice was submitted; kNever if none is left.
  [[nodiscard]] base::Instant oldest(std::size_t notice) const;

 private:
  struct Entry {
    bool bound = false;
    std::uint32_t generation = 0;
    std::string name;
    AgreedTensor tensor;
    WaitingHabit* habit = nullptr;
    std::uint32_t expected = 0;
    std::uint32_t alone = 0;
  };
  void erase(const LocalTensor& tensor) RONDE_REQUIRES(mutex_);
  void forget_deadline(const LocalTensor& tensor) RONDE_REQUIRES(mutex_);
  void note_deadlines() RONDE_REQUIRES(mutex_);
  // The tensor or group of that name; not a member of a group.
  LocalTensorPtr find(const std::string& name) RONDE_REQUIRES(mutex_);
  base::Result<Ticket> try_insert(const LocalTensorPtr& tensor,
                                  const std::function<void()>& prepare) RONDE_REQUIRES(mutex_);
  [[nodiscard]] Ticket ticket_of(const LocalTensor& tensor) const RONDE_REQUIRES(mutex_);
  base::Status occupy(const std::string& name, const LocalTensorPtr& tensor) RONDE_REQUIRES(mutex_);
  void vacate(const LocalTensor& tensor) RONDE_REQUIRES(mutex_);
  [[nodiscard]] base::Status may_insert(const LocalTensor& tensor) const RONDE_REQUIRES(mutex_);
  base::Status claim(const BatchItem& item, Claimed& claimed) RONDE_REQUIRES(mutex_);
  base::Status check_apart_from_all(const LocalTensor& tensor) RONDE_REQUIRES(mutex_);

  const std::int32_t rank_;
  const std::int32_t size_;
  const bool check_memory_;
  mutable base::Mutex mutex_;
  // Keyed by every name that may not be used again now: a group is here under its own name and
  // under those of its members.
  std::unordered_map<std::string, LocalTensorPtr> in_flight_ RONDE_GUARDED_BY(mutex_);
  std::vector<Entry> entries_ RONDE_GUARDED_BY(mutex_);
  // By entry; they stay where they are, because works in flight refer to them.
  std::deque<WaitingHabit> habits_ RONDE_GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::int32_t> entry_of_name_ RONDE_GUARDED_BY(mutex_);
  std::size_t stand_ins_ RONDE_GUARDED_BY(mutex_) = 0;
  LocalTensorPtr join_ RONDE_GUARDED_BY(mutex_);  // of this rank, until all have joined
  std::vector<std::int32_t> joined_ RONDE_GUARDED_BY(mutex_);
  std::uint32_t expected_ RONDE_GUARDED_BY(mutex_) = 0;
  base::Status shut_ RONDE_GUARDED_BY(mutex_);
  // The tensors that have a deadline of their own.
  std::multimap<base::Instant, LocalTensor*> deadlines_ RONDE_GUARDED_BY(mutex_);
  std::atomic<std::int64_t> next_deadline_{base::kNever.count()};  // the first of them
  // For the stall checks: one queue per notice, of tensors that in_flight_ owns. A tensor that has
  // ended is in neither, whatever was submitted before it and is still in flight.
  SubmissionOrder order_[2] RONDE_GUARDED_BY(mutex_){SubmissionOrder(0), SubmissionOrder(1)};
};

}  // namespace ronde::runtime
