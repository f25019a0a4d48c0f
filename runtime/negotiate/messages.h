// SPDX-License-Identifier: Apache-2.0
// The messages between ranks and their coordinator, and their bytes. Plain values and pure
// functions.
//
// Announcements go from a rank to the coordinator. Decisions go from the coordinator to every rank,
// in one order that is the same everywhere: the order of the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "runtime/tensors/signature.h"
#include "runtime/tensors/step_number.h"

namespace ronde::runtime {

// ---- announcements ----

// "Tensor `name` is ready here, and this is what I think it is."
struct RequestAnnouncement {
  std::string name;
  std::string place;  // "file:line" of the caller; may be empty
  Signature signature;
  StepNumber step{};
  std::string not_finite{};  // what must not be summed: "nan at element 7 of 100"; mostly empty
};

// "My engine is closing: I shall not submit anything more." Forced: "... and I do not wait for what
// I have submitted either."
struct ClosingAnnouncement {
  bool forced = false;
  StepNumber step{};  // the highest that it has submitted
};

struct LateTensor {
  std::string name;
  std::int64_t waited_ns = 0;
};

// "I have been waiting for these tensors for long." In batch: "... though every rank has submitted
// them." Failed: "... for so long that the job has failed."
struct StalledAnnouncement {
  std::vector<LateTensor> tensors;
  bool in_batch = false;
  bool failed = false;
  bool own_deadline = false;  // failed, by the deadline of the request
};

// "I have no more to give, and take part in nothing until all ranks have said so." Nothing but this
// follows what this rank has submitted before.
struct JoinAnnouncement {};

// "I open the process set of this name." Ranks are the job's, ascending.
struct SetAnnouncement {
  std::string name;
  std::vector<std::int32_t> ranks;
  std::string place{};
  // One of the set's ranks on a host says where in the arenas of its board the set's board lies.
  // The others say a number below 0, as does that one where it had no room, with the reason.
  std::int64_t memory = -1;
  std::string trouble{};
  std::int64_t deadline_ns = 0;  // from now on; 0: RONDE_STALL_FAILURE_SECONDS
};

// "I have closed this process set, and touch nothing of it any more."
struct SetEndedAnnouncement {
  std::int32_t number = 0;
};

// Something for rank `to` of the job alone, which the leaders of the hosts pass on (Frame).
struct FrameAnnouncement {
  std::int32_t number = 0;
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::vector<std::byte> message{};
};

// "I have given up a work of this process set: let the set end." For sets whose batches pass over a
// transport, which cannot take back what is on its way; so the set ends like anything else, by a
// decision.
struct GivenUpAnnouncement {
  base::Code code = base::Code::kInternal;
  std::string text;
  std::string place{};
};

struct StandingTensor {
  std::string name;   // as texts call it: 'fc1', or the message with tag 3 from rank 0 to rank 1
  std::string place;  // its process set and "file:line" of the caller; may be empty
};

// How many batches of a process set a rank has received.
struct StandingSet {
  std::int32_t number = 0;
  std::uint64_t batches = 0;
  friend bool operator==(const StandingSet&, const StandingSet&) = default;
};

// "All of my threads wait, for these tensors and some more, and none of them is in a batch." Not
// stands: "... do not any more."
struct StandingAnnouncement {
  bool stands = false;
  std::uint64_t moves = 0;                // what the threads have done so far (member/submitters.h)
  std::uint64_t batches = 0;              // how many this rank has received, and answers about sets
  std::vector<StandingTensor> tensors{};  // the oldest of each kind, those of process sets first
  std::int64_t more = 0;
  std::vector<StandingSet> sets{};
  // What it has sent to ranks of other hosts, and got from there: while not all has come somebody
  // is about to go on.
  std::uint64_t frames_sent = 0;
  std::uint64_t frames_taken = 0;
};

using Announcement = std::variant<RequestAnnouncement, ClosingAnnouncement, StalledAnnouncement,
                                  JoinAnnouncement, SetAnnouncement, SetEndedAnnouncement,
                                  FrameAnnouncement, StandingAnnouncement, GivenUpAnnouncement>;

// ---- decisions ----

// Entry `entry` of the plan no longer stands for a tensor.
struct EvictDecision {
  std::int32_t entry = 0;
};

// From now on no rank arrives at a generation of this entry that is older than this one. It is sent
// to the leaders of other hosts, which answer with a ClosedReport and do not pass it to their
// ranks.
struct CloseDecision {
  std::int32_t entry = 0;
  std::uint32_t generation = 0;
};

// This tensor failed, on every rank that has submitted it.
struct ErrorDecision {
  std::string name;
  base::Code code = base::Code::kInternal;
  std::string text;
  std::string place;
  std::int32_t rank = -1;
};

// A warning about late tensors. The leader of each host prints it. In batch: and adds what the
// ranks of its host do, since the coordinator does not know which of them the others wait for.
struct NoticeDecision {
  std::string text;
  bool in_batch = false;
};

// Every rank executes these together, after all batches with a lower sequence number.
struct BatchDecision {
  std::uint64_t sequence = 0;
  std::vector<BatchItem> items;
};

// This rank has left the job; nothing can be agreed any more. Left: it waits for nothing either, of
// which a job of several hosts is told apart, since messages to it may be on their way before.
struct DepartedDecision {
  std::int32_t rank = 0;
  StepNumber step{};  // as in its ClosingAnnouncement
  bool left = false;
};

// What is bound after this is agreed without this rank. All: this was the last rank, and from now
// on all take part again.
struct JoinedDecision {
  std::int32_t rank = 0;
  bool all = false;
};

// This process set is open: every one of its ranks has asked for it.
struct SetDecision {
  std::int32_t number = 0;  // from 1; no other set that is open has it
  std::string name;
  std::vector<std::int32_t> ranks;
  std::vector<std::int64_t> memory;  // by host of the set, as announced
};

// `told` have asked for this process set in vain.
struct SetRefusedDecision {
  std::string name;
  std::vector<std::int32_t> told;
  base::Code code = base::Code::kInternal;
  std::string text;
  std::string place;
  std::int32_t rank = -1;
};

// Every rank of this process set has closed it.
struct SetEndedDecision {
  std::int32_t number = 0;
};

// A Frame has arrived, for one rank of this host.
struct FrameDecision {
  std::int32_t number = 0;
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::vector<std::byte> message{};
};

// The last decision of a process set, of which this rank has given up a work. The batches before it
// run to their end on every rank, because all of them live (a rank that does not fails the job);
// what is in none fails with `why` once they have, and what is submitted later.
struct GivenUpDecision {
  std::int32_t rank = 0;
  GivenUpAnnouncement why;
};

// In the order of their kinds on the wire, as everywhere where messages are alternatives.
using Decision =
    std::variant<BindDecision, EvictDecision, ErrorDecision, NoticeDecision, BatchDecision,
                 DepartedDecision, CloseDecision, JoinedDecision, SetDecision, SetRefusedDecision,
                 SetEndedDecision, FrameDecision, GivenUpDecision>;

// Whether process sets are opened, refused or ended by this.
[[nodiscard]] bool is_about_sets(const Decision& decision);

// Encoding never fails. Decoding accepts exactly what encoding makes: for anything else it returns
// an error (kInternal) that names the byte, and uses no more memory than the message is long.
[[nodiscard]] std::vector<std::byte> encode(const Announcement& announcement);
[[nodiscard]] std::vector<std::byte> encode(const Decision& decision);
base::Result<Announcement> decode_announcement(std::span<const std::byte> bytes);
base::Result<Decision> decode_decision(std::span<const std::byte> bytes);
// Whether these are the bytes of a FrameAnnouncement, if of anything.
[[nodiscard]] bool is_frame(std::span<const std::byte> announcement);

}  // namespace ronde::runtime
