// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/greeting.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace ronde::runtime {
namespace {

Greeting sample() {
  return {"RONDE_ALGORITHM=auto\n",
          {0},
          2,
          "node7",
          "4f",
          {"10.0.0.1:4000", "[fd00::1]:4001"},
          {std::byte{0}, std::byte{255}},
          {1, 3, "no memory"},
          4711,
          {std::byte{10}, std::byte{11}}};
}

TEST(Greeting, WhatIsSentArrives) {
  const Greeting sent = sample();
  const auto again = decode_greeting(encode(sent), 0);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->settings, sent.settings);
  EXPECT_EQ(again->processors, sent.processors);
  EXPECT_EQ(again->leader, 2);
  EXPECT_EQ(again->host_name, "node7");
  EXPECT_EQ(again->socket_name, "4f");
  EXPECT_EQ(again->addresses, sent.addresses);
  EXPECT_EQ(again->seed, sent.seed);
  EXPECT_EQ(again->trouble.rank, 1);
  EXPECT_EQ(again->trouble.culprit, 3);
  EXPECT_EQ(again->trouble.text, "no memory");
  EXPECT_EQ(again->pid, 4711);
  EXPECT_EQ(again->transport, sent.transport);
}

TEST(Greeting, OfAnotherVersionIsRefusedByRank) {
  auto bytes = encode(sample());
  bytes.pop_back();
  const auto cut = decode_greeting(bytes, 3);
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.status().message(),
            "rank 3 sent a greeting of another version of Ronde: use the same libronde.so on every "
            "rank");
  // As older releases sent it.
  const std::string older = "RONDE_ALGORITHM=auto\n" + std::string(11, '\0');
  EXPECT_FALSE(decode_greeting(std::as_bytes(std::span(older)), 3).ok());
}

// They read eleven texts, each ended by a zero, and print the eighth: "rank 3 cannot start: ...".
TEST(Greeting, OlderReleasesReadWhatIsWrong) {
  const auto bytes = encode(sample());
  std::vector<std::string> texts(1);
  for (const std::byte byte : bytes) {
    if (texts.size() > 11) break;
    if (byte == std::byte{0}) {
      texts.emplace_back();
    } else {
      texts.back() += static_cast<char>(byte);
    }
  }
  ASSERT_EQ(texts.size(), 12U);
  for (std::size_t i = 0; i < 11; ++i) {
    EXPECT_EQ(texts[i], i == 7 ? "it runs another version of Ronde: use the same libronde.so on "
                                 "every rank"
                               : "");
  }
}

TEST(Greeting, TheJobIsReadOffThem) {
  std::vector<Greeting> greetings(3, sample());
  greetings[0].leader = 0;
  greetings[1].leader = 1;
  greetings[2].leader = 0;
  const auto shape = shape_of(greetings);
  ASSERT_TRUE(shape.ok());
  EXPECT_EQ(shape->text(), "hosts of 2 + 1 ranks");
  const auto leaders = leaders_of(greetings, *shape);
  ASSERT_EQ(leaders.size(), 2U);
  EXPECT_EQ(leaders[1].rank, 1);
  EXPECT_EQ(leaders[1].host_name, "node7");
  EXPECT_EQ(leaders[1].addresses, (std::vector<std::string>{"10.0.0.1:4000", "[fd00::1]:4001"}));
  EXPECT_EQ(
      table_of(greetings, *shape, 4096, "MPI (Open MPI v4.1.4; MPI started the job)"),
      "job of hosts of 2 + 1 ranks; inside a host tensors move over shared memory (3 slots of "
      "4096 bytes for each rank), between hosts over MPI (Open MPI v4.1.4; MPI started the job), "
      "and control over TCP\n"
      "  host 0: node7, ranks 0, 2, cores 1, leader at 10.0.0.1:4000 [fd00::1]:4001\n"
      "  host 1: node7, rank 1, cores 1, leader at 10.0.0.1:4000 [fd00::1]:4001");
  greetings[2].leader = -1;
  EXPECT_FALSE(shape_of(greetings).ok());
}

TEST(Greeting, TheTableOfRanksHasTheAddressOfTheLinks) {
  std::vector<Greeting> greetings(3, sample());
  greetings[0].leader = greetings[2].leader = 0;
  greetings[1].leader = 1;
  greetings[1].host_name = "n8";
  greetings[2].pid = 12;
  std::vector<Greeting> verdicts(3);
  verdicts[0].addresses = {"10.0.0.1"};
  verdicts[1].addresses = {"fd00::2"};
  const auto shape = shape_of(greetings);
  ASSERT_TRUE(shape.ok());
  EXPECT_EQ(
      text_of(ranks_of(greetings, verdicts, *shape), *shape, false),
      "rank  host   address    pid  talks to\n"
      "   0  node7  10.0.0.1  4711  rank 2 in shared memory; rank 1 over MPI; rank 1 over TCP "
      "(control)\n"
      "   1  n8     fd00::2   4711  rank 0 over MPI; rank 0 over TCP (control)\n"
      "   2  node7  10.0.0.1    12  rank 0 in shared memory");
}

// What the row of `rank` says after the pid, in a job with these leaders.
std::string talk_of(const std::vector<std::int32_t>& leaders, std::size_t rank,
                    bool messages_only = false, std::int32_t fan_in = HostTree::kFanIn) {
  RankTable table;
  table.places.assign(leaders.size(), {"h", "", "7"});
  table.fan_in = fan_in;
  std::istringstream lines(
      text_of(table, base::JobShape::of_leaders(leaders).value(), messages_only));
  std::string line;
  for (std::size_t i = 0; i < rank + 2; ++i) EXPECT_TRUE(std::getline(lines, line)) << i;
  const std::string::size_type end = line.find("  7  ");
  return end == std::string::npos ? line : line.substr(end + 5);
}

TEST(RankTable, ARowSaysWhatTheRankTalksTo) {
  EXPECT_EQ(talk_of({0}, 0), "no other rank");
  EXPECT_EQ(talk_of({0, 0, 0, 0}, 1), "ranks 0, 2-3 in shared memory");
  EXPECT_EQ(talk_of({0, 0, 0}, 2, true),
            "ranks 0-1 over MPI; ranks 0-1 in shared memory (control)");
  // Hosts that take turns: the ranks at one position are peers, the leaders are linked as well.
  EXPECT_EQ(talk_of({0, 1, 0, 1}, 1),
            "rank 3 in shared memory; rank 0 over MPI; rank 0 over TCP (control)");
  EXPECT_EQ(talk_of({0, 1, 0, 1}, 2), "rank 0 in shared memory; rank 3 over MPI");
  // The second rank of a host has no peer if another host has a single rank.
  EXPECT_EQ(talk_of({0, 0, 2}, 1), "rank 0 in shared memory");
  // A chain: control goes to the neighbours in the tree alone.
  EXPECT_EQ(talk_of({0, 1, 2, 3}, 1, false, 1),
            "ranks 0, 2-3 over MPI; ranks 0, 2 over TCP (control)");
}

TEST(RankTable, ALongListOfRanksIsANumber) {
  std::vector<std::int32_t> leaders;
  for (std::int32_t rank = 0; rank < 40; ++rank) leaders.push_back(rank / 2 * 2);
  EXPECT_EQ(talk_of(leaders, 1), "rank 0 in shared memory; 19 ranks over MPI");
  EXPECT_EQ(talk_of(leaders, 38),
            "rank 39 in shared memory; 19 ranks over MPI; rank 2 over TCP (control)");
}

}  // namespace
}  // namespace ronde::runtime
