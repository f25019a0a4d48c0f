// SPDX-License-Identifier: Apache-2.0
// What doctor makes of what its probes have seen.
#include "launcher/doctor/findings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace ronde::launcher {
namespace {

// A host where all is well, that reaches the hosts 1 to `hosts`.
HostReport healthy(int number, int hosts) {
  const std::string address = "10.0.0." + std::to_string(number);
  HostReport host;
  host.name = "h" + std::to_string(number);
  host.identity = host.name;
  host.ranks = 2;
  for (const std::string& line :
       {std::string("fact files libronde.so=1 libronde_ucx.so=2 "),
        std::string("fact features avx2 fma"), std::string("fact shm 1000000000"),
        std::string("fact pidfd 1"), std::string("fact memfd 1"),
        std::string("fact descriptors unlimited"), std::string("fact processes unlimited"),
        std::string("fact memlock 65536"), std::string("fact rdma 0"), std::string("fact cores 2"),
        std::string("fact affinity 4"), "door eth0 10.0.0.0/24 " + address + ":4711"}) {
    take_line(host, line);
  }
  for (int i = 1; i <= hosts; ++i) {
    take_line(host, "reached 10.0.0." + std::to_string(i) + ":4711 ok");
  }
  return host;
}

// All that is not well, as a table.
std::string complaints(const std::vector<HostReport>& hosts, const std::string& ports = "") {
  std::vector<Finding> all = findings_of(hosts, ports);
  std::erase_if(all, [](const Finding& one) { return one.level == Level::kOk; });
  return table_of(all);
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(FindingsTest, OneLineForHostsThatAreAlike) {
  const std::string table = table_of(findings_of({healthy(1, 2), healthy(2, 2)}, ""));
  EXPECT_TRUE(says(table, "ok    h1, h2  2 ranks on 2 cores (a cgroup's quota)\n")) << table;
  EXPECT_TRUE(says(table, "RONDE_INTERFACE=10.0.0.0/24 would do\n")) << table;
  EXPECT_EQ(complaints({healthy(1, 2), healthy(2, 2)}), "");
}

TEST(FindingsTest, EachFaultHasItsMending) {
  struct Fault {
    std::string line;
    std::string finding;
    std::string fix;
  };
  for (const Fault& fault : std::vector<Fault>{
           {"fact files libronde.so=1 ", "FAIL  h2  has no libronde_ucx.so, which h1", "install"},
           {"fact files libronde.so=1 libronde_ucx.so=3 ", "WARN  h2  has another build",
            "install"},
           {"fact features avx2", "WARN  h2  CPU: avx2; h1 has avx2 fma", "one kind"},
           {"fact shm 1048576", "WARN  h2  /dev/shm has 1 MiB", "--shm-size"},
           {"fact memfd 0", "FAIL  h2  memfd_create", "seccomp"},
           {"fact pidfd 0", "WARN  h2  pidfd_open", "seccomp"},
           {"fact descriptors 1000", "WARN  h2  a process may open 1000 files", "nofile"},
           {"fact descriptors 100", "FAIL  h2  a process may open 100 files", "nofile"},
           {"fact processes 100", "WARN  h2  a user may have 100 threads", "nproc"},
           {"fact rdma 1", "WARN  h2  a process may lock 65536 bytes", "memlock"},
           {"fact cores 1", "WARN  h2  2 ranks on 1 core (a cgroup's quota)", "-H h2:1"},
           {"down eth1 (10.0.1.2)", "WARN  h2  is down: eth1 (10.0.1.2)", "ip link set eth1 up"},
           {"trouble RONDE_INTERFACE names 'ib0'", "FAIL  h2  RONDE_INTERFACE",
            "a network in which"},
       }) {
    HostReport other = healthy(2, 2);
    take_line(other, fault.line);
    const std::string table = complaints({healthy(1, 2), other});
    EXPECT_TRUE(table.starts_with(fault.finding) && says(table, fault.fix)) << table;
    EXPECT_EQ(std::ranges::count(table, '\n'), 2) << table;
  }
}

TEST(FindingsTest, ClockIsCompared) {
  HostReport other = healthy(2, 2);
  other.ahead = -std::chrono::seconds(3);
  other.ahead_error = std::chrono::milliseconds(1);
  EXPECT_TRUE(says(complaints({healthy(1, 2), other}), "its clock is 3 s behind (within 0.001 s)"));
  other.ahead_error = std::chrono::seconds(4);
  EXPECT_EQ(complaints({healthy(1, 2), other}), "");
}

TEST(FindingsTest, ADroppedWayNamesTheRule) {
  HostReport first = healthy(1, 2);
  take_line(first, "reached 10.0.0.2:4711 dropped");
  const std::string table = complaints({first, healthy(2, 2)}, "4700-4799");
  EXPECT_EQ(
      table,
      "FAIL  h1  h1 cannot reach h2 at 10.0.0.2:4711 (dropped); the other way is open\n"
      "          -> on h2: iptables -I INPUT -p tcp -s 10.0.0.1 --dport 4700:4799 -j ACCEPT\n");
}

TEST(FindingsTest, AnotherNetworkWillDo) {
  std::vector<HostReport> hosts{healthy(1, 2), healthy(2, 2)};
  take_line(hosts[1], "door eth1 10.0.1.0/24 10.0.1.2:4711");
  take_line(hosts[0], "reached 10.0.1.2:4711 Connection refused");
  const std::string table = complaints(hosts);
  EXPECT_TRUE(table.starts_with("WARN  h1  h1 cannot reach h2 at 10.0.1.2:4711 (Connection ref"))
      << table;
  EXPECT_TRUE(says(table, "-> set RONDE_INTERFACE=10.0.0.0/24")) << table;
}

// As on a container's bridge: what answers there is the host itself.
TEST(FindingsTest, AnAddressThatBothHaveLeadsNowhere) {
  std::vector<HostReport> hosts{healthy(1, 2), healthy(2, 2)};
  for (HostReport& host : hosts) {
    host.doors.clear();
    take_line(host, "door docker0 172.17.0.0/16 172.17.0.1:4711");
    take_line(host, "reached 172.17.0.1:4711 ok");
  }
  EXPECT_TRUE(says(complaints(hosts), "FAIL  h1  h1 cannot reach h2 at"));
  hosts[1].identity = hosts[0].identity;
  EXPECT_EQ(complaints(hosts), "");
}

TEST(FindingsTest, WhatSshSays) {
  EXPECT_EQ(mending_of("b", "b: Permission denied (publickey).", ""), "ssh-copy-id b");
  EXPECT_TRUE(says(mending_of("b", "bash: ronderun: command not found", ""), "--agent"));
  EXPECT_TRUE(says(mending_of("b", "timed out", "ssh b ronderun --version"), "ssh b ronderun"));
}

}  // namespace
}  // namespace ronde::launcher
