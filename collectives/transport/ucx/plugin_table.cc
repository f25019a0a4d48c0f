// SPDX-License-Identifier: Apache-2.0
// libronde_ucx.so: the table of its ends.
#include "collectives/transport/end_table.h"
#include "collectives/transport/ucx/end.h"

namespace ronde::collectives::ucx {

namespace {

constexpr ronde_transport kTable = table_of<End, End::open>("ucx", "UCX " RONDE_UCX_VERSION);

}  // namespace

}  // namespace ronde::collectives::ucx

extern "C" __attribute__((visibility("default"))) const ronde_transport* ronde_transport_entry() {
  return &ronde::collectives::ucx::kTable;
}
