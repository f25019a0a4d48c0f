// SPDX-License-Identifier: Apache-2.0
// The file is opened for each entry: nothing is kept that a later one would have to mend.
#include "bindings/trainer/disk/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <utility>

#include "bindings/trainer/disk/file_system.h"

namespace ronde::trainer {

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

LogFile::LogFile(std::string path) : path_(std::move(path)) {
  const auto directory = std::filesystem::path(path_).parent_path();
  if (!directory.empty()) make_directories(disk(), directory);
  if (const int error = try_append({}); error != 0) throw FileError(path_, error);
}

void LogFile::append(std::string_view bytes) { error_ = try_append(bytes); }

int LogFile::try_append(std::string_view bytes) {
  const int file = disk().open(path_, O_WRONLY | O_APPEND | O_CREAT);
  if (file < 0) return -file;
  const std::int64_t before = disk().size(file);
  const std::int64_t written = disk().write(file, bytes);
  const bool whole = written == static_cast<std::int64_t>(bytes.size());
  if (!whole && before >= 0) static_cast<void>(!::ftruncate(file, before));
  const int closed = disk().close(file);
  if (written < 0) return static_cast<int>(-written);
  return whole ? -closed : ENOSPC;
}

}  // namespace ronde::trainer
