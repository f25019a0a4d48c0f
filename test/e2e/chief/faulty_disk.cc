// SPDX-License-Identifier: Apache-2.0
// Loaded before the C library (LD_PRELOAD): a disk with faults in the directory FAULTY_DISK_BELOW.
// FAULTY_DISK_SYNC_SECONDS: so long each fsync takes, of files whose path ends with
// FAULTY_DISK_SYNC_ENDING (empty: of all). FAULTY_DISK_CLOSED: a file that may not be opened.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdlib>
#include <string>
#include <thread>

#include "test/e2e/chief/interposed.h"

namespace {

using ronde::interposed::next;

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ronde::interposed::mode_of(flags, arguments);
  va_end(arguments);
  if (path == setting("FAULTY_DISK_CLOSED")) {
    errno = EACCES;
    return -1;
  }
  return next<int(const char*, int, ...)>("open")(path, flags, mode);
}

__attribute__((visibility("default"))) int fsync(int file) {
  const std::string path = ronde::interposed::path_of(file);
  const std::string seconds = setting("FAULTY_DISK_SYNC_SECONDS");
  if (!seconds.empty() && ronde::interposed::is_below("FAULTY_DISK_BELOW", path) &&
      path.ends_with(setting("FAULTY_DISK_SYNC_ENDING"))) {
    std::this_thread::sleep_for(std::chrono::duration<double>(std::stod(seconds)));
  }
  return next<int(int)>("fsync")(file);
}

}  // extern "C"
