// SPDX-License-Identifier: Apache-2.0
#include "runtime/timeline/trace_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

namespace ronde::runtime {

using base::FileDescriptor;
using base::Result;
using base::Status;

namespace {

constexpr std::string_view kHead = "[\n";
// Between two events, and behind the last one.
constexpr std::string_view kComma = ",\n";
constexpr std::string_view kTail = "\n]\n";

constexpr std::size_t kMostWritten = 4096;
// What a killed process has left behind the last whole event is looked for in so much of the end.
constexpr std::int64_t kMostTorn = std::int64_t{64} << 10;

// Another process has the file for the time of a write; one that is stopped meanwhile has it for
// long.
constexpr auto kLockPatience = std::chrono::seconds(1);
constexpr auto kLockPause = std::chrono::microseconds(200);

// Gives the lock of a file back.
class Unlock {
 public:
  explicit Unlock(int file) : file_(file) {}
  ~Unlock() { ::flock(file_, LOCK_UN); }
  Unlock(const Unlock&) = delete;
  Unlock& operator=(const Unlock&) = delete;

 private:
  const int file_;
};

}  // namespace

Result<TraceFile> TraceFile::open(const std::string& path, std::string_view first_line) {
  FileDescriptor descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644));
  const int error_number = errno;
  TraceFile file(path, std::move(descriptor));
  if (!file.file_.valid()) return file.failed("cannot be opened", error_number);
  struct stat about {};
  if (::fstat(file.file_.get(), &about) != 0) return file.failed("cannot be looked at", errno);
  file.regular_ = S_ISREG(about.st_mode);
  RONDE_RETURN_IF_ERROR(file.lock());
  const Unlock unlock(file.file_.get());
  RONDE_RETURN_IF_ERROR(file.begin(first_line));
  return file;
}

Status TraceFile::failed(const std::string& what, int error_number) const {
  return Status::system("the timeline '" + path_ + "' " + what, error_number);
}

// The lock is the file's, not the process's: it also keeps engines of one process apart.
Status TraceFile::lock() const {
  if (!regular_) return {};
  const auto deadline = std::chrono::steady_clock::now() + kLockPatience;
  while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return failed("cannot be locked", errno);
    if (std::chrono::steady_clock::now() >= deadline) {
      return Status::error(base::Code::kSystem, "the timeline '" + path_ +
                                                    "' is locked by another process, which may be "
                                                    "stopped: name another file");
    }
    std::this_thread::sleep_for(kLockPause);
  }
  return {};
}

// Leaves what this job has written before; the file of another job is begun anew.
Status TraceFile::begin(std::string_view first_line) {
  const std::string head = std::string(kHead) + std::string(first_line);
  std::string found(head.size(), '\0');
  const ssize_t read = regular_ ? ::pread(file_.get(), found.data(), found.size(), 0) : 0;
  if (read < 0) return failed("cannot be read", errno);
  if (static_cast<std::size_t>(read) == found.size() && found == head) return {};
  if (regular_ && ::ftruncate(file_.get(), 0) != 0) return failed("cannot be emptied", errno);
  return write(head + std::string(kTail), 0);
}

Status TraceFile::append(std::string_view lines) {
  if (lines.empty()) return {};
  RONDE_RETURN_IF_ERROR(lock());
  const Unlock unlock(file_.get());
  RONDE_ASSIGN_OR_RETURN(auto end, find_end());
  std::string piece;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    piece += kComma;
    piece += line;
    const std::size_t next = std::min(lines.find('\n'), lines.size());
    if (!lines.empty() && piece.size() + kComma.size() + next + kTail.size() <= kMostWritten) {
      continue;
    }
    const auto size = static_cast<std::int64_t>(piece.size());
    RONDE_RETURN_IF_ERROR(write(piece + std::string(kTail), end));
    end += size;
    piece.clear();
  }
  return {};
}

Result<std::int64_t> TraceFile::find_end() const {
  if (!regular_) return 0;
  struct stat about {};
  if (::fstat(file_.get(), &about) != 0) return failed("cannot be looked at", errno);
  const auto size = static_cast<std::int64_t>(about.st_size);
  const std::int64_t from = std::max<std::int64_t>(0, size - kMostTorn);
  std::string last(static_cast<std::size_t>(std::min(size, kMostTorn)), '\0');
  // As a rule the end is whole, and so these bytes are enough.
  std::string tail(kTail.size(), '\0');
  const auto tail_size = static_cast<std::int64_t>(kTail.size());
  if (size >= tail_size &&
      ::pread(file_.get(), tail.data(), tail.size(), size - tail_size) == tail_size &&
      tail == kTail) {
    return size - tail_size;
  }
  if (::pread(file_.get(), last.data(), last.size(), from) != static_cast<ssize_t>(last.size())) {
    return failed("cannot be read", errno);
  }
  // Cut off behind the last line that has its end.
  const std::size_t line_end = last.rfind('\n');
  if (line_end == std::string::npos || from + static_cast<std::int64_t>(line_end) < 2) {
    return Status::error(
        base::Code::kSystem,
        "the timeline '" + path_ + "' has been changed by another program: name another file");
  }
  const std::size_t cut = last[line_end - 1] == ',' ? line_end - 1 : line_end;
  const std::int64_t end = from + static_cast<std::int64_t>(cut);
  if (::ftruncate(file_.get(), end) != 0) return failed("cannot be cut", errno);
  return end;
}

Status TraceFile::write(std::string_view bytes, std::int64_t at) const {
  while (!bytes.empty()) {
    const ssize_t written = regular_ ? ::pwrite(file_.get(), bytes.data(), bytes.size(), at)
                                     : ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failed("cannot be written", errno);
    if (written == 0) return failed("cannot be written", ENOSPC);
    bytes.remove_prefix(static_cast<std::size_t>(written));
    at += written;
  }
  return {};
}

}  // namespace ronde::runtime
