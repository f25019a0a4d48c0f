// SPDX-License-Identifier: Apache-2.0
// The verdict on what all ranks have, and the name by which NCCL knows a host.
#include "collectives/cuda/identity.h"

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <map>
#include <utility>

#include "base/host_name.h"
#include "collectives/cuda/nccl_api.h"

namespace ronde::collectives::cuda {

namespace {

Verdict no_collectives(const std::string& why) { return {true, false, why}; }

std::string rank_text(std::size_t rank) { return "rank " + std::to_string(rank); }

}  // namespace

Verdict verdict_of(std::span<const Identity> ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].has_device == 0) {
      return {false, false, rank_text(rank) + " has no device: " + ranks[rank].why_not.data()};
    }
  }
  std::map<std::pair<std::string, std::string>, std::size_t> owners;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Identity& identity = ranks[rank];
    if (identity.nccl_version == 0) {
      return no_collectives(rank_text(rank) + " cannot use NCCL: " + identity.why_not.data());
    }
    if (identity.nccl_version != ranks.front().nccl_version) {
      return no_collectives(rank_text(rank) + " has NCCL " +
                            nccl_version_text(identity.nccl_version) + ", rank 0 has " +
                            nccl_version_text(ranks.front().nccl_version));
    }
    const auto [owner, first] =
        owners.try_emplace({identity.host.data(), identity.bus_id.data()}, rank);
    if (!first) {
      return no_collectives("ranks " + std::to_string(owner->second) + " and " +
                            std::to_string(rank) + " share the GPU " + identity.bus_id.data());
    }
  }
  return {true, true, {}};
}

std::string own_host() {
  if (const char* const id = std::getenv("NCCL_HOSTID"); id != nullptr && *id != '\0') return id;
  // Containers have host names of their own, but share the boot id of the machine.
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return base::host_name() + " " + boot;
}

}  // namespace ronde::collectives::cuda
