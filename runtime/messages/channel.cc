// SPDX-License-Identifier: Apache-2.0
// Making a channel, finding it, and its records.
#include "runtime/messages/channel.h"

#include <sched.h>

#include <algorithm>
#include <new>
#include <utility>

#include "runtime/messages/peer_protocol.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;
using collectives::kCacheLinePair;

namespace {

std::size_t on_a_line(std::size_t place) {
  return (place + kCacheLinePair - 1) / kCacheLinePair * kCacheLinePair;
}

std::span<std::byte> ring_of(ChannelWords* words) {
  return {reinterpret_cast<std::byte*>(words + 1), kChannelRingBytes};
}

}  // namespace

void PeerWords::pause() const { ::sched_yield(); }

OutgoingChannel OutgoingChannel::make(const collectives::Board& board, std::int32_t to,
                                      std::span<std::byte> memory) {
  const std::span<std::byte> arena = board.arena(board.rank());
  const auto place = on_a_line(static_cast<std::size_t>(memory.data() - arena.data()));
  auto* const words = new (arena.data() + place) ChannelWords;
  OutgoingChannel channel(board, to, words, ring_of(words));
  board.message_place(board.rank(), to).store(place + 1, std::memory_order_seq_cst);
  collectives::MessageWords& theirs = board.message_words(to);
  theirs.news.fetch_add(1, std::memory_order_seq_cst);
  return channel;
}

Status OutgoingChannel::post(const Record& record, std::span<const std::byte> bytes) {
  const auto posted = writer_.try_post(bytes_of(record), bytes);
  const Status status =
      posted.ok() && !*posted ? writer_.post(bytes_of(record), bytes) : posted.status();
  announce();
  return status;
}

Result<bool> OutgoingChannel::try_post(const Record& record, std::span<const std::byte> bytes) {
  const auto posted = writer_.try_post(bytes_of(record), bytes);
  announce();
  return posted;
}

// Up to the end of the ring, where the next one begins again; a crumb is not worth a record.
std::size_t OutgoingChannel::straight_bytes() const {
  constexpr std::size_t kCrumb = 4096;
  return std::max(kCrumb + sizeof(Record), writer_.straight_bytes()) - sizeof(Record);
}

Status OutgoingChannel::flush() {
  const Status flushed = writer_.flush().status();
  announce();
  return flushed;
}

void OutgoingChannel::announce() {
  if (!writer_.take_added()) return;
  PeerWords words(board_, to_, *words_);
  PeerProtocol(words).announce(full());
}

void OutgoingChannel::revoke() {
  PeerWords words(board_, to_, *words_);
  PeerProtocol(words).revoke();
}

std::optional<IncomingChannel> IncomingChannel::find(const collectives::Board& board,
                                                     std::int32_t from) {
  const std::uint64_t place =
      board.message_place(from, board.rank()).load(std::memory_order_seq_cst);
  if (place == 0) return std::nullopt;
  const std::span<std::byte> arena = board.arena(from);
  auto* const words = std::launder(reinterpret_cast<ChannelWords*>(arena.data() + (place - 1)));
  return IncomingChannel(words, collectives::StreamReader(&words->writer, &words->reader,
                                                          ring_of(words), board.doorbell(from)));
}

Result<std::optional<Received>> IncomingChannel::poll() {
  RONDE_ASSIGN_OR_RETURN(const auto message, reader_.poll_in_place());
  if (!message) return std::optional<Received>();
  std::optional<Received> received = read_record(*message);
  if (received) return received;
  return Status::error(Code::kInternal,
                       "a record of a message on the board is corrupt: another process wrote over "
                       "shared memory, restart the job");
}

}  // namespace ronde::runtime
