// SPDX-License-Identifier: Apache-2.0
// The two ends of a byte stream: the writer's queue of what does not fit the ring, and the reader's
// assembly of messages, which trusts nothing that lies on the board.
#include "collectives/board/byte_stream.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

namespace ronde::collectives {

namespace {

using base::Code;
using base::narrow;
using base::Result;
using base::Status;

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
// A reader allocates memory as bytes arrive, at most this much ahead, since a length on the board
// may be corrupt.
constexpr std::size_t kGrowth = std::size_t{1} << 20;

Status corrupt(const std::string& what) {
  return Status::error(Code::kInternal,
                       "a stream on the board is corrupt: " + what +
                           "; another process wrote over shared memory, restart the job");
}

}  // namespace

StreamWriter::StreamWriter(StreamWriterWords* words, std::span<StreamReaderWords> readers,
                           std::span<std::byte> ring)
    : words_(words),
      readers_(readers),
      ring_(ring),
      written_(words->written.load(std::memory_order_acquire)),
      attached_(readers.size(), true) {}

Status StreamWriter::post(std::span<const std::byte> message) { return post(message, {}); }

Status StreamWriter::post(std::span<const std::byte> head, std::span<const std::byte> rest) {
  const std::uint64_t length = head.size() + rest.size();
  if (length > kLongestMessage) {
    return Status::error(Code::kInvalidArgument, "a control message of " + std::to_string(length) +
                                                     " bytes is longer than " +
                                                     std::to_string(kLongestMessage));
  }
  // A queue that is never quite drained must not grow for ever at its front.
  if (backlog_begin_ > kGrowth && backlog_begin_ > backlog_.size() / 2) {
    backlog_.erase(backlog_.begin(), backlog_.begin() + narrow<std::ptrdiff_t>(backlog_begin_));
    backlog_begin_ = 0;
  }
  reserve(length);
  std::array<std::byte, kLengthBytes> header;
  std::memcpy(header.data(), &length, kLengthBytes);
  backlog_.insert(backlog_.end(), header.begin(), header.end());
  backlog_.insert(backlog_.end(), head.begin(), head.end());
  backlog_.insert(backlog_.end(), rest.begin(), rest.end());
  return flush().status();
}

Result<bool> StreamWriter::try_post(std::span<const std::byte> head,
                                    std::span<const std::byte> rest) {
  const std::uint64_t length = head.size() + rest.size();
  RONDE_ASSIGN_OR_RETURN(const bool flushed, flush());
  if (!flushed) return false;
  RONDE_ASSIGN_OR_RETURN(auto free, room());
  if (free < kLengthBytes + length && !waits_) {
    words_->waiting.store(1, std::memory_order_seq_cst);
    waits_ = true;
    RONDE_ASSIGN_OR_RETURN(free, room());  // a reader may not have seen the word
  }
  if (free < kLengthBytes + length) return false;
  put(std::as_bytes(std::span(&length, 1)));
  put(head);
  put(rest);
  publish();
  if (std::exchange(waits_, false)) words_->waiting.store(0, std::memory_order_seq_cst);
  return true;
}

std::uint64_t StreamWriter::straight_bytes() const {
  const std::uint64_t run = ring_.size() - written_ % ring_.size();
  return run - std::min<std::uint64_t>(run, kLengthBytes);
}

void StreamWriter::put(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::uint64_t at = written_ % ring_.size();
    const std::uint64_t run = std::min<std::uint64_t>(bytes.size(), ring_.size() - at);
    std::memcpy(ring_.data() + at, bytes.data(), run);
    written_ += run;
    bytes = bytes.subspan(run);
  }
}

void StreamWriter::publish() {
  words_->written.store(written_, std::memory_order_seq_cst);
  added_ = true;
}

void StreamWriter::reserve(std::size_t message_bytes) {
  const std::size_t needed = backlog_.size() + kLengthBytes + message_bytes;
  if (needed > backlog_.capacity()) backlog_.reserve(std::max(needed, 2 * backlog_.capacity()));
}

// Returns how many bytes the slowest attached reader leaves free.
Result<std::uint64_t> StreamWriter::room() {
  std::uint64_t used = 0;
  for (std::size_t reader = 0; reader < readers_.size(); ++reader) {
    if (!attached_[reader]) continue;
    const std::uint64_t behind =
        written_ - readers_[reader].consumed.load(std::memory_order_seq_cst);
    if (behind > ring_.size()) {
      return corrupt("reader " + std::to_string(reader) + " is " + std::to_string(behind) +
                     " bytes behind in a ring of " + std::to_string(ring_.size()));
    }
    used = std::max(used, behind);
  }
  return ring_.size() - used;
}

void StreamWriter::write_some(std::uint64_t bytes) {
  put(std::span(backlog_).subspan(backlog_begin_, bytes));
  backlog_begin_ += bytes;
  publish();
}

Result<bool> StreamWriter::flush() {
  bool announced = false;
  while (backlog_begin_ < backlog_.size()) {
    RONDE_ASSIGN_OR_RETURN(const auto free, room());
    if (free == 0) {
      if (announced) return false;  // room() was read again after the word was set: really full
      words_->waiting.store(1, std::memory_order_seq_cst);
      waits_ = true;
      announced = true;
      continue;
    }
    write_some(std::min<std::uint64_t>(free, backlog_.size() - backlog_begin_));
    announced = false;  // a reader may have answered the announcement already
  }
  backlog_.clear();
  backlog_begin_ = 0;
  // The word is cleared only if it was set: mostly it was not, and a store would cost the readers a
  // cache line.
  if (std::exchange(waits_, false)) words_->waiting.store(0, std::memory_order_seq_cst);
  return true;
}

bool StreamWriter::take_added() { return std::exchange(added_, false); }

base::Bytes StreamWriter::backlog() const {
  return base::Bytes::of_size(backlog_.size() - backlog_begin_);
}

void StreamWriter::detach(int reader) { attached_.at(narrow<std::size_t>(reader)) = false; }

StreamReader::StreamReader(StreamWriterWords* writer_words, StreamReaderWords* words,
                           std::span<const std::byte> ring, Doorbell writer)
    : writer_words_(writer_words),
      words_(words),
      ring_(ring),
      writer_(writer),
      consumed_(words->consumed.load(std::memory_order_acquire)) {}

Result<std::optional<std::span<const std::byte>>> StreamReader::poll() {
  if (complete_) {
    message_.clear();
    if (message_.capacity() > 2 * kGrowth) message_.shrink_to_fit();  // long messages are rare
    complete_ = false;
  }
  const std::uint64_t written = writer_words_->written.load(std::memory_order_seq_cst);
  std::uint64_t available = written - consumed_;
  if (available > ring_.size()) {
    return corrupt(std::to_string(available) + " bytes in a ring of " +
                   std::to_string(ring_.size()));
  }
  const bool moved = available > 0;
  const Status status = take(available);
  if (moved) make_room();
  RONDE_RETURN_IF_ERROR(status);
  if (!complete_) return std::optional<std::span<const std::byte>>();
  return std::optional(std::span<const std::byte>(message_).subspan(kLengthBytes));
}

// The word is read after the cursor was stored, so that reader or writer sees the other (the header
// has the protocol). One ring for each time that the word was set is enough.
void StreamReader::make_room() {
  words_->consumed.store(consumed_, std::memory_order_seq_cst);
  if (writer_words_->waiting.load(std::memory_order_seq_cst) != 0 &&
      writer_words_->waiting.exchange(0, std::memory_order_seq_cst) != 0) {
    writer_.ring();
  }
}

Result<std::optional<std::span<const std::byte>>> StreamReader::poll_in_place() {
  if (in_place_ > 0) {
    consumed_ += std::exchange(in_place_, 0);
    make_room();
  }
  const std::uint64_t available =
      writer_words_->written.load(std::memory_order_seq_cst) - consumed_;
  const std::uint64_t at = consumed_ % ring_.size();
  const bool begins = complete_ || message_.empty();
  if (begins && available >= kLengthBytes && at + kLengthBytes <= ring_.size()) {
    std::uint64_t length = 0;
    std::memcpy(&length, ring_.data() + at, kLengthBytes);
    const bool whole = length <= kLongestMessage && available >= kLengthBytes + length &&
                       at + kLengthBytes + length <= ring_.size();
    if (whole) {
      in_place_ = kLengthBytes + length;
      return std::optional(ring_.subspan(at + kLengthBytes, length));
    }
  }
  return poll();
}

// Reads bytes of one message, at most `available`, until it is complete.
Status StreamReader::take(std::uint64_t available) {
  const std::size_t header_left = kLengthBytes - std::min(kLengthBytes, message_.size());
  if (available < header_left) {
    append(available);
    return {};
  }
  append(header_left);
  available -= header_left;

  std::uint64_t length = 0;
  std::memcpy(&length, message_.data(), kLengthBytes);
  if (length > kLongestMessage) {
    return corrupt("a message of " + std::to_string(length) + " bytes");
  }
  const std::uint64_t left = length + kLengthBytes - message_.size();
  message_.reserve(std::min<std::size_t>(kLengthBytes + length, kGrowth));
  append(std::min(left, available));
  complete_ = message_.size() == length + kLengthBytes;
  return {};
}

void StreamReader::append(std::uint64_t bytes) {
  while (bytes > 0) {
    const std::uint64_t at = consumed_ % ring_.size();
    const std::uint64_t run = std::min(bytes, ring_.size() - at);
    const auto from = ring_.begin() + narrow<std::ptrdiff_t>(at);
    message_.insert(message_.end(), from, from + narrow<std::ptrdiff_t>(run));
    consumed_ += run;
    bytes -= run;
  }
}

}  // namespace ronde::collectives
