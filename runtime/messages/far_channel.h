// SPDX-License-Identifier: Apache-2.0
// Messages between ranks of different hosts. Their records (record.h) travel in frames, which the
// leaders of the hosts pass on from one rank to the other: to the root, unless they meet the host
// of that rank before, and down from there. On a host they come as decisions do, which all its
// ranks read: each is woken, and one that is stopped holds the others up once that ring is full.
// All frames of one rank to another come in the order in which they were sent, and before what the
// coordinator tells of their sender later.
//
//   small:   sender    kBytes, with the bytes; the send is done.
//   large:   sender    kOffer: type and length, no bytes.
//            receiver  once it is matched, and fewer than kMostGranted others are on their way:
//                      kSend; or kRefused: it does not fit, or this rank has closed its engine.
//            sender    kChunk, again and again; it is done after the last, as is the receiver.
//   both:    receiver  kTaken from time to time: how much of it it has taken.
//
// So what is in flight is bounded. A sender keeps at most kMostUntaken bytes of small messages, and
// what is beyond is offered; and kWindow chunks to each rank. A receiver gets kMostGranted large
// messages at a time. Whoever has been granted a message sends it without waiting for another one,
// so no circle of ranks waits for room.
//
//   late:    asker     kAsk to the leader of the other rank's host, before it says who is late.
//            leader    kState: who is stopped there. Where no answer comes, that leader or the line
//                      to it stands still.
// Where nobody is found, whoever fails the job waits a while longer, so that one who knows more
// comes first.
//
// Who has closed its engine: the coordinator tells all ranks, first that a rank sends no message
// any more (DepartedDecision), and that it takes none either (its `left`). kClosing says the first,
// too, to those to which it has sent. In a process set what the coordinator tells may overtake the
// very first frame of a rank, so it counts after kFarGrace. A leader passes frames on until all
// ranks have left, for RONDE_SHUTDOWN_TIMEOUT_SECONDS at most.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/messages/channel.h"
#include "runtime/messages/record.h"

namespace ronde::runtime {

inline constexpr std::size_t kMostGranted = 8;
inline constexpr base::Nanoseconds kFarGrace = std::chrono::seconds(1);

// The sender's end.
//
// Thread safety: one thread at a time.
class FarChannel final : public Outgoing {
 public:
  static constexpr std::uint64_t kMostUntaken = std::uint64_t{1} << 20;
  static constexpr std::uint64_t kWindow = 8;

  // Sends a frame to this rank of the job, or of the set.
  using Send =
      std::function<base::Status(std::int32_t to, const Record&, std::span<const std::byte>)>;
  FarChannel(std::int32_t to, const Send& send) : to_(to), send_(send) {}

  base::Status post(const Record& record, std::span<const std::byte> bytes) override {
    return send_(to_, record, bytes);
  }
  base::Status post_message(const Record& record, std::span<const std::byte> bytes) override {
    sent_ += cost(bytes.size());
    return post(record, bytes);
  }
  [[nodiscard]] bool takes(std::size_t bytes) const override {
    return sent_ - taken_ + cost(bytes) <= kMostUntaken;
  }
  [[nodiscard]] bool untaken() const override { return sent_ != taken_; }
  base::Result<bool> try_post(const Record& chunk, std::span<const std::byte> bytes) override {
    if (chunks_ - taken_chunks_ >= kWindow) return false;
    ++chunks_;
    RONDE_RETURN_IF_ERROR(post(chunk, bytes));
    return true;
  }
  base::Status flush() override { return {}; }
  [[nodiscard]] bool full() const override { return false; }
  void revoke() override {}
  void on_taken(const Record& taken) override {
    taken_ = taken.address;
    taken_chunks_ = taken.id;
  }
  // What a small message of so many bytes counts, so that those of 0 bytes have an end, too.
  [[nodiscard]] static std::uint64_t cost(std::size_t bytes) { return sizeof(Record) + bytes; }

 private:
  const std::int32_t to_;
  const Send& send_;
  std::uint64_t sent_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t chunks_ = 0;
  std::uint64_t taken_chunks_ = 0;
};

// What a receiver has taken of one sender.
//
// Thread safety: one thread at a time.
class FarTaken {
 public:
  // True: tell the sender now.
  [[nodiscard]] bool take_message(std::size_t bytes) {
    taken_ += FarChannel::cost(bytes);
    return taken_ - told_ >= FarChannel::kMostUntaken / 4;
  }
  [[nodiscard]] bool take_chunk() { return ++chunks_ - told_chunks_ >= FarChannel::kWindow / 4; }
  [[nodiscard]] Record tell() {
    told_ = taken_;
    told_chunks_ = chunks_;
    return {.kind = RecordKind::kTaken, .id = chunks_, .address = taken_};
  }

 private:
  std::uint64_t taken_ = 0;
  std::uint64_t told_ = 0;
  std::uint64_t chunks_ = 0;
  std::uint64_t told_chunks_ = 0;
};

}  // namespace ronde::runtime
