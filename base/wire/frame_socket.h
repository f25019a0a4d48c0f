// SPDX-License-Identifier: Apache-2.0
// A connection between two processes: whole frames over a stream socket, without ever blocking. A
// frame on the wire is its length (32 bits, little-endian) and its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/process/file_descriptor.h"
#include "base/status.h"

namespace ronde::base {

// A connection to a process of another host, or of this one.
struct LinkEnd {
  std::int32_t host = -1;  // the host at the other end, between leaders
  std::string peer;        // "host 2 (node7, 10.0.0.3:4711)", for error texts
  FileDescriptor socket;   // connected, non-blocking
};

// Finds the frames in a stream of bytes that arrives in pieces. Pure; owns its buffer.
//
// Thread safety: none; one thread uses it.
class FrameReader {
 public:
  static constexpr std::size_t kLongestFrame = std::size_t{64} << 20U;

  // Returns room for the bytes that arrive next, never empty. Frames that next() has returned are
  // no longer valid afterwards.
  std::span<std::byte> room();
  // Tells the reader that so many bytes have arrived in that room.
  void arrived(std::size_t bytes) { end_ += bytes; }
  // The next whole frame, if there is one. No frame is empty or longer than kLongestFrame; after
  // such a length the stream cannot be parsed any more, and every call fails (kTransport).
  Result<std::optional<std::span<const std::byte>>> next();
  // Whether a frame has arrived in part.
  [[nodiscard]] bool inside_frame() const { return begin_ != end_; }
  // The bytes of memory that the reader holds: bounded by what has arrived, not by the length in a
  // frame's head.
  [[nodiscard]] std::size_t capacity() const { return buffer_.size(); }

 private:
  // How much one read takes at most while frames are small, so that many cost one system call.
  static constexpr std::size_t kLeastBuffer = std::size_t{64} << 10U;

  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0;  // of the bytes that have arrived and were not returned yet
  std::size_t end_ = 0;
};

// One connection; owns its socket and the bytes that wait to be sent. No function blocks.
//
// Thread safety: none; one thread uses it.
class FrameSocket {
 public:
  static constexpr std::size_t kLongestFrame = FrameReader::kLongestFrame;

  explicit FrameSocket(LinkEnd end) : end_(std::move(end)) {}

  [[nodiscard]] int host() const { return end_.host; }
  [[nodiscard]] const std::string& peer() const { return end_.peer; }
  [[nodiscard]] int fd() const { return end_.socket.get(); }

  // Queues a frame and writes what the socket takes. Once the socket is full this makes no system
  // call: flush(), to be called when the socket can be written (POLLOUT), sends the rest, and
  // frames that were queued meanwhile go out in one write.
  //
  // A connection that has ended is no error here: frames are dropped from then on, and receive()
  // reports the end, after it has returned the last frames of the other end.
  Status send(std::span<const std::byte> frame);
  // Queues a frame without writing.
  Status queue(std::span<const std::byte> frame);
  // Writes queued bytes as far as the socket takes them. True: nothing is left.
  Result<bool> flush();
  [[nodiscard]] bool backlogged() const { return written_ != out_.size(); }

  // The next whole frame, or nothing when the socket has no more for now. The bytes are valid until
  // the next call. After an error (kTransport) every call returns it.
  Result<std::optional<std::span<const std::byte>>> receive();

  // Whether receive() has reached the end of the stream, which it does after all whole frames.
  [[nodiscard]] bool closed() const { return closed_; }
  // The reason as a text; empty while the connection is open.
  [[nodiscard]] const std::string& close_reason() const { return close_reason_; }

 private:
  // Reads once. True: something arrived.
  Result<bool> read_some();
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

}  // namespace ronde::base
