// SPDX-License-Identifier: Apache-2.0
// The connections of one leader to its neighbours in the tree of hosts, as they are handed over.
#pragma once

#include <optional>
#include <vector>

#include "runtime/links/frame_socket.h"

namespace ronde::runtime {

struct HostLinks {
  std::optional<LinkEnd> parent;  // of every host but the root
  std::vector<LinkEnd> children;  // in the order of HostTree::children_of
};

}  // namespace ronde::runtime
