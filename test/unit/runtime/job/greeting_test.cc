// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/greeting.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ronde::runtime {
namespace {

Greeting sample() {
  return {"RONDE_ALGORITHM=auto\n",       "0",    "2",         "node7", "4f",
          "10.0.0.1:4000 [fd00::1]:4001", "00ff", "no memory", "3"};
}

TEST(Greeting, WhatIsSentArrives) {
  const auto again = decode_greeting(encode(sample()), 0);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, sample());
}

TEST(Greeting, OfAnotherVersionIsRefusedByRank) {
  auto bytes = encode(sample());
  bytes.pop_back();
  const auto cut = decode_greeting(bytes, 3);
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.status().message(),
            "rank 3 sent a greeting of another version of Ronde: use the same libronde.so on every "
            "rank");
}

TEST(Greeting, TheJobIsReadOffThem) {
  std::vector<Greeting> greetings(3, sample());
  greetings[0].leader = "0";
  greetings[1].leader = "1";
  greetings[2].leader = "0";
  const auto shape = shape_of(greetings);
  ASSERT_TRUE(shape.ok());
  EXPECT_EQ(shape->text(), "hosts of 2 + 1 ranks");
  const auto leaders = leaders_of(greetings, *shape);
  ASSERT_EQ(leaders.size(), 2U);
  EXPECT_EQ(leaders[1].rank, 1);
  EXPECT_EQ(leaders[1].host_name, "node7");
  EXPECT_EQ(leaders[1].addresses, (std::vector<std::string>{"10.0.0.1:4000", "[fd00::1]:4001"}));
  EXPECT_EQ(
      table_of(greetings, *shape, 4096),
      "job of hosts of 2 + 1 ranks; inside a host tensors move over shared memory (3 slots of "
      "4096 bytes for each rank), between hosts over MPI, and control over TCP\n"
      "  host 0: node7, ranks 0, 2, cores 1, leader at 10.0.0.1:4000 [fd00::1]:4001\n"
      "  host 1: node7, rank 1, cores 1, leader at 10.0.0.1:4000 [fd00::1]:4001");
  greetings[2].leader = "no number";
  EXPECT_FALSE(shape_of(greetings).ok());
}

TEST(Greeting, TheSecretSurvivesItsText) {
  JobSecret secret{};
  for (std::size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<std::byte>(i * 17);
  const auto again = secret_of_hex(hex_of(secret));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, secret);
  EXPECT_FALSE(secret_of_hex("").ok());
  EXPECT_FALSE(secret_of_hex(hex_of(secret) + "0").ok());
  std::string wrong = hex_of(secret);
  wrong[5] = 'x';
  EXPECT_FALSE(secret_of_hex(wrong).ok());
}

}  // namespace
}  // namespace ronde::runtime
