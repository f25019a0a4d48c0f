// SPDX-License-Identifier: Apache-2.0
// Looks up the RDMA devices of network interfaces where the kernel shows them:
// <class_net>/<interface>/device/infiniband/<device>/ports/<port>.
#include "collectives/transport/ucx/devices.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/text.h"

namespace ronde::collectives::ucx {

namespace {

namespace fs = std::filesystem;

// The names in a folder, sorted; none where there is no such folder.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string devices_of(const std::string& interfaces, const std::string& class_net) {
  std::string devices;
  const auto add = [&](const std::string& name) { devices += (devices.empty() ? "" : ",") + name; };
  for (const std::string& interface : base::words_of(interfaces, ",")) {
    const fs::path rdma = fs::path(class_net) / interface / "device" / "infiniband";
    for (const std::string& device : names_in(rdma)) {
      for (const std::string& port : names_in(rdma / device / "ports")) add(device + ":" + port);
    }
    add(interface);
  }
  return devices;
}

}  // namespace ronde::collectives::ucx
