// SPDX-License-Identifier: Apache-2.0
// System calls, each with its error as text.
#include "bindings/trainer/chief/durable_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <thread>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

[[noreturn]] void fail_with(const std::string& path, int error) {
  throw DataError(path + ": " + std::generic_category().message(error));
}

// A signal may end a call early: SIGTERM is one that a training lives through.
template <typename Call>
auto retried(Call&& call) {
  while (true) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

// An open file or directory.
class File {
 public:
  File(const std::string& path, int flags) : path_(path) {
    constexpr mode_t kMode = 0666;
    descriptor_ = retried([&] { return ::open(path_.c_str(), flags | O_CLOEXEC, kMode); });
    if (descriptor_ < 0) fail_with(path_, errno);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t done =
          retried([&] { return ::write(descriptor_, bytes.data(), bytes.size()); });
      if (done < 0) fail_with(path_, errno);
      bytes.remove_prefix(static_cast<std::size_t>(done));
    }
  }

  std::string read() {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) fail_with(path_, errno);
    std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
    std::size_t size = 0;
    while (size < bytes.size()) {
      const ssize_t got =
          retried([&] { return ::read(descriptor_, bytes.data() + size, bytes.size() - size); });
      if (got < 0) fail_with(path_, errno);
      if (got == 0) break;
      size += static_cast<std::size_t>(got);
    }
    bytes.resize(size);
    return bytes;
  }

  void sync() {
    if (retried([this] { return ::fsync(descriptor_); }) != 0) fail_with(path_, errno);
  }

  // Some file systems say only now that the disk is full.
  void close() {
    const int descriptor = descriptor_;
    descriptor_ = -1;
    if (::close(descriptor) != 0 && errno != EINTR) fail_with(path_, errno);
  }

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace

void make_directories(const std::string& path) {
  std::error_code ignored;  // what is wrong shows in mkdir()
  if (path.empty() || std::filesystem::is_directory(path, ignored)) return;
  const std::string parent = std::filesystem::path(path).parent_path();
  if (parent != path) make_directories(parent);
  constexpr mode_t kMode = 0777;
  if (::mkdir(path.c_str(), kMode) != 0 && errno != EEXIST) fail_with(path, errno);
  sync_directory(parent.empty() ? "." : parent);
}

void write_file(const std::string& path, std::string_view bytes) {
  File file(path, O_WRONLY | O_CREAT | O_TRUNC);
  file.write(bytes);
  file.sync();
  file.close();
}

std::string read_file(const std::string& path) { return File(path, O_RDONLY).read(); }

void sync_directory(const std::string& path) { File(path, O_RDONLY | O_DIRECTORY).sync(); }

void rename_path(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) fail_with(to, errno);
}

void remove_path(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) throw DataError(path + ": " + error.message());
}

FileLock::FileLock(const std::string& path, std::chrono::milliseconds patience)
    : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  constexpr std::chrono::milliseconds kBetweenLooks(20);
  const auto until = std::chrono::steady_clock::now() + patience;
  struct flock whole {};
  whole.l_type = F_WRLCK;
  while (descriptor_ >= 0 && ::fcntl(descriptor_, F_SETLK, &whole) != 0) {
    if (errno != EACCES && errno != EAGAIN) return;  // this file system has no locks
    if (std::chrono::steady_clock::now() >= until) {
      ::close(descriptor_);
      throw DataError(path +
                      " is held by another training: end that one, or name another directory");
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace ronde::trainer
