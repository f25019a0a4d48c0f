// SPDX-License-Identifier: Apache-2.0
// The system calls that make saved data last, behind an interface: in tests a model of a disk takes
// their place and fails at each of them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

// Each call returns the system call's result, or -errno, and repeats a call that a signal has
// interrupted. Thread safety: any thread may call.
class FileSystem {
 public:
  // Whether a process still runs that has written its name() into a file.
  enum class Life : std::uint8_t {
    kAlive,
    kDead,
    kOfThisKernel,  // in another container: its locks exclude this process, its number has no
                    // meaning
    kUnknown        // on another host
  };

  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  virtual ~FileSystem() = default;

  [[nodiscard]] virtual int open(const std::string& path, int flags) = 0;
  [[nodiscard]] virtual std::int64_t size(int file) = 0;
  [[nodiscard]] virtual std::int64_t read(int file, char* bytes, std::size_t size) = 0;
  [[nodiscard]] virtual std::int64_t write(int file, std::string_view bytes) = 0;
  [[nodiscard]] virtual int sync(int file) = 0;
  // Some file systems report only now that the disk is full.
  virtual int close(int file) = 0;
  [[nodiscard]] virtual int make_directory(const std::string& path) = 0;
  // `to` must be missing or empty where `from` is a directory.
  [[nodiscard]] virtual int rename(const std::string& from, const std::string& to) = 0;
  // A file or an empty directory.
  [[nodiscard]] virtual int remove(const std::string& path) = 0;
  [[nodiscard]] virtual int list(const std::string& path, std::vector<std::string>& names) = 0;
  // A lock of the open file, not of the process; closing the file releases it. Never waits.
  [[nodiscard]] virtual int lock(int file) = 0;

  // This process in four words: host, process number, start time, and the namespace of the number.
  [[nodiscard]] virtual std::string process() = 0;
  [[nodiscard]] virtual Life life(const std::string& process) = 0;
  virtual void pause(std::chrono::milliseconds span) = 0;
  // Another number each time.
  [[nodiscard]] virtual std::uint64_t random() = 0;
};

// The real one. It has no state.
[[nodiscard]] FileSystem& disk();

// A system call has failed: the path, and the system's reason.
class FileError : public DataError {
 public:
  FileError(const std::string& path, int number);

  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] bool is_full() const noexcept;  // the disk, or a quota

 private:
  int number_;
};

// Each of these throws FileError.

// Makes a directory and its missing parents, and syncs the parent of each.
void make_directories(FileSystem& files, const std::string& path);
// Makes or replaces a file, and syncs it. Its name lasts once its directory is synced.
void write_file(FileSystem& files, const std::string& path, std::string_view bytes);
// The same by way of <path>.tmp, so that a reader finds the old bytes or the new ones.
void replace_file(FileSystem& files, const std::string& path, std::string_view bytes);
[[nodiscard]] std::string read_file(FileSystem& files, const std::string& path);
// Syncs the names in this directory. Returns false if that is not possible: some file systems
// cannot, and a directory may not be readable.
bool sync_directory(FileSystem& files, const std::string& path);
void rename_path(FileSystem& files, const std::string& from, const std::string& to);
// A file, or a directory with all that is in it. It may be missing.
void remove_path(FileSystem& files, const std::string& path);
[[nodiscard]] std::vector<std::string> names_in(FileSystem& files, const std::string& path);

}  // namespace ronde::trainer
