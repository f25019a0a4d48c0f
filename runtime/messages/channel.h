// SPDX-License-Identifier: Apache-2.0
// The channel from one rank of a host to another: words and a ring of bytes in the sender's arena,
// made when it sends there for the first time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "base/numbers.h"
#include "base/status.h"
#include "collectives/board/board.h"
#include "collectives/board/byte_stream.h"
#include "runtime/messages/record.h"

namespace ronde::runtime {

struct ChannelWords {
  collectives::StreamWriterWords writer;
  collectives::StreamReaderWords reader;
  alignas(collectives::kCacheLinePair) std::atomic<std::uint32_t> revoked{0};
  alignas(collectives::kCacheLinePair) std::atomic<std::uint32_t> reading{0};
  // Bytes of small messages that the receiver has given to its callers.
  std::atomic<std::uint64_t> taken{0};
};

inline constexpr std::size_t kChannelRingBytes = std::size_t{256} << 10;
// The arena aligns to less, so there is room to begin on a pair of cache lines.
inline constexpr std::size_t kChannelBytes =
    sizeof(ChannelWords) + kChannelRingBytes + collectives::kCacheLinePair;

// The words of peer_protocol.h, of a channel and of the rank at its other end.
//
// Thread safety: every function may be called from any thread.
class PeerWords {
 public:
  PeerWords(const collectives::Board& board, std::int32_t other, ChannelWords& words)
      : board_(board), other_(other), words_(words) {}

  [[nodiscard]] bool awaits() const {
    return board_.message_words(other_).awaits.load(std::memory_order_seq_cst) != 0;
  }
  void set_awaits(bool awaits) const {
    board_.message_words(board_.rank()).awaits.store(awaits ? 1 : 0, std::memory_order_seq_cst);
  }
  void ring() const { board_.doorbell(other_).ring(); }
  [[nodiscard]] bool revoked() const { return words_.revoked.load(std::memory_order_seq_cst) != 0; }
  void revoke_word() const { words_.revoked.store(1, std::memory_order_seq_cst); }
  [[nodiscard]] bool reading() const { return words_.reading.load(std::memory_order_seq_cst) != 0; }
  void set_reading(bool reading) const {
    words_.reading.store(reading ? 1 : 0, std::memory_order_seq_cst);
  }
  void pause() const;

 private:
  const collectives::Board& board_;
  const std::int32_t other_;
  ChannelWords& words_;
};

// The sender's end of a way to another rank.
//
// Thread safety: one thread at a time.
class Outgoing {
 public:
  virtual ~Outgoing() = default;

  // Puts a record on its way, with bytes behind it.
  virtual base::Status post(const Record& record, std::span<const std::byte> bytes) = 0;
  // The same with the bytes of a small message, which the receiver takes at its own time.
  virtual base::Status post_message(const Record& record, std::span<const std::byte> bytes) = 0;
  // Whether a small message may go; else it is offered.
  [[nodiscard]] virtual bool takes(std::size_t bytes) const = 0;
  // Whether the receiver, as far as this rank knows, has not taken all small messages.
  [[nodiscard]] virtual bool untaken() const = 0;
  // As post() where there is room now; false: this rank is rung once there is.
  virtual base::Result<bool> try_post(const Record& record, std::span<const std::byte> bytes) = 0;
  // A record with more bytes behind it costs the receiver a copy more.
  [[nodiscard]] virtual std::size_t straight_bytes() const {
    return std::numeric_limits<std::size_t>::max();
  }
  // Goes on with what did not fit.
  virtual base::Status flush() = 0;
  [[nodiscard]] virtual bool full() const = 0;
  // Takes back all offers, for good.
  virtual void revoke() = 0;
  // The receiver has said how much it has taken, where it must say it.
  virtual void on_taken(const Record& /*taken*/) {}
};

// That to a rank of the host, which it rings if it must.
//
// Thread safety: one thread at a time.
class OutgoingChannel final : public Outgoing {
 public:
  // Small messages that the receiver has not taken yet may have so many bytes; what is beyond is
  // offered.
  static constexpr std::uint64_t kMostUntaken = std::uint64_t{1} << 20;

  // `memory`: kChannelBytes of this rank's arena. Tells the receiver.
  static OutgoingChannel make(const collectives::Board& board, std::int32_t to,
                              std::span<std::byte> memory);

  base::Status post(const Record& record, std::span<const std::byte> bytes) override;
  base::Status post_message(const Record& record, std::span<const std::byte> bytes) override {
    sent_ += bytes.size();
    return post(record, bytes);
  }
  [[nodiscard]] bool takes(std::size_t bytes) const override {
    return sent_ - words_->taken.load(std::memory_order_relaxed) + bytes <= kMostUntaken;
  }
  [[nodiscard]] bool untaken() const override {
    return sent_ != words_->taken.load(std::memory_order_relaxed);
  }
  base::Result<bool> try_post(const Record& record, std::span<const std::byte> bytes) override;
  [[nodiscard]] std::size_t straight_bytes() const override;
  base::Status flush() override;
  [[nodiscard]] bool full() const override { return writer_.backlog().value() > 0; }
  void revoke() override;

 private:
  OutgoingChannel(const collectives::Board& board, std::int32_t to, ChannelWords* words,
                  std::span<std::byte> ring)
      : board_(board), to_(to), words_(words), writer_(&words->writer, {&words->reader, 1}, ring) {}
  void announce();

  const collectives::Board& board_;
  std::int32_t to_;
  ChannelWords* words_;
  collectives::StreamWriter writer_;
  std::uint64_t sent_ = 0;
};

// The receiver's end.
//
// Thread safety: one thread at a time, but that words() may be used from any thread.
class IncomingChannel {
 public:
  // The channel from that rank; nothing where there is none yet.
  static std::optional<IncomingChannel> find(const collectives::Board& board, std::int32_t from);

  // The next record; its bytes stay valid until the next poll().
  base::Result<std::optional<Received>> poll();
  // So many bytes of small messages have been given to callers.
  void take(std::size_t bytes) {
    taken_ += bytes;
    words_->taken.store(taken_, std::memory_order_relaxed);
  }
  [[nodiscard]] ChannelWords& words() const { return *words_; }

 private:
  IncomingChannel(ChannelWords* words, collectives::StreamReader reader)
      : words_(words), reader_(std::move(reader)) {}

  ChannelWords* words_;
  collectives::StreamReader reader_;
  std::uint64_t taken_ = 0;
};

}  // namespace ronde::runtime
