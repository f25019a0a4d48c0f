// SPDX-License-Identifier: Apache-2.0
// All-to-all: every rank has a block of rows for every rank. Pairwise exchange: at distance k a
// rank sends to the one k further and receives from the one k before, k = 1, 2, ..., n-1, so that
// every pair of ends is busy with one partner at a time.
//
// A rank does not know in advance how many rows it will receive, so two exchanges follow each
// other: first the numbers of rows, one for each pair, then the rows. Blocks are cut into segments.
// Sending and receiving do not wait for each other; each has a few segments in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/numbers.h"
#include "base/status.h"
#include "collectives/transport/collective.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/workspace.h"

namespace ronde::collectives {

// The rows that one rank sends: those for rank 0, then those for rank 1, ... The memory is the
// caller's, and must stay until the collective is destroyed.
struct RowsToSend {
  const std::byte* input = nullptr;
  std::vector<std::int64_t> rows;  // for each rank; may be 0
  base::Bytes row_bytes;           // the same on every rank
};

// The collective calls this once, when it knows how many rows each rank sends to this one. It
// returns the memory for them, those from rank 0 first, which remains the caller's; the memory must
// have exactly that size, and must not overlap the input.
using AllocateRows =
    std::function<base::Result<std::span<std::byte>>(std::span<const std::int64_t> received_rows)>;

// Thread safety: that of Collective. The transport and the workspace must outlive the collective.
// One tag is enough for both exchanges, since messages between two ranks keep their order.
std::unique_ptr<Collective> all_to_all(Transport& transport, Workspace& workspace, RowsToSend send,
                                       AllocateRows allocate, base::Bytes segment, int tag);

}  // namespace ronde::collectives
