// SPDX-License-Identifier: Apache-2.0
// Messages of any length through a fixed ring of bytes on the board: one writer, one or more
// readers that all see every message, each with a cursor of its own. A message is its length (8
// bytes) and its bytes. The writer cuts it wherever the ring is full and the reader puts it
// together again, so it may be larger than the ring. Positions are 64-bit byte counts that are
// never reset.
//
// Data is guarded by the positions (acquire, release). Doorbells are rung in two cases:
//  * the writer's owner rings the readers when take_added() returns true;
//  * a reader rings the writer when it made room and the writer's `waiting` word is set. The writer
//    sets its word and then reads the cursors again, the reader moves its cursor and then reads the
//    word: all four seq_cst, so one of the two sees the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/numbers.h"
#include "base/status.h"
#include "collectives/board/doorbell.h"

namespace ronde::collectives {

// The words of a stream on the board. Writer and readers write to different cache lines.
struct StreamWriterWords {
  alignas(kCacheLinePair) std::atomic<std::uint64_t> written{0};
  alignas(kCacheLinePair) std::atomic<std::uint32_t> waiting{0};
};
struct StreamReaderWords {
  alignas(kCacheLinePair) std::atomic<std::uint64_t> consumed{0};
};

// The most bytes of a message. post() refuses a longer one; a longer length on the board is
// corruption.
inline constexpr std::uint64_t kLongestMessage = std::uint64_t{1} << 30;

// The writing end. It owns a queue of bytes that did not fit; the words and the ring are the
// board's and must outlive it.
//
// Thread safety: used by one thread at a time (the holder of the agent's role).
class StreamWriter {
 public:
  StreamWriter(StreamWriterWords* words, std::span<StreamReaderWords> readers,
               std::span<std::byte> ring);

  // Queues a copy of the message and writes what fits. Queues nothing if memory for it is lacking.
  base::Status post(std::span<const std::byte> message);
  // The same for a message of two parts.
  base::Status post(std::span<const std::byte> head, std::span<const std::byte> rest);
  // The same only where all of it fits now: straight from the caller's memory, with no copy
  // between. After false the reader that makes room rings this rank.
  base::Result<bool> try_post(std::span<const std::byte> head, std::span<const std::byte> rest);
  // A message of so many bytes lies in one piece in the ring, if all before it has been written: a
  // reader takes that one in place.
  [[nodiscard]] std::uint64_t straight_bytes() const;
  // Takes the memory that a post() of so many bytes may need.
  void reserve(std::size_t message_bytes);
  // Writes what fits. Returns true when nothing is left over. After false the next flush() writes
  // the rest, and the reader that makes room rings this rank. Call take_added() either way.
  base::Result<bool> flush();
  // Tells whether bytes were added since the last call: then the caller must ring the readers.
  [[nodiscard]] bool take_added();
  [[nodiscard]] base::Bytes backlog() const;
  // Stops waiting for a reader that has left for good.
  void detach(int reader);

 private:
  [[nodiscard]] base::Result<std::uint64_t> room();
  void write_some(std::uint64_t bytes);
  void put(std::span<const std::byte> bytes);
  void publish();

  StreamWriterWords* words_;
  std::span<StreamReaderWords> readers_;
  std::span<std::byte> ring_;
  std::uint64_t written_;
  std::vector<bool> attached_;
  std::vector<std::byte> backlog_;
  std::size_t backlog_begin_ = 0;  // what lies before it has been written
  bool added_ = false;
  bool waits_ = false;  // the `waiting` word was set, and not yet cleared
};

// Thread safety: used by one thread at a time.
class StreamReader {
 public:
  // poll() rings `writer` when the writer waits for room that this reader made.
  StreamReader(StreamWriterWords* writer_words, StreamReaderWords* words,
               std::span<const std::byte> ring, Doorbell writer);

  // The next complete message, or nullopt. The bytes stay valid until the next poll().
  base::Result<std::optional<std::span<const std::byte>>> poll();
  // The same, but a message that lies there as a whole and in one piece is not copied: its place in
  // the ring is the writer's again at the next call, which must come soon.
  base::Result<std::optional<std::span<const std::byte>>> poll_in_place();

 private:
  void make_room();
  base::Status take(std::uint64_t available);
  void append(std::uint64_t bytes);

  StreamWriterWords* writer_words_;
  StreamReaderWords* words_;
  std::span<const std::byte> ring_;
  Doorbell writer_;
  std::uint64_t consumed_;
  std::vector<std::byte> message_;  // its length in front, then what has arrived
  bool complete_ = false;           // message_ was handed out by the last poll()
  std::uint64_t in_place_ = 0;      // bytes of the ring that were handed out by the last one
};

}  // namespace ronde::collectives
