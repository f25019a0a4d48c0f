// SPDX-License-Identifier: Apache-2.0
// MPI, through the table of its plug-in, keeps the promises of Transport.
#include <gtest/gtest.h>

#include <chrono>

#include "test/mpi/mpi_plugin.h"
#include "test/support/transport_contract.h"

namespace ronde::testing {
namespace {

TEST(MpiContract, IsKept) {
  const base::SteadyClock clock;
  const base::Instant deadline = clock.after(std::chrono::seconds(60));
  auto part = MpiPart::open(nullptr, clock, deadline);
  ASSERT_TRUE(part.ok()) << part.status().to_string();
  {
    const auto transport = (*part)->transport();
    ASSERT_NE(transport, nullptr);
    EXPECT_EQ(transport->descriptor(), -1) << "MPI has nothing to sleep on";
    collectives::TransportContract(*transport).run_all();
  }
  // No rank frees MPI's objects while another one still tests.
  EXPECT_TRUE((*part)->allgather({}, clock, deadline).ok());
  EXPECT_TRUE((*part)->close().ok());
}

}  // namespace
}  // namespace ronde::testing
