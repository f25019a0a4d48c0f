// SPDX-License-Identifier: Apache-2.0
// A rank's part in the agreement on tensors, without the data plane: it announces what is ready
// here, takes what was decided, and says what became of each tensor.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "runtime/drive/agent.h"
#include "runtime/member/control_streams.h"
#include "runtime/member/failure_path.h"
#include "runtime/member/rank_context.h"
#include "runtime/negotiate/messages.h"
#include "runtime/tensors/joined.h"
#include "runtime/tensors/tensor_table.h"

namespace ronde::runtime {

// Shares the board of its host, the streams to its leader and the failure path with other members
// of this rank; has a table of tensors of its own, which its owner has made. Owns which batches and
// departures it has been told of. There may be several on one board, if their entries of the plan
// differ.
//
// Thread safety: on_decision() is for the agent; the rest may be called from any thread.
class Member {
 public:
  // Who has this member. The agent alone calls these functions, inside on_decision().
  class Owner {
   public:
    virtual ~Owner() = default;
    // The tensors of the next batch, which every rank executes.
    virtual base::Status on_batch(std::uint64_t sequence, TensorTable::Claimed claimed) = 0;
    // This tensor is in no batch and never will be; it has been taken out of the table.
    virtual void on_failed(const LocalTensorPtr& tensor, const base::Status& why) = 0;
    // All ranks have joined, `last` of them last; `join` is this rank's, taken out of the table.
    virtual void on_all_joined(const LocalTensorPtr& join, std::int32_t last) = 0;
    virtual void on_notice(const NoticeDecision& notice) = 0;
    // It has been decided that this rank has departed, or no longer can be.
    virtual void on_departed() = 0;
  };
  Member(const RankContext& context, ControlStreams& streams, const FailurePath& failure,
         TensorTable& table, Owner& owner);

  [[nodiscard]] TensorTable& table() const { return table_; }

  // ---- submitting ----
  // Tells the coordinator that a tensor is ready here: by counting this rank in at its entry of the
  // plan, or by a full request. request: from make_request(), if the ticket has no entry.
  base::Status announce(const LocalTensor& tensor, const Ticket& ticket,
                        std::vector<std::byte> request, bool wake);
  base::Status announce(const Announcement& announcement, bool wake);
  // The bytes of a full request, and room for them in the stream to the coordinator: so that
  // announce() needs no memory: if it failed for lack of it, the others would wait for the tensor.
  [[nodiscard]] std::vector<std::byte> make_request(const LocalTensor& tensor);
  // The first half of announce(): counts this rank in. Stale: the plan has changed since the ticket
  // was given. Last: all ranks of this host are there, so push() must follow.
  [[nodiscard]] collectives::Arrival count_in(const LocalTensor& tensor, const Ticket& ticket);
  void push(std::int32_t entry, bool wake);
  // Says of the error of a tensor that comes too late whether the rank that has left has taken
  // fewer steps.
  [[nodiscard]] base::Status with_steps(const base::Status& why, const LocalTensor& tensor) const;

  // ---- deciding ----
  base::Status on_decision(const Decision& decision);

  // ---- what has happened ----
  // The highest number of a step that was announced here.
  [[nodiscard]] StepNumber last_step() const {
    return StepNumber::of_word(last_step_.load(std::memory_order_relaxed));
  }
  // How many batches it has received.
  [[nodiscard]] std::uint64_t batches() const {
    return received_batches_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t full_requests() const { return full_requests_.load(); }
  [[nodiscard]] std::uint64_t planned_requests() const { return planned_requests_.load(); }

 private:
  base::Status on_batch(const BatchDecision& decision);
  void on_joined(const JoinedDecision& decision);
  void note_decided(const BatchDecision& decision, const TensorTable::Claimed& claimed) const;
  [[nodiscard]] std::int32_t last_to_arrive(const BatchItem& item, const LocalTensor& tensor,
                                            base::Instant now) const;
  void on_departed(const DepartedDecision& departed);
  void note_step(StepNumber step);

  const RankContext& context_;
  ControlStreams& streams_;
  const FailurePath& failure_;
  TensorTable& table_;
  Owner& owner_;
  Joined joined_;                                   // the agent's
  std::atomic<std::uint64_t> received_batches_{0};  // only the agent writes it
  std::atomic<std::uint64_t> last_step_{0};         // a word of StepNumber
  std::atomic<std::uint64_t> left_step_{0};         // likewise, of the first rank that has departed
  std::atomic<std::int32_t> left_rank_{-1};
  std::atomic<std::uint64_t> full_requests_{0};
  std::atomic<std::uint64_t> planned_requests_{0};
};

}  // namespace ronde::runtime
