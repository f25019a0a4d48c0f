// SPDX-License-Identifier: Apache-2.0
// Barrier by dissemination: in round k each rank tells the one 2^k further that it, and everybody
// it has heard of, has arrived. After ceil(log2 n) rounds of empty messages everybody has heard of
// all.
#pragma once

#include <memory>

#include "collectives/transport/collective.h"
#include "collectives/transport/transport.h"

namespace ronde::collectives {

// The transport must outlive the collective.
std::unique_ptr<Collective> barrier(Transport& transport, int tag);

}  // namespace ronde::collectives
