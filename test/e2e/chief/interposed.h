// SPDX-License-Identifier: Apache-2.0
// What libraries have in common that are loaded before the C library and take its calls.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <climits>
#include <cstdarg>
#include <cstdlib>
#include <string>

namespace ronde::interposed {

// The C library's own function.
template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

inline std::string path_of(int descriptor) {
  char path[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t size = readlink(link.c_str(), path, sizeof path);
  return size < 0 ? "" : std::string(path, static_cast<std::size_t>(size));
}

// Whether it is the directory that this variable names, or in it.
inline bool is_below(const char* variable, const std::string& path) {
  const char* const below = std::getenv(variable);
  return below != nullptr && (path + "/").starts_with(below + std::string("/"));
}

inline mode_t mode_of(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace ronde::interposed
