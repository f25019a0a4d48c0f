// SPDX-License-Identifier: Apache-2.0
// Named pipes are used for the ranks, since mpirun passes on no descriptors but the first three.
#include "launcher/streams.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>

namespace ronde::launcher {

namespace {

using base::Status;

constexpr std::size_t kReadBytes = std::size_t{64} << 10U;

}  // namespace

Streams::~Streams() {
  close_error_end();
  for (const Source& source : sources_) {
    if (source.fd >= 0) ::close(source.fd);
  }
  for (const std::string& file : files_) ::unlink(file.c_str());
  if (!folder_.empty()) ::rmdir(folder_.c_str());
}

Status Streams::read_mpirun() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Status::system("pipe", errno);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  sources_.push_back({ends[0], true, true, LineTagger(0)});
  error_end_ = ends[1];
  return {};
}

void Streams::close_error_end() {
  if (error_end_ >= 0) ::close(error_end_);
  error_end_ = -1;
}

Status Streams::tag_ranks(std::int64_t ranks) {
  std::error_code ignored;
  const std::filesystem::path place = std::filesystem::temp_directory_path(ignored);
  std::string name = (ignored ? std::filesystem::path("/tmp") : place) / "ronderun-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) return Status::system("making the folder " + name, errno);
  folder_ = name;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    for (const bool error : {false, true}) RONDE_RETURN_IF_ERROR(add_pipe(rank, error));
  }
  return {};
}

Status Streams::add_pipe(std::int64_t rank, bool error) {
  const std::string file = folder_ + "/rank." + std::to_string(rank) + (error ? ".err" : ".out");
  if (::mkfifo(file.c_str(), S_IRUSR | S_IWUSR) != 0)
    return Status::system("making " + file, errno);
  files_.push_back(file);
  // Open for both ways, the pipe never ends: ranks may come and go.
  const int fd = ::open(file.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return Status::system("opening " + file, errno);
  sources_.push_back({fd, error, false, LineTagger(rank)});
  return {};
}

void Streams::add_to(std::vector<pollfd>& entries) const {
  output_.add_to(entries);
  if (output_.full()) return;
  for (const Source& source : sources_) entries.push_back({source.fd, POLLIN, 0});
}

void Streams::serve(const std::vector<pollfd>& entries) {
  output_.serve(entries);
  for (const pollfd& entry : entries) {
    if (entry.revents == 0) continue;
    for (Source& source : sources_) {
      if (source.fd == entry.fd) read_from(source);
    }
  }
}

bool Streams::read_from(Source& source) {
  std::string bytes(kReadBytes, '\0');
  const ssize_t size = ::read(source.fd, bytes.data(), bytes.size());
  if (size < 0) return errno == EINTR;
  if (size == 0) {
    // poll() skips a descriptor that is negative, so that the end is told once.
    ::close(source.fd);
    source.fd = -1;
    return false;
  }
  bytes.resize(static_cast<std::size_t>(size));
  show(source, source.mpirun ? voice_.pass(bytes) : source.tagger.take(bytes));
  return true;
}

void Streams::show(const Source& source, const std::string& bytes) {
  output_.add(source.to_error, bytes);
  if (source.to_error) last_line_.take(bytes);
}

std::string Streams::last_line() const {
  const std::string& line = last_line_.text();
  const std::size_t tag_end = folder_.empty() || !line.starts_with('[') ? 0 : line.find("] ");
  return tag_end == 0 || tag_end == std::string::npos ? line : line.substr(tag_end + 2);
}

void Streams::finish(const base::Clock& clock) {
  for (Source& source : sources_) {
    while (source.fd >= 0 && read_from(source)) {
    }
    show(source, source.mpirun ? voice_.finish() : source.tagger.finish());
  }
  output_.flush(clock);
}

bool Streams::reader_gone() const {
  return output_.reader_gone() || (voice_.cause().broken_pipe && output_.out_reader_gone());
}

}  // namespace ronde::launcher
