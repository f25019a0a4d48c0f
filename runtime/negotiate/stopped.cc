// SPDX-License-Identifier: Apache-2.0
// The state of a process, as /proc/<pid>/stat gives it.
#include "runtime/negotiate/stopped.h"

#include <fstream>

#include "base/host_name.h"

namespace ronde::runtime {

bool is_stopped(const collectives::Presence& presence) {
  std::ifstream file("/proc/" + std::to_string(presence.pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return false;
  const char state = text[name_end + 2];
  return state == 'T' || state == 't';
}

std::string stopped_text(std::int32_t rank, const collectives::Presence& presence) {
  if (!is_stopped(presence)) return {};
  return "; rank " + std::to_string(rank) + " (host " + base::host_name() + ", pid " +
         std::to_string(presence.pid) + ") is stopped: continue it or end the job";
}

}  // namespace ronde::runtime
