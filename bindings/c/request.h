// SPDX-License-Identifier: Apache-2.0
// Checks the structs of the C ABI, and translates them into what the runtime takes.
#pragma once

#include <ronde/ronde.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/status.h"
#include "runtime/engine/engine.h"

namespace ronde::bindings {

base::Status null_argument(const char* what);
base::Result<base::Nanoseconds> deadline_of(const std::string& name, std::int64_t deadline_ns);

// The defaults of a struct of the C ABI, as this library knows it.
template <typename T>
T defaults_of() {
  T defaults{};
  defaults.struct_size = sizeof(T);
  return defaults;
}
template <>
ronde_request defaults_of<ronde_request>();

// Gives the caller's struct of `size` bytes the defaults. A program that was built with another
// ronde.h has a smaller or a larger struct than ours: what lies behind a smaller one is not
// touched, and fields of a larger one that this library does not know are zero.
template <typename T>
void init_sized(T* given, std::size_t size) {
  if (given == nullptr || size < sizeof(T::struct_size)) return;
  T defaults = defaults_of<T>();
  defaults.struct_size = size;
  std::memset(static_cast<void*>(given), 0, size);
  std::memcpy(static_cast<void*>(given), &defaults, std::min(size, sizeof(T)));
}

// Structs only grow: one that is smaller than ours was made by an older program, and its missing
// fields have the defaults; a larger one comes from a newer program, and all that this library does
// not know in it must be zero.
template <typename T>
base::Result<T> read_struct(const T* given, const char* what) {
  if (given == nullptr) return null_argument(what);
  const std::size_t size = given->struct_size;
  if (size < sizeof(std::size_t)) {
    return base::Status::error(
        base::Code::kInvalidArgument,
        std::string(what) + ": struct_size is not set: use " + what + "_init");
  }
  if (size > sizeof(T)) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(given);
    for (std::size_t i = sizeof(T); i < size; ++i) {
      if (bytes[i] != 0) {
        return base::Status::error(base::Code::kUnsupported,
                                   std::string(what) + " uses a field that this libronde.so (" +
                                       ronde_version() + ") does not know: use a newer one");
      }
    }
  }
  T copy = defaults_of<T>();
  std::memcpy(&copy, given, std::min(size, sizeof(T)));
  return copy;
}

// Translates one request; an error names the field and says what is wrong with it.
base::Result<runtime::Submission> translate(runtime::Operation operation,
                                            const ronde_request* request);

// Translates `count` requests, which lie one after another in memory, into one group.
base::Result<runtime::Submission> translate_group(runtime::Operation operation,
                                                  const ronde_request* requests, int32_t count);

}  // namespace ronde::bindings
