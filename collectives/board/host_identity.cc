// SPDX-License-Identifier: Apache-2.0
// The identity of a host, as its kernel and its namespaces have it.
#include "collectives/board/host_identity.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/host_name.h"

namespace ronde::collectives {

std::string host_identity() {
  std::string text = base::host_name();
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  text += " " + boot;
  // Where /proc has no namespaces, the host's name and the kernel must do.
  for (const char* space : {"/proc/self/ns/net", "/proc/self/ns/pid"}) {
    std::error_code unknown;
    text += " " + std::filesystem::read_symlink(space, unknown).string();
  }
  return text;
}

}  // namespace ronde::collectives
