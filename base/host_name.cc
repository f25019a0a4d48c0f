// SPDX-License-Identifier: Apache-2.0
// A host, as its kernel and its namespaces have it.
#include "base/host_name.h"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace ronde::base {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::string host_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  std::string text = host_name() + " " + boot;
  // Where /proc has no namespaces, the host's name and the kernel must do.
  for (const char* space : {"/proc/self/ns/net", "/proc/self/ns/pid"}) {
    std::error_code unknown;
    text += " " + std::filesystem::read_symlink(space, unknown).string();
  }
  return text;
}

}  // namespace ronde::base
