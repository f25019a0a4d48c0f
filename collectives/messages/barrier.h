// SPDX-License-Identifier: Apache-2.0
// Barrier by dissemination: in round k each rank sends an empty message to the one 2^k further,
// which tells that it and all ranks that it knows of have arrived. After ceil(log2 n) rounds every
// rank knows of all.
#pragma once

#include <memory>

#include "collectives/transport/collective.h"
#include "collectives/transport/transport.h"

namespace ronde::collectives {

// The transport must outlive the collective. Thread safety: that of Collective.
std::unique_ptr<Collective> barrier(Transport& transport, int tag);

}  // namespace ronde::collectives
