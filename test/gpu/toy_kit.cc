// SPDX-License-Identifier: Apache-2.0
// The toy device, which has its kit with it.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "test/gpu/engine_kit.h"

namespace ronde::gpu_test {

const ronde_device_kit& open_kit(const char* library) {
  void* const handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  void* const entry = handle == nullptr ? nullptr : ::dlsym(handle, RONDE_DEVICE_KIT_ENTRY);
  if (entry == nullptr) {
    std::printf("%s has no %s\n", library, RONDE_DEVICE_KIT_ENTRY);
    std::exit(1);
  }
  return *reinterpret_cast<ronde_device_kit_entry_function>(entry)();
}

bool has_device() { return true; }
bool has_network() { return false; }

}  // namespace ronde::gpu_test
