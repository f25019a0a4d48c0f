// SPDX-License-Identifier: Apache-2.0
// A connection between the leaders of two hosts: whole frames over a stream socket, without ever
// blocking. A frame on the wire is its length (32 bits, little-endian) and its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/file_descriptor.h"

namespace ronde::runtime {

// What the meeting of the leaders hands over.
struct LinkEnd {
  std::int32_t host = -1;              // at the other end
  std::string peer;                    // "host 2 (node7, 10.0.0.3:4711)", for error texts
  collectives::FileDescriptor socket;  // connected, non-blocking
};

// The frames in a stream of bytes that arrives in pieces. Pure.
//
// Thread safety: used by one thread.
class FrameReader {
 public:
  static constexpr std::size_t kLongestFrame = std::size_t{64} << 20U;

  // Room for what arrives next, never empty; what next() gave is gone afterwards.
  std::span<std::byte> room();
  // So many bytes have arrived in that room.
  void arrived(std::size_t bytes) { end_ += bytes; }
  // The next whole frame, if there is one. No frame is empty or longer than kLongestFrame; after
  // such a length the stream cannot be understood any more, and every call fails (kTransport).
  base::Result<std::optional<std::span<const std::byte>>> next();
  // Whether a frame has arrived in part.
  [[nodiscard]] bool inside_frame() const { return begin_ != end_; }
  // The memory it holds: bounded by what has arrived, not by what a length claims.
  [[nodiscard]] std::size_t capacity() const { return buffer_.size(); }

 private:
  // What one read takes at most while frames are small: many of them cost one system call.
  static constexpr std::size_t kLeastBuffer = std::size_t{64} << 10U;

  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0;  // of what has arrived and was not given out
  std::size_t end_ = 0;
};

// Thread safety: used by one thread.
class LeaderLink {
 public:
  static constexpr std::size_t kLongestFrame = FrameReader::kLongestFrame;

  explicit LeaderLink(LinkEnd end) : end_(std::move(end)) {}

  [[nodiscard]] int host() const { return end_.host; }
  [[nodiscard]] const std::string& peer() const { return end_.peer; }
  [[nodiscard]] int fd() const { return end_.socket.get(); }

  // Queues a frame and writes what the socket takes. Once the socket is full this makes no system
  // call: the rest goes out by flush(), to be called when the socket can be written (POLLOUT), and
  // frames that were queued meanwhile go out in one write.
  //
  // That the connection has ended is no error here: frames are dropped from then on, and receive()
  // finds out, after it has given out what the other end said last.
  base::Status send(std::span<const std::byte> frame);
  // Without writing.
  base::Status queue(std::span<const std::byte> frame);
  // True: nothing is left.
  base::Result<bool> flush();
  [[nodiscard]] bool backlogged() const { return written_ != out_.size(); }

  // The next whole frame, or nothing when the socket has no more for now. The bytes are valid until
  // the next call. An error (kTransport) is for ever.
  base::Result<std::optional<std::span<const std::byte>>> receive();

  // Whether receive() has come to the end of the stream. Whole frames before it come first.
  [[nodiscard]] bool closed() const { return closed_; }
  // In words; empty while the link is open.
  [[nodiscard]] const std::string& close_reason() const { return close_reason_; }

 private:
  // One read. True: something arrived.
  base::Result<bool> read_some();
  void close_with(std::string reason);
  void drop_output();

  LinkEnd end_;
  FrameReader reader_;
  std::vector<std::byte> out_;
  std::size_t written_ = 0;  // of out_
  bool full_ = false;        // the socket has refused bytes since the last flush that wrote all
  bool broken_output_ = false;
  std::string write_error_;
  bool closed_ = false;
  std::string close_reason_;
};

}  // namespace ronde::runtime
