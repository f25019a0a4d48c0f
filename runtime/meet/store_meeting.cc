// SPDX-License-Identifier: Apache-2.0
// The meeting over a store: what is under which key, and how rank 0 finds out who is missing.
#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "base/numbers.h"
#include "base/text.h"
#include "base/wire/handshake.h"
#include "collectives/transport/roll.h"
#include "runtime/meet/meet.h"
#include "runtime/meet/messages.h"
#include "runtime/meet/store.h"

namespace ronde::runtime {

using base::Clock;
using base::Code;
using base::Instant;
using base::Nanoseconds;
using base::Result;
using base::Status;

namespace {

using Bytes = std::vector<std::byte>;

// How long rank 0 waits for one rank before it looks for the next one that is missing: so one that
// is late does not hide another one that is impatient, or in trouble.
constexpr Nanoseconds kLook = std::chrono::milliseconds(20);
// The shortest look: to some stores no time at all means to wait for ever.
constexpr Nanoseconds kGlance = std::chrono::milliseconds(1);

constexpr const char* kActivity = "meeting over the store of the program";

class StoreMeeting final : public MeetingEnd {
 public:
  StoreMeeting(std::shared_ptr<Store> store, MeetingPlan plan)
      : MeetingEnd(std::move(plan)), store_(std::move(store)) {}

  // The first round, in which the ranks tell each other where they run.
  Status begin(const Clock& clock, Instant deadline);

  [[nodiscard]] std::string text() const override { return "a store of the program"; }
  Result<Parts> allgather(std::span<const std::byte> mine, const std::string& activity,
                          const collectives::StartTrouble& trouble, const Clock& clock,
                          Instant deadline) override;

 private:
  void leave() override { store_.reset(); }
  [[nodiscard]] std::string key(const std::string& what) const {
    return "ronde/" + job_ + std::to_string(round_) + "/" + what;
  }
  Result<Parts> collect(MeetingPart mine, const Clock& clock);
  // Looks for the part of one rank.
  Result<std::optional<MeetingPart>> look(std::int32_t rank, Nanoseconds patience);
  // The error of a rank to which rank 0 does not answer in time.
  Status no_answer();
  Result<Parts> send_and_receive(const MeetingPart& mine, const Clock& clock, Instant deadline);

  std::shared_ptr<Store> store_;
  // From round 1 on: a word of rank 0, so that no older key can be taken for ours.
  std::string job_;
};

Result<MeetingAnswer> decode_answer(std::span<const std::byte> bytes) {
  auto message = decode_meeting_message(bytes);
  auto* const answer = message.ok() ? std::get_if<MeetingAnswer>(&*message) : nullptr;
  if (answer != nullptr) return std::move(*answer);
  return Status::error(Code::kInternal,
                       "what rank 0 has put into the store of the program cannot be read: use the "
                       "same libronde.so on every rank, and a store that changes nothing");
}

Status failed_store(const Status& why) {
  return Status::error(Code::kTransport, "the store of the program failed", why);
}

Result<std::optional<MeetingPart>> StoreMeeting::look(std::int32_t rank, Nanoseconds patience) {
  const auto bytes = store_->get(key(std::to_string(rank)), patience);
  if (!bytes.ok() && bytes.status().code() == Code::kDeadline) return std::optional<MeetingPart>();
  if (!bytes.ok()) return failed_store(bytes.status());
  RONDE_ASSIGN_OR_RETURN(auto message, decode_meeting_message(*bytes));
  auto* const part = std::get_if<MeetingPart>(&message);
  if (part == nullptr || part->round != round_) {
    return Status::error(Code::kInvalidArgument, "the store has something else under the key " +
                                                     key(std::to_string(rank)) +
                                                     ": give each engine a store, or a prefix, of "
                                                     "its own");
  }
  return std::optional(std::move(*part));
}

// Rank 0 names who is missing, but a rank that has come long before it is out of patience first.
Status StoreMeeting::no_answer() {
  std::vector<std::int32_t> missing;
  for (std::int32_t rank = 0; rank < plan_.size; ++rank) {
    if (rank == plan_.rank) continue;
    const auto found = look(rank, kGlance);
    if (found.ok() && !*found) missing.push_back(rank);
  }
  if (missing.empty()) missing.push_back(0);  // it has everything, and has not answered
  return roll_.absent(missing);
}

Result<StoreMeeting::Parts> StoreMeeting::collect(MeetingPart mine, const Clock& clock) {
  // The others see by this that rank 0 has come.
  const Status came = store_->set(key("0"), encode(mine));
  if (!came.ok()) return failed_store(came);
  open_round(std::move(mine), clock.now());
  Status trouble;
  while (!complete() && trouble.ok()) {
    const Instant began = clock.now();
    if (began >= answer_by()) trouble = too_late();
    for (std::int32_t rank = 1; rank < plan_.size && trouble.ok(); ++rank) {
      if (has_part(rank)) continue;
      const Instant now = clock.now();
      auto found = look(rank, std::clamp(answer_by() - now, kGlance, kLook));
      if (!found.ok()) {
        trouble = found.status();
      } else if (*found) {
        take_part(rank, std::move(**found), now, now);
      }
    }
    // A store that does not wait would be asked without a pause.
    if (!complete() && clock.now() - began < kGlance) std::this_thread::sleep_for(kGlance);
  }
  MeetingAnswer answer{{round_, take_parts()}, {}};
  if (!trouble.ok()) answer.verdict = MeetingVerdict::of(trouble);
  const Status set = store_->set(key("all"), encode(answer));
  RONDE_RETURN_IF_ERROR(trouble);
  if (!set.ok()) return failed_store(set);
  return std::move(answer.all.parts);
}

Result<StoreMeeting::Parts> StoreMeeting::send_and_receive(const MeetingPart& mine,
                                                           const Clock& clock, Instant deadline) {
  const Status set = store_->set(key(std::to_string(plan_.rank)), encode(mine));
  if (!set.ok()) return failed_store(set);
  auto bytes = store_->get(key("all"), std::max(deadline - clock.now(), kGlance));
  // A store that does not wait is asked again and again.
  while (!bytes.ok() && bytes.status().code() == Code::kDeadline && clock.now() < deadline) {
    std::this_thread::sleep_for(kLook);
    bytes = store_->get(key("all"), std::max(deadline - clock.now(), kGlance));
  }
  if (!bytes.ok() && bytes.status().code() == Code::kDeadline) return no_answer();
  if (!bytes.ok()) return failed_store(bytes.status());
  RONDE_ASSIGN_OR_RETURN(auto answer, decode_answer(*bytes));
  MeetingAll& all = answer.all;
  const Status verdict = answer.verdict ? answer.verdict->status() : Status();
  const std::string apart =
      ": give all ranks the same size, and each engine a store, or a prefix, of its own";
  if (std::ssize(all.parts) != plan_.size) {
    return Status::error(Code::kInvalidArgument, "rank " + std::to_string(plan_.rank) +
                                                     " was told that the job has " +
                                                     std::to_string(plan_.size) +
                                                     " ranks, and rank 0, or an older engine "
                                                     "over this store, that it has " +
                                                     std::to_string(all.parts.size()) + apart);
  }
  const Bytes& heard = all.parts[base::narrow<std::size_t>(plan_.rank)];
  // Rank 0 has given up before it saw what this rank has put there, or an older engine's has.
  if (all.round == round_ && heard.empty() && !verdict.ok()) {
    return Status::remote(verdict.code(),
                          "rank 0 has given up: " + verdict.message() +
                              "; if an older engine has left that in the store" + apart,
                          verdict.place(), 0);
  }
  if (all.round != round_ || heard != mine.bytes) {
    return Status::error(Code::kInvalidArgument,
                         "the store holds what another engine has left there" + apart);
  }
  RONDE_RETURN_IF_ERROR(verdict);
  record(0, clock.now());
  return std::move(all.parts);
}

Result<StoreMeeting::Parts> StoreMeeting::allgather(std::span<const std::byte> mine,
                                                    const std::string& activity,
                                                    const collectives::StartTrouble& trouble,
                                                    const Clock& clock, Instant deadline) {
  if (store_ == nullptr) return Status::error(Code::kClosed, "the meeting of the ranks is over");
  begin_round(activity);
  MeetingPart part{
      round_, patience_of(deadline - clock.now()), trouble, {mine.begin(), mine.end()}};
  auto all =
      plan_.rank == 0 ? collect(std::move(part), clock) : send_and_receive(part, clock, deadline);
  if (!all.ok()) store_.reset();
  ++round_;
  return all;
}

Status StoreMeeting::begin(const Clock& clock, Instant deadline) {
  RONDE_ASSIGN_OR_RETURN(const auto nonce, base::make_nonce());
  // A hello and random bytes behind it.
  Bytes mine = encode(own_hello());
  mine.insert(mine.end(), nonce.begin(), nonce.end());
  RONDE_ASSIGN_OR_RETURN(auto all, allgather(mine, kActivity, {}, clock, deadline));
  const Bytes first = all.front();
  for (Bytes& bytes : all) bytes.resize(bytes.size() - std::min(bytes.size(), nonce.size()));
  RONDE_RETURN_IF_ERROR(take_hellos(all));
  job_ = base::hex_of(std::span(first).last(nonce.size())) + '/';
  return {};
}

}  // namespace

Result<std::unique_ptr<collectives::Meeting>> meet_over(std::shared_ptr<Store> store,
                                                        std::int32_t rank, std::int32_t size,
                                                        const Clock& clock, Instant deadline) {
  MeetingPlan plan;
  plan.rank = rank;
  plan.size = size;
  auto meeting = std::make_unique<StoreMeeting>(std::move(store), std::move(plan));
  RONDE_RETURN_IF_ERROR(meeting->begin(clock, deadline));
  return std::unique_ptr<collectives::Meeting>(std::move(meeting));
}

}  // namespace ronde::runtime
