// SPDX-License-Identifier: Apache-2.0
// The ports at which ends listen, where the user has named a range.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "test/support/ucx_ends.h"
#include "test/unit/collectives/transport/ucx/ends.h"

namespace ronde::collectives::ucx {
namespace {

std::set<std::uint16_t> ports_of_listeners() {
  std::set<std::uint16_t> ports;
  for (const sockaddr_storage& address : listeners_of_this_process()) {
    // The port has the same place in both families.
    ports.insert(ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port));
  }
  return ports;
}

base::Status opened_and_closed() {
  ronde_transport_host host{};
  host.size = 1;
  ronde_transport_info info{};
  return End::open(host, info).status();
}

TEST(UcxPorts, EachEndHasOneOfItsRange) {
  const ScopedVariable range("RONDE_PORTS", "29460-29479");
  const auto ends = connected_ends(3);
  const auto ports = ports_of_listeners();
  EXPECT_EQ(ports.size(), 3U);
  EXPECT_GE(*ports.begin(), 29460);
  EXPECT_LE(*ports.rbegin(), 29479);
}

TEST(UcxPorts, TakenOnesAreNamedAndTheUsersOwnGoBefore) {
  const auto ends = connected_ends(1);
  const std::string taken = std::to_string(*ports_of_listeners().begin());
  const ScopedVariable range("RONDE_PORTS", (taken + "-" + taken).c_str());
  EXPECT_THAT(opened_and_closed().message(),
              ::testing::StartsWith("none of the 1 ports of RONDE_PORTS=" + taken + "-" + taken));
  const ScopedVariable own("UCX_TCP_PORT_RANGE", "0");
  EXPECT_TRUE(opened_and_closed().ok());
}

}  // namespace
}  // namespace ronde::collectives::ucx
