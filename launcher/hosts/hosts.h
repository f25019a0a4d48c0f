// SPDX-License-Identifier: Apache-2.0
// Which hosts a job has, how many slots each, and which ranks run where. Pure: the caller knows how
// to read a file, and what this host is called.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace ronde::launcher {

inline constexpr std::int64_t kMostRanksOfJob = 1 << 20;

struct Host {
  std::string name;        // as ssh takes it: "node1", "user@node1", "fd00::1"
  std::int64_t slots = 0;  // 0: nobody has said
  bool here = false;       // this host
};

// What this host is called; loopback addresses and "localhost" need not be there.
struct Self {
  // Names and addresses, the first for messages. A name stands for the same name in any domain, so
  // the full one says more.
  std::vector<std::string> names;
  std::string user;  // "user@node1" is here for this user alone
};

using ReadFile = std::function<base::Result<std::string>(const std::string& path)>;

// The hosts, each once and this one once: those of `list` (-H: "a:2,user@b,[fd00::1]:4"; without a
// number one slot for each time that a host is named), or of `hostfile` (--hostfile, as mpirun
// reads it), or of what Slurm, PBS or the MPI operator has allocated, or else this host alone.
[[nodiscard]] base::Result<std::vector<Host>> hosts_of_job(const std::string& list,
                                                           const std::string& hostfile,
                                                           std::span<const std::string> environment,
                                                           const Self& self, const ReadFile& read);

// The ranks [first, first + ranks) of a host.
struct Block {
  Host host;
  std::int64_t first = 0;
  std::int64_t ranks = 0;
};

struct Placement {
  std::vector<Block> blocks;  // in the order of the hosts and of the ranks; no host without a rank
  std::string message;        // for the user, before anything starts; empty: none
};

// Fills one host after the other. A host without a number of slots has as many as cores where it is
// this one, and elsewhere an even share of the ranks that fit nowhere else. Without `ranks` there
// is a rank for each slot. This host alone may have more ranks than slots.
[[nodiscard]] base::Result<Placement> place(const std::vector<Host>& hosts,
                                            std::optional<std::int64_t> ranks,
                                            std::int64_t cores_here);

// The hosts but for the one with that name, as when it can no longer be reached.
[[nodiscard]] std::vector<Host> without(std::vector<Host> hosts, const std::string& name);

}  // namespace ronde::launcher
