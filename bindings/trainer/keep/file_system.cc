// SPDX-License-Identifier: Apache-2.0
// System calls, and functions made of them.
#include "bindings/trainer/keep/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <locale>
#include <new>
#include <random>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

namespace ronde::trainer {

namespace {

// SIGTERM is a signal that a training lives through.
template <typename Call>
auto retried(const Call& call) {
  while (true) {
    const auto result = call();
    if (result >= 0) return result;
    if (errno != EINTR) return static_cast<decltype(result)>(-errno);
  }
}

std::string first_line(const std::string& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

// When a process began, in ticks since the kernel did; empty where there is no such process.
std::string beginning_of(const std::string& pid) {
  const std::string line = first_line("/proc/" + pid + "/stat");
  std::istringstream rest(line.substr(line.rfind(')') + 1));  // its name may hold blanks
  rest.imbue(std::locale::classic());
  std::string word;
  constexpr int kPlace = 20;  // of the words behind the name
  for (int i = 0; i < kPlace; ++i) rest >> word;
  return rest ? word : "";
}

class Disk final : public FileSystem {
 public:
  int open(const std::string& path, int flags) override {
    constexpr mode_t kMode = 0666;
    return retried([&] { return ::open(path.c_str(), flags | O_CLOEXEC, kMode); });
  }
  std::int64_t size(int file) override {
    struct stat status {};
    const int result = retried([&] { return ::fstat(file, &status); });
    return result < 0 ? result : status.st_size;
  }
  std::int64_t read(int file, char* bytes, std::size_t size) override {
    return retried([&] { return ::read(file, bytes, size); });
  }
  std::int64_t write(int file, std::string_view bytes) override {
    return retried([&] { return ::write(file, bytes.data(), bytes.size()); });
  }
  int sync(int file) override {
    return retried([&] { return ::fsync(file); });
  }
  int close(int file) override { return ::close(file) == 0 || errno == EINTR ? 0 : -errno; }
  int make_directory(const std::string& path) override {
    constexpr mode_t kMode = 0777;
    return retried([&] { return ::mkdir(path.c_str(), kMode); });
  }
  int rename(const std::string& from, const std::string& to) override {
    return retried([&] { return std::rename(from.c_str(), to.c_str()); });
  }
  int remove(const std::string& path) override {
    return retried([&] { return std::remove(path.c_str()); });
  }
  int list(const std::string& path, std::vector<std::string>& names) override {
    names.clear();
    DIR* const directory = ::opendir(path.c_str());
    if (directory == nullptr) return -errno;
    errno = 0;
    while (const dirent* const entry = ::readdir(directory)) {
      const std::string name = static_cast<const char*>(entry->d_name);
      if (name != "." && name != "..") names.push_back(name);
      errno = 0;
    }
    const int error = errno;
    ::closedir(directory);
    return -error;
  }
  int lock(int file) override {
    struct flock whole {};
    whole.l_type = F_WRLCK;
    return retried([&] { return ::fcntl(file, F_OFD_SETLK, &whole); });
  }

  std::string process() override {
    std::array<char, HOST_NAME_MAX + 1> host{};
    ::gethostname(host.data(), host.size() - 1);
    const std::string pid = std::to_string(::getpid());
    return std::string(host.data()) + ' ' + pid + ' ' + beginning_of(pid) + ' ' + numbers();
  }
  Life life(const std::string& process) override {
    std::istringstream words(process);
    words.imbue(std::locale::classic());
    std::string host;
    std::string pid;
    std::string began;
    std::string of;
    words >> host >> pid >> began >> of;
    const std::string here = numbers();
    if (of == here) return beginning_of(pid) == began ? Life::kAlive : Life::kDead;
    const bool kernel = !of.empty() && of.substr(0, of.find('/')) == here.substr(0, here.find('/'));
    return kernel ? Life::kOfThisKernel : Life::kUnknown;
  }
  void pause(std::chrono::milliseconds span) override { std::this_thread::sleep_for(span); }
  std::uint64_t random() override {
    std::random_device random;
    return (std::uint64_t{random()} << 32U) | random();
  }

 private:
  // The kernel since it was started, and the namespace in which processes are counted.
  static std::string numbers() {
    std::error_code ignored;
    return first_line("/proc/sys/kernel/random/boot_id") + '/' +
           std::filesystem::read_symlink("/proc/self/ns/pid", ignored).native();
  }
};

// An open file or directory.
class File {
 public:
  File(FileSystem& files, const std::string& path, int flags)
      : files_(files), path_(path), file_(files.open(path, flags)) {
    checked(file_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (file_ >= 0) files_.close(file_);
  }

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      bytes.remove_prefix(static_cast<std::size_t>(checked(files_.write(file_, bytes))));
    }
    checked(files_.sync(file_));
    checked(files_.close(std::exchange(file_, -1)));
  }
  std::string read() {
    std::string bytes(static_cast<std::size_t>(checked(files_.size(file_))), '\0');
    std::size_t size = 0;
    while (size < bytes.size()) {
      const auto got = checked(files_.read(file_, bytes.data() + size, bytes.size() - size));
      if (got == 0) break;
      size += static_cast<std::size_t>(got);
    }
    bytes.resize(size);
    return bytes;
  }
  [[nodiscard]] int sync() { return files_.sync(file_); }

 private:
  template <typename Result>
  Result checked(Result result) const {
    if (result < 0) throw FileError(path_, static_cast<int>(-result));
    return result;
  }

  FileSystem& files_;
  std::string path_;
  int file_;
};

std::string parent_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent;
}

}  // namespace

FileSystem& disk() {
  static Disk all;
  return all;
}

FileError::FileError(const std::string& path, int number)
    : DataError(path + ": " + std::generic_category().message(number)), number_(number) {}

bool FileError::is_full() const noexcept { return number_ == ENOSPC || number_ == EDQUOT; }

void make_directories(FileSystem& files, const std::string& path) {
  int result = files.make_directory(path);
  const std::string parent = parent_of(path);
  if (result == -ENOENT && parent != path) {
    make_directories(files, parent);
    result = files.make_directory(path);
  }
  if (result < 0 && result != -EEXIST) throw FileError(path, -result);
  sync_directory(files, parent);
}

void write_file(FileSystem& files, const std::string& path, std::string_view bytes) {
  File(files, path, O_WRONLY | O_CREAT | O_TRUNC).write(bytes);
}

void replace_file(FileSystem& files, const std::string& path, std::string_view bytes) {
  write_file(files, path + ".tmp", bytes);
  rename_path(files, path + ".tmp", path);
  sync_directory(files, parent_of(path));
}

std::string read_file(FileSystem& files, const std::string& path) {
  try {
    return File(files, path, O_RDONLY).read();
  } catch (const std::bad_alloc&) {
    throw FileError(path, ENOMEM);
  } catch (const std::length_error&) {
    throw FileError(path, EFBIG);
  }
}

bool sync_directory(FileSystem& files, const std::string& path) {
  try {
    const int result = File(files, path, O_RDONLY | O_DIRECTORY).sync();
    if (result == -EINVAL || result == -EOPNOTSUPP || result == -EBADF) return false;
    if (result < 0) throw FileError(path, -result);
  } catch (const FileError& error) {
    if (error.number() == EACCES) return false;
    throw;
  }
  return true;
}

void rename_path(FileSystem& files, const std::string& from, const std::string& to) {
  if (const int result = files.rename(from, to); result < 0) throw FileError(to, -result);
}

void remove_path(FileSystem& files, const std::string& path) {
  int result = files.remove(path);
  if (result == -ENOTEMPTY || result == -EEXIST) {
    std::vector<std::string> names;
    result = files.list(path, names);
    for (const std::string& name : names) remove_path(files, path + '/' + name);
    if (result >= 0) result = files.remove(path);
  }
  if (result < 0 && result != -ENOENT) throw FileError(path, -result);
}

std::vector<std::string> names_in(FileSystem& files, const std::string& path) {
  std::vector<std::string> names;
  if (const int result = files.list(path, names); result < 0) throw FileError(path, -result);
  return names;
}

}  // namespace ronde::trainer
