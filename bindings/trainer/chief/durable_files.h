// SPDX-License-Identifier: Apache-2.0
// Files that are still there after the machine has lost power: written, synced, renamed. Each
// function throws DataError: the path, and the system's reason.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace ronde::trainer {

// Makes what is missing of a directory and its parents, and syncs the parent of each.
void make_directories(const std::string& path);
// Makes or replaces a file, and syncs it. Its name lasts once its directory is synced.
void write_file(const std::string& path, std::string_view bytes);
[[nodiscard]] std::string read_file(const std::string& path);
// So that the names in this directory last.
void sync_directory(const std::string& path);
// `to` must be missing where `from` is a directory.
void rename_path(const std::string& from, const std::string& to);
// A file, or a directory with all that is in it. It may be missing.
void remove_path(const std::string& path);

// Holds a file that at most one process holds at a time; the system lets go of it when the process
// ends, however it ends. The constructor waits so long for another one to end, and throws DataError
// then. Where there can be no such file it holds nothing.
class FileLock {
 public:
  explicit FileLock(const std::string& path,
                    std::chrono::milliseconds patience = std::chrono::seconds(10));
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

 private:
  int descriptor_;
};

}  // namespace ronde::trainer
