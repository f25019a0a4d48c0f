// SPDX-License-Identifier: Apache-2.0
// The table of ranks: where each of them runs, and with which others it exchanges bytes over what.
// Plain values and a pure function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/job_shape.h"
#include "runtime/links/tree.h"

namespace ronde::runtime {

// Where a rank runs.
struct RankPlace {
  std::string host;
  std::string address;  // of the host on its links to other hosts; empty on a single host
  std::string pid;
};

// What a job knows of its ranks.
struct RankTable {
  std::vector<RankPlace> places;           // by rank
  std::string transport = "MPI";           // what carries tensors where memory is not shared
  std::string links = "TCP";               // what carries control between hosts
  std::int32_t fan_in = HostTree::kFanIn;  // of the tree of the hosts
};

// Returns a line of headings and one line for each rank, without a newline at the end.
// `messages_only`: tensors move over the transport even on a single host.
[[nodiscard]] std::string text_of(const RankTable& table, const base::JobShape& shape,
                                  bool messages_only);

}  // namespace ronde::runtime
