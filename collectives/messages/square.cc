// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/square.h"

#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "collectives/messages/ordered_sum.h"
#include "collectives/transport/request_slot.h"

namespace ronde::collectives {
namespace {

using fusion::ByteRange;

// A message out and one in, of one after another the parts of these chunks.
struct Leg {
  int peer_out = 0;
  int peer_in = 0;
  std::vector<int> chunks_out;
  std::vector<int> chunks_in;
  std::byte* out = nullptr;
  std::byte* in = nullptr;
  RequestSlot sending{};
  RequestSlot receiving{};
};

class Square final : public Collective {
 public:
  Square(Transport& transport, Workspace& workspace, OrderedSum arithmetic, int tag,
         SquareKind kind);

  base::Result<StepResult> step() override;

 private:
  // The rank that is some way further round the square.
  [[nodiscard]] int further(int by) const { return (me_ + by) % kSquareRanks; }
  [[nodiscard]] int neighbour() const { return me_ ^ 1; }
  [[nodiscard]] ByteRange all_of(int chunk) const {
    return {0, arithmetic_.view().chunk_bytes(chunk).value()};
  }
  [[nodiscard]] std::int64_t on_wire(int chunk) const {
    return arithmetic_.on_wire(arithmetic_.view().chunk_bytes(chunk)).value();
  }
  [[nodiscard]] std::int64_t on_wire(const std::vector<int>& chunks) const;
  // Where the part of a message begins.
  [[nodiscard]] std::byte* in_part(std::size_t leg, std::size_t index) const;

  void plan_legs();
  base::Status open();
  base::Status send(Leg& leg);
  // What there is to do when the message of a leg has come.
  void take(std::size_t leg);
  void begin_sums();
  void end_sums();
  void copy_out(std::size_t leg);

  Transport& transport_;
  const int me_;
  const OrderedSum arithmetic_;
  const int tag_;
  const bool both_;  // opposite ranks have two whole chunks each: in three steps
  WorkspaceLease memory_;
  std::vector<Leg> legs_;
  bool open_ = false;
  std::size_t taken_ = 0;  // legs whose message has come
};

Square::Square(Transport& transport, Workspace& workspace, OrderedSum arithmetic, int tag,
               SquareKind kind)
    : transport_(transport),
      me_(transport.rank()),
      arithmetic_(std::move(arithmetic)),
      tag_(tag),
      both_(kind == SquareKind::kThreeSteps),
      memory_(workspace) {
  base::check_eq(transport.size(), kSquareRanks, "square: four ranks");
  base::check_eq(arithmetic_.view().chunks(), kSquareRanks, "square: one chunk per rank");
  plan_legs();
}

void Square::plan_legs() {
  const int opposite = further(2);
  const int beside = (neighbour() + 2) % kSquareRanks;  // the neighbour of the opposite rank
  legs_.push_back({.peer_out = further(1),
                   .peer_in = further(3),
                   .chunks_out = {further(1), further(3)},
                   .chunks_in = {me_, opposite}});
  if (both_) {
    legs_.push_back({.peer_out = opposite,
                     .peer_in = opposite,
                     .chunks_out = {opposite, me_, me_},
                     .chunks_in = {me_, opposite, opposite}});
    legs_.push_back({.peer_out = neighbour(),
                     .peer_in = neighbour(),
                     .chunks_out = {me_, opposite},
                     .chunks_in = {neighbour(), beside}});
    return;
  }
  legs_.push_back(
      {.peer_out = opposite, .peer_in = opposite, .chunks_out = {opposite}, .chunks_in = {me_}});
  legs_.push_back({.peer_out = neighbour(),
                   .peer_in = neighbour(),
                   .chunks_out = {me_},
                   .chunks_in = {neighbour()}});
  legs_.push_back({.peer_out = opposite,
                   .peer_in = opposite,
                   .chunks_out = {me_, neighbour()},
                   .chunks_in = {opposite, beside}});
}

std::int64_t Square::on_wire(const std::vector<int>& chunks) const {
  std::int64_t bytes = 0;
  for (const int chunk : chunks) bytes += on_wire(chunk);
  return bytes;
}

std::byte* Square::in_part(std::size_t leg, std::size_t index) const {
  std::byte* at = legs_[leg].in;
  for (std::size_t i = 0; i < index; ++i) at += on_wire(legs_[leg].chunks_in[i]);
  return at;
}

// Every leg has room for what comes, one after another; so the chunk of this rank and that of its
// neighbour, which are sent together, follow each other.
base::Status Square::open() {
  open_ = true;
  std::int64_t room = on_wire(legs_[0].chunks_out) + (both_ ? on_wire(legs_[1].chunks_out) : 0);
  for (const Leg& leg : legs_) room += on_wire(leg.chunks_in);
  if (room == 0) {  // an empty vector
    taken_ = legs_.size();
    return {};
  }
  RONDE_RETURN_IF_ERROR(memory_.acquire(transport_, base::Bytes(room)));
  std::byte* next = memory_.memory();
  for (Leg& leg : legs_) {
    leg.in = next;
    next += on_wire(leg.chunks_in);
  }
  legs_[0].out = next;
  next += on_wire(legs_[0].chunks_out);
  if (both_) {
    legs_[1].out = next;
    legs_[2].out = legs_[1].in;
  } else {
    legs_[1].out = in_part(0, 1);
    legs_[2].out = legs_[1].in;
    legs_[3].out = legs_[1].in;
  }
  std::byte* part = legs_[0].out;
  for (const int chunk : legs_[0].chunks_out) {
    arithmetic_.copy_in(chunk, all_of(chunk), part);
    part += on_wire(chunk);
  }
  RONDE_RETURN_IF_ERROR(send(legs_[0]));
  for (Leg& leg : legs_) {
    const auto bytes = base::narrow<std::size_t>(on_wire(leg.chunks_in));
    if (bytes == 0) continue;
    RONDE_RETURN_IF_ERROR(leg.receiving.receive(transport_, leg.peer_in, tag_, {leg.in, bytes}));
  }
  return {};
}

base::Status Square::send(Leg& leg) {
  const auto bytes = base::narrow<std::size_t>(on_wire(leg.chunks_out));
  if (bytes == 0) return {};
  return leg.sending.send(transport_, leg.peer_out, tag_, {leg.out, bytes});
}

base::Result<StepResult> Square::step() {
  bool any = !open_;
  if (!open_) RONDE_RETURN_IF_ERROR(open());
  while (taken_ < legs_.size()) {
    RequestSlot& receiving = legs_[taken_].receiving;
    const base::Result<bool> arrived = receiving.ended(transport_);
    RONDE_RETURN_IF_ERROR(arrived.status());
    if (receiving.busy()) break;
    take(taken_++);
    if (taken_ < legs_.size()) RONDE_RETURN_IF_ERROR(send(legs_[taken_]));
    any = true;
  }
  bool over = taken_ == legs_.size();
  for (Leg& leg : legs_) {
    const base::Result<bool> left = leg.sending.ended(transport_);
    RONDE_RETURN_IF_ERROR(left.status());
    any |= *left;
    over &= !leg.sending.busy();
  }
  if (!over) return any ? StepResult::kProgress : StepResult::kIdle;
  memory_.nothing_points_here();
  return StepResult::kDone;
}

void Square::take(std::size_t leg) {
  if (leg == 0) {
    begin_sums();
  } else if (leg == 1) {
    end_sums();
  } else {
    copy_out(leg);
  }
}

// The chunk of the opposite rank begins with the one before this rank, and then this one.
void Square::begin_sums() {
  const int opposite = further(2);
  std::byte* const begun = in_part(0, 1);
  arithmetic_.begin_sum(all_of(opposite), begun);
  arithmetic_.run({RingVerb::kReceiveReduceSend, opposite}, all_of(opposite), begun);
  if (!both_) return;
  std::byte* const kept = in_part(0, 0);
  std::byte* next = legs_[1].out;
  std::memcpy(next, begun, base::narrow<std::size_t>(on_wire(opposite)));
  next += on_wire(opposite);
  std::memcpy(next, kept, base::narrow<std::size_t>(on_wire(me_)));
  next += on_wire(me_);
  arithmetic_.copy_in(me_, all_of(me_), next);
}

// In this rank's own chunk the opposite rank's sum comes first, then what the one before has sent,
// and then this one. In the chunk of the opposite rank, what it has sent comes last.
void Square::end_sums() {
  std::byte* const own = in_part(1, 0);
  arithmetic_.add(all_of(me_), own, in_part(0, 0));
  arithmetic_.run({RingVerb::kReceiveReduceCopySend, me_}, all_of(me_), own);
  if (!both_) return;
  const int opposite = further(2);
  std::byte* const theirs = in_part(0, 1);
  arithmetic_.add(all_of(opposite), theirs, in_part(1, 1));
  arithmetic_.add_last(all_of(opposite), theirs, in_part(1, 2));
  arithmetic_.copy_out(opposite, all_of(opposite), theirs);
  // Beside this rank's chunk, to be sent together.
  std::memcpy(in_part(1, 1), theirs, base::narrow<std::size_t>(on_wire(opposite)));
}

void Square::copy_out(std::size_t leg) {
  const std::vector<int>& chunks = legs_[leg].chunks_in;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    arithmetic_.copy_out(chunks[i], all_of(chunks[i]), in_part(leg, i));
  }
}

}  // namespace

std::unique_ptr<Collective> square_allreduce(Transport& transport, Workspace& workspace,
                                             fusion::FusedView view, const Reduction& reduction,
                                             int ranks, int tag, SquareKind kind) {
  return std::make_unique<Square>(transport, workspace,
                                  OrderedSum(std::move(view), reduction, ranks), tag, kind);
}

}  // namespace ronde::collectives
