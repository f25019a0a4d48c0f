// SPDX-License-Identifier: Apache-2.0
// The system calls that decide whether what was saved is still there: behind an interface, so that
// a model of a disk can take their place and fail at each of them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

// Each call returns what the system call returns, or -errno; one that a signal has cut short is
// made again. Thread safety: any thread may call.
class FileSystem {
 public:
  // What is known of a process that has left its name.
  enum class Life : std::uint8_t {
    kAlive,
    kDead,
    kOfThisKernel,  // its locks bite here, but its number says nothing: another container
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
  // Some file systems say only now that the disk is full.
  virtual int close(int file) = 0;
  [[nodiscard]] virtual int make_directory(const std::string& path) = 0;
  // `to` must be missing or empty where `from` is a directory.
  [[nodiscard]] virtual int rename(const std::string& from, const std::string& to) = 0;
  // A file or an empty directory.
  [[nodiscard]] virtual int remove(const std::string& path) = 0;
  [[nodiscard]] virtual int list(const std::string& path, std::vector<std::string>& names) = 0;
  // A lock of the open file, not of the process; it goes when the file is closed. Never waits.
  [[nodiscard]] virtual int lock(int file) = 0;

  // This process in four words: host, number, when it began, and whose numbers these are.
  [[nodiscard]] virtual std::string process() = 0;
  [[nodiscard]] virtual Life life(const std::string& process) = 0;
  virtual void pause(std::chrono::milliseconds span) = 0;
  // Another number each time.
  [[nodiscard]] virtual std::uint64_t random() = 0;
};

// The real one. It has no state.
[[nodiscard]] FileSystem& disk();

// What a system call has refused: the path, and the system's reason.
class FileError : public DataError {
 public:
  FileError(const std::string& path, int number);

  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] bool is_full() const noexcept;  // the disk, or a quota

 private:
  int number_;
};

// Each of these throws FileError.

// Makes what is missing of a directory and its parents, and syncs the parent of each.
void make_directories(FileSystem& files, const std::string& path);
// Makes or replaces a file, and syncs it. Its name lasts once its directory is synced.
void write_file(FileSystem& files, const std::string& path, std::string_view bytes);
// The same by way of <path>.tmp, so that a reader finds the old bytes or the new ones.
void replace_file(FileSystem& files, const std::string& path, std::string_view bytes);
[[nodiscard]] std::string read_file(FileSystem& files, const std::string& path);
// So that the names in this directory last. False where it cannot be had: some file systems do not
// know it, and a directory may be closed to readers.
bool sync_directory(FileSystem& files, const std::string& path);
void rename_path(FileSystem& files, const std::string& from, const std::string& to);
// A file, or a directory with all that is in it. It may be missing.
void remove_path(FileSystem& files, const std::string& path);
[[nodiscard]] std::vector<std::string> names_in(FileSystem& files, const std::string& path);

}  // namespace ronde::trainer
