// SPDX-License-Identifier: Apache-2.0
// Loaded before the C library (LD_PRELOAD): counts the calls that change or sync what lies in the
// directory RONDE_TEST_BELOW, prints each, and ends the process before that numbered
// RONDE_TEST_KILL_BEFORE, which counts from 1.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "test/e2e/chief/interposed.h"

namespace {

using ronde::interposed::next;
using ronde::interposed::path_of;

std::string path_at(int directory, const char* name) {
  return name[0] == '/' || directory == AT_FDCWD ? name : path_of(directory) + "/" + name;
}

void count(const char* call, const std::string& path) {
  static std::atomic<int> calls = 0;
  const char* const last = std::getenv("RONDE_TEST_KILL_BEFORE");
  if (last == nullptr || !ronde::interposed::is_below("RONDE_TEST_BELOW", path)) return;
  if (++calls == std::atoi(last)) kill(getpid(), SIGKILL);
  dprintf(STDERR_FILENO, "%s %s\n", call, path.c_str());
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ronde::interposed::mode_of(flags, arguments);
  va_end(arguments);
  if ((flags & O_CREAT) != 0) count("open", path);
  return next<int(const char*, int, ...)>("open")(path, flags, mode);
}

__attribute__((visibility("default"))) ssize_t write(int file, const void* bytes, size_t size) {
  count("write", path_of(file));
  return next<ssize_t(int, const void*, size_t)>("write")(file, bytes, size);
}

__attribute__((visibility("default"))) int fsync(int file) {
  count("fsync", path_of(file));
  return next<int(int)>("fsync")(file);
}

__attribute__((visibility("default"))) int mkdir(const char* path, mode_t mode) noexcept {
  count("mkdir", path);
  return next<int(const char*, mode_t)>("mkdir")(path, mode);
}

__attribute__((visibility("default"))) int rename(const char* from, const char* to) noexcept {
  count("rename", from);
  return next<int(const char*, const char*)>("rename")(from, to);
}

__attribute__((visibility("default"))) int unlinkat(int directory, const char* name,
                                                    int flags) noexcept {
  count("remove", path_at(directory, name));
  return next<int(int, const char*, int)>("unlinkat")(directory, name, flags);
}

__attribute__((visibility("default"))) int remove(const char* path) noexcept {
  count("remove", path);
  return next<int(const char*)>("remove")(path);
}

}  // extern "C"
