// SPDX-License-Identifier: Apache-2.0
// Which addresses a leader listens on, and the order in which it tries those of another.
#include "base/wire/interfaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ronde::base {
namespace {

using ::testing::ElementsAre;

InterfaceAddress interface(const std::string& name, const std::string& address, int prefix_length,
                           bool up = true) {
  InterfaceAddress entry;
  entry.name = name;
  entry.address = parse_address(address).value();
  entry.prefix_length = prefix_length;
  entry.up = up;
  entry.loopback = name == "lo";
  return entry;
}

std::vector<InterfaceAddress> host() {
  return {interface("lo", "127.0.0.1", 8),         interface("lo", "::1", 128),
          interface("eth0", "fd00::5", 64),        interface("eth0", "fe80::5", 64),
          interface("eth0", "10.0.0.5", 24),       interface("ib0", "192.168.7.5", 20),
          interface("eth9", "10.9.0.5", 24, false)};
}

std::vector<std::string> chosen(const std::vector<InterfaceAddress>& all, const std::string& words,
                                bool strict = true) {
  const auto result = choose_addresses(all, {words, strict}, "node7");
  if (!result.ok()) return {result.status().message()};
  std::vector<std::string> texts;
  for (const InterfaceAddress& one : *result) texts.push_back(text_of(one.address));
  return texts;
}

TEST(Interfaces, AddressesAsText) {
  for (const char* text : {"10.0.0.1", "255.255.255.255", "::1", "fd00::a:1", "fe80::5"}) {
    const auto address = parse_address(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(text_of(*address), text);
  }
  for (const char* text :
       {"", "10.0.0", "10.0.0.1.2", "10.0.0.256", "eth0", "::g", "1:2", " ::1"}) {
    EXPECT_FALSE(parse_address(text)) << text;
  }
}

TEST(Interfaces, EndpointsAsText) {
  for (const char* text : {"10.0.0.1:4711", "[fd00::1]:4711", "[::1]:65535", "127.0.0.1:1"}) {
    const auto endpoint = parse_endpoint(text);
    ASSERT_TRUE(endpoint) << text;
    EXPECT_EQ(text_of(*endpoint), text);
  }
  for (const char* text : {"", ":", "10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536",
                           "10.0.0.1:-1", "10.0.0.1:1x", "fd00::1:80", "[fd00::1]", "[fd00::1]80",
                           "[10.0.0.1]:80", "[]:80", "[:80", "node7:80"}) {
    EXPECT_FALSE(parse_endpoint(text)) << text;
  }
}

TEST(Interfaces, NetworksOfEveryLength) {
  const auto same = [](const char* left, int length, const char* right) {
    return same_network(*parse_address(left), length, *parse_address(right));
  };
  EXPECT_TRUE(same("10.0.0.1", 24, "10.0.0.254"));
  EXPECT_FALSE(same("10.0.0.1", 24, "10.0.1.1"));
  EXPECT_TRUE(same("10.0.0.1", 23, "10.0.1.1"));
  EXPECT_TRUE(same("192.168.7.5", 20, "192.168.15.255"));
  EXPECT_FALSE(same("192.168.7.5", 20, "192.168.16.0"));
  EXPECT_TRUE(same("10.0.0.1", 0, "99.0.0.1"));
  EXPECT_TRUE(same("10.0.0.1", 32, "10.0.0.1"));
  EXPECT_FALSE(same("10.0.0.1", 32, "10.0.0.0"));
  EXPECT_FALSE(same("10.0.0.1", 0, "fd00::1")) << "another family";
  EXPECT_TRUE(same("fd00::1", 8, "fdff::1"));
  EXPECT_FALSE(same("fd00::1", 8, "fe00::1"));
  EXPECT_TRUE(same("fd00::1", 128, "fd00::1"));
  EXPECT_FALSE(same("fd00::1", 128, "fd00::2"));
}

TEST(Interfaces, EverythingThatIsUpAndNotLoopback) {
  EXPECT_THAT(chosen(host(), ""), ElementsAre("10.0.0.5", "192.168.7.5", "fd00::5"));
  EXPECT_THAT(chosen(host(), " , "), ElementsAre("10.0.0.5", "192.168.7.5", "fd00::5"));
}

TEST(Interfaces, LoopbackWhenThereIsNothingElse) {
  EXPECT_THAT(chosen({interface("lo", "::1", 128), interface("lo", "127.0.0.1", 8),
                      interface("eth0", "10.0.0.5", 24, false), interface("eth1", "fe80::5", 64)},
                     ""),
              ElementsAre("127.0.0.1", "::1"));
  EXPECT_THAT(chosen({interface("eth0", "10.0.0.5", 24, false)}, ""),
              ElementsAre("host node7 has no network interface that is up; there are: eth0 "
                          "(10.0.0.5/24, down)"));
  EXPECT_THAT(chosen({}, ""),
              ElementsAre("host node7 has no network interface that is up; there are: none"));
}

TEST(Interfaces, NamesAndNetworks) {
  EXPECT_THAT(chosen(host(), "eth0"), ElementsAre("10.0.0.5", "fd00::5"));
  EXPECT_THAT(chosen(host(), "lo"), ElementsAre("127.0.0.1", "::1"));
  EXPECT_THAT(chosen(host(), "10.0.0.0/8"), ElementsAre("10.0.0.5"));
  EXPECT_THAT(chosen(host(), "192.168.0.0/16 , eth0"),
              ElementsAre("10.0.0.5", "192.168.7.5", "fd00::5"));
  EXPECT_THAT(chosen(host(), "10.0.0.5,10.0.0.0/8,eth0"), ElementsAre("10.0.0.5", "fd00::5"));
  EXPECT_THAT(chosen(host(), "fd00::/8"), ElementsAre("fd00::5"));
  EXPECT_THAT(chosen(host(), "fe80::/10"), ElementsAre("fe80::5"));
  EXPECT_THAT(chosen(host(), "0.0.0.0/0"), ElementsAre("127.0.0.1", "10.0.0.5", "192.168.7.5"));
}

TEST(Interfaces, AWordThatMatchesNothingIsOneLine) {
  const std::string there =
      "', which no interface of host node7 matches; there are: lo (127.0.0.1/8), lo (::1/128), "
      "eth0 (fd00::5/64), eth0 (fe80::5/64), eth0 (10.0.0.5/24), ib0 (192.168.7.5/20), eth9 "
      "(10.9.0.5/24, down)";
  for (const std::string word : {"eht0", "eth", "11.0.0.0/8", "10.0.0.0/33", "10.0.0.0/",
                                 "10.0.0.0/-1", "fd01::/129", "10.0.0/8", "eth9", "10.9.0.0/16"}) {
    EXPECT_THAT(chosen(host(), "eth0," + word),
                ElementsAre("RONDE_INTERFACE names '" + word + there));
  }
  EXPECT_EQ(choose_addresses(host(), {"eht0", true}, "node7").status().code(),
            Code::kInvalidArgument);
}

TEST(Interfaces, TheWordsOfMpiServeWhereThereAreNoneOfOurs) {
  const std::vector<std::string> environment{"HOME=/h", "OMPI_MCA_btl_tcp_if_include=eth0,eth77"};
  const auto of_mpi = wanted_interfaces("", environment);
  EXPECT_EQ(of_mpi.words, "eth0,eth77");
  EXPECT_FALSE(of_mpi.strict);
  const auto ours = wanted_interfaces("ib0", environment);
  EXPECT_EQ(ours.words, "ib0");
  EXPECT_TRUE(ours.strict);
  EXPECT_EQ(wanted_interfaces("", {}).words, "");
  // Without strictness a word that matches nothing is ignored, alone or beside others.
  EXPECT_THAT(chosen(host(), "eth0,eth77", false), ElementsAre("10.0.0.5", "fd00::5"));
  EXPECT_THAT(chosen(host(), "eth77", false), ElementsAre("10.0.0.5", "192.168.7.5", "fd00::5"));
}

TEST(Interfaces, NearAddressesFirstAndOwnOnesLast) {
  const std::vector<InterfaceAddress> mine{interface("docker0", "172.17.0.1", 16),
                                           interface("eth0", "10.0.0.5", 24),
                                           interface("eth0", "fd00::5", 64)};
  std::vector<Endpoint> theirs;
  for (const char* text : {"172.17.0.1:1", "192.168.0.9:1", "[fd01::9]:2", "10.0.0.9:1",
                           "[fd00::9]:2", "10.0.1.9:1"}) {
    theirs.push_back(parse_endpoint(text).value());
  }
  std::vector<std::string> ordered;
  for (const Endpoint& one : order_by_nearness(theirs, mine)) ordered.push_back(text_of(one));
  EXPECT_THAT(ordered, ElementsAre("10.0.0.9:1", "[fd00::9]:2", "192.168.0.9:1", "[fd01::9]:2",
                                   "10.0.1.9:1", "172.17.0.1:1"));
}

TEST(Interfaces, ThisMachineHasALoopback) {
  const auto all = list_interfaces();
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  EXPECT_THAT(chosen(*all, "127.0.0.1"), ElementsAre("127.0.0.1"));
  for (const InterfaceAddress& one : *all) {
    if (text_of(one.address) != "127.0.0.1") continue;
    EXPECT_TRUE(one.loopback && one.up);
    EXPECT_EQ(one.prefix_length, 8);
  }
}

}  // namespace
}  // namespace ronde::base
