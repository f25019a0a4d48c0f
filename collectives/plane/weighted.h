// SPDX-License-Identifier: Apache-2.0
// Averages by weights. A weight belongs to the data of one step, so it is in no signature, and the
// ranks do not know those of others: they are gathered first, as eight bytes for each tensor in one
// round of the same plane. Then every rank knows the prescale of each contribution and the sum of
// the weights, in rank order in f64, and the tensors move as any average does: with a prescale for
// each rank, and postscale / sum as the factor. So the bits are those of the order rule.
#pragma once

#include "base/status.h"
#include "collectives/plane/exchange.h"
#include "collectives/plane/plane.h"

namespace ronde::collectives {

// Makes the collective of any exchange, of one with weights as well. The plane and the memory that
// the exchange names must outlive the collective.
base::Result<DataPlane::CollectivePtr> make_collective(DataPlane& plane, const Exchange& exchange);

}  // namespace ronde::collectives
