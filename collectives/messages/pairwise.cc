// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/pairwise.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace ronde::collectives {
namespace {

using fusion::ByteRange;

template <class Block>
Block part(const Block& block, const ByteRange& range) {
  return block.subspan(static_cast<std::size_t>(range.begin),
                       static_cast<std::size_t>(range.length()));
}

template <class Blocks>
auto& block_of(const Blocks& blocks, int rank) {
  return blocks[static_cast<std::size_t>(rank)];
}

}  // namespace

PairwiseExchange::PairwiseExchange(Transport& transport, Workspace& workspace, Inputs inputs,
                                   Outputs outputs, base::Bytes segment, int tag)
    : transport_(transport),
      memory_(workspace),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      tag_(tag) {
  base::check_eq(std::ssize(inputs_), transport.size(), "all-to-all: one input per rank");
  base::check_eq(std::ssize(outputs_), transport.size(), "all-to-all: one output per rank");
  base::check_eq(block_of(inputs_, transport.rank()).size(),
                 block_of(outputs_, transport.rank()).size(), "all-to-all: this rank's own block");
  std::size_t largest = 0;
  for (const auto& block : inputs_) largest = std::max(largest, block.size());
  for (const auto& block : outputs_) largest = std::max(largest, block.size());
  segment_ = segment_length(segment, base::Bytes::of_size(largest));
}

base::Status PairwiseExchange::start() {
  started_ = true;
  if (transport_.size() == 1) return {};
  RONDE_RETURN_IF_ERROR(
      memory_.acquire(transport_, base::Bytes(2 * kSegmentsInFlight * segment_.value())));
  std::byte* next = memory_.memory();
  for (Flights* flights : {&sends_, &receives_}) {
    for (Flight& flight : *flights) {
      flight.buffer = next;
      next += segment_.value();
    }
  }
  return {};
}

int PairwiseExchange::rank_after(int distance) const {
  return (transport_.rank() + distance) % transport_.size();
}

int PairwiseExchange::rank_before(int distance) const {
  return (transport_.rank() - distance + transport_.size()) % transport_.size();
}

base::Result<StepResult> PairwiseExchange::step() {
  if (!started_) RONDE_RETURN_IF_ERROR(start());
  // Receives are posted first: a message whose receive is posted needs no memory of the transport.
  RONDE_RETURN_IF_ERROR(post_receives());
  RONDE_ASSIGN_OR_RETURN(const auto sent, send_next());
  RONDE_ASSIGN_OR_RETURN(const auto received, receive_next());
  const bool copied = copy_own();

  const auto busy = [](const Flight& flight) { return flight.request.busy(); };
  if (sent || received || copied) return StepResult::kProgress;
  // Nothing happened, so either a request is outstanding, or nothing is left to do.
  if (std::any_of(sends_.begin(), sends_.end(), busy) || taken_ < posted_) return StepResult::kIdle;
  memory_.mark_unreferenced();
  return StepResult::kDone;
}

template <class Blocks, class Peer>
ByteRange PairwiseExchange::range_at(Cursor& cursor, const Blocks& blocks, Peer peer) const {
  for (; cursor.distance < transport_.size(); ++cursor.distance, cursor.segment = 0) {
    const auto bytes = base::Bytes::of_size(block_of(blocks, peer(cursor.distance)).size());
    const ByteRange range = segment_of(bytes, segment_, cursor.segment);
    if (range.length() > 0) return range;
  }
  return {};
}

bool PairwiseExchange::copy_own() {
  const auto& from = block_of(inputs_, transport_.rank());
  const ByteRange range = segment_of(base::Bytes::of_size(from.size()), segment_, own_segment_);
  if (range.length() == 0) return false;
  std::memcpy(part(block_of(outputs_, transport_.rank()), range).data(), part(from, range).data(),
              static_cast<std::size_t>(range.length()));
  ++own_segment_;
  return true;
}

base::Result<bool> PairwiseExchange::send_next() {
  bool any = false;
  Flight* idle = nullptr;
  for (Flight& flight : sends_) {
    RONDE_ASSIGN_OR_RETURN(const auto ended, flight.request.ended(transport_));
    any |= ended;
    if (!flight.request.busy()) idle = &flight;
  }
  if (idle == nullptr) return any;
  const ByteRange range =
      range_at(sending_, inputs_, [this](int distance) { return rank_after(distance); });
  if (range.length() == 0) return any;
  const int peer = rank_after(sending_.distance);
  const auto bytes = static_cast<std::size_t>(range.length());
  std::memcpy(idle->buffer, part(block_of(inputs_, peer), range).data(), bytes);
  RONDE_RETURN_IF_ERROR(idle->request.send(transport_, peer, tag_, {idle->buffer, bytes}));
  ++sending_.segment;
  return true;
}

base::Status PairwiseExchange::post_receives() {
  for (; posted_ < taken_ + kSegmentsInFlight; ++posted_, ++receiving_.segment) {
    const ByteRange range =
        range_at(receiving_, outputs_, [this](int distance) { return rank_before(distance); });
    if (range.length() == 0) return {};
    Flight& flight = receives_[static_cast<std::size_t>(posted_ % kSegmentsInFlight)];
    flight.peer = rank_before(receiving_.distance);
    flight.range = range;
    RONDE_RETURN_IF_ERROR(flight.request.receive(
        transport_, flight.peer, tag_, {flight.buffer, static_cast<std::size_t>(range.length())}));
  }
  return {};
}

base::Result<bool> PairwiseExchange::receive_next() {
  if (taken_ == posted_) return false;
  Flight& flight = receives_[static_cast<std::size_t>(taken_ % kSegmentsInFlight)];
  base::Result<bool> arrived = flight.request.ended(transport_);
  if (!arrived.ok() || !*arrived) return arrived;
  std::memcpy(part(block_of(outputs_, flight.peer), flight.range).data(), flight.buffer,
              static_cast<std::size_t>(flight.range.length()));
  ++taken_;
  return true;
}

}  // namespace ronde::collectives
