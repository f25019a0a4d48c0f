// SPDX-License-Identifier: Apache-2.0
// UCX, through the table of its plug-in, keeps the promises of Transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/support/transport_contract.h"
#include "test/support/ucx_ends.h"
#include "test/unit/collectives/transport/ucx/ends.h"

namespace ronde::collectives::ucx {
namespace {

void run_contract(int ranks) {
  auto ends = ucx_ends(ranks, std::chrono::seconds(60));
  const base::SteadyClock clock;
  const base::Instant begin = clock.now();
  std::vector<std::thread> threads;
  for (auto& end : ends) {
    threads.emplace_back([&end] {
      TransportContract(*end).run_all();
      end.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(clock.now() - begin, std::chrono::seconds(60)) << "an answer to a good-bye was missing";
}

class UcxContract : public testing::TestWithParam<int> {};

TEST_P(UcxContract, IsKept) { run_contract(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Ranks, UcxContract, testing::Values(1, 2, 3));

// Without a network device: UCX's shared memory, which reports the death of a peer only if it is
// asked to.
TEST(UcxContractOfSharedMemory, IsKept) {
  const ScopedVariable transports("UCX_TLS", "posix,self");
  const ScopedVariable errors("UCX_MM_ERROR_HANDLING", "y");
  run_contract(2);
}

TEST(UcxContractOfSharedMemory, WithoutReportsOfLossItIsNotUsed) {
  const ScopedVariable transports("UCX_TLS", "posix,self");
  const auto ends = ucx_ends(2);
  const auto sent = ends[0]->send(1, 0, {});
  ASSERT_FALSE(sent.ok());
  EXPECT_EQ(sent.status().code(), base::Code::kPeerFailed);
  EXPECT_EQ(sent.status().rank(), 1);
  EXPECT_THAT(sent.status().message(), testing::HasSubstr("UCX_TLS"));
  EXPECT_EQ(ends[0]->outstanding(), 0);
}

TEST(UcxPlugin, WrongArgumentsAreErrors) {
  const auto ends = ucx_ends(1);
  EXPECT_EQ(ends[0]->send(1, 0, {}).status().code(), base::Code::kInvalidArgument);
  EXPECT_EQ(ends[0]->receive(-1, 0, {}).status().code(), base::Code::kInvalidArgument);
  EXPECT_EQ(ends[0]->send(0, -1, {}).status().code(), base::Code::kInvalidArgument);
  EXPECT_EQ(ends[0]->connect({}).code(), base::Code::kInvalidArgument);
  EXPECT_EQ(ends[0]->outstanding(), 0);
}

TEST(UcxPlugin, NothingIsDoneAfterAbandon) {
  const auto ends = ucx_ends(2);
  std::byte word{};
  ASSERT_TRUE(ends[0]->receive(1, 0, {&word, 1}).ok());
  ends[0]->abandon();
  EXPECT_FALSE(ends[0]->receive(1, 0, {&word, 1}).ok());
  EXPECT_FALSE(ends[0]->progress().ok());
  EXPECT_FALSE(ends[0]->arm().ok());
}

// An end of a job of one with no other device than this, and whether it reaches itself.
base::Status reach_itself(const std::string& interface) {
  Transport::Options options;
  options.interfaces = interface;
  auto opened = Transport::open(ucx_plugin(), std::move(options));
  RONDE_RETURN_IF_ERROR(opened.status());
  const std::vector<std::vector<std::byte>> addresses{*(*opened)->address()};
  RONDE_RETURN_IF_ERROR((*opened)->connect(addresses));
  const auto sent = (*opened)->send(0, 0, {});
  RONDE_RETURN_IF_ERROR(sent.status());
  TransportContract talk(**opened);
  return talk.finish(talk.receive(0, 0, {}));
}

TEST(UcxPlugin, InterfacesThatTheUserChoseAreUsed) {
  const base::Status loopback = reach_itself("lo");
  EXPECT_TRUE(loopback.ok()) << loopback.to_string();
  EXPECT_THAT(reach_itself("nonesuch0").message(), testing::HasSubstr("UCX_NET_DEVICES"));
}

TEST(UcxPlugin, WhatTheUserToldUcxGoesBeforeThem) {
  const ScopedVariable devices("UCX_NET_DEVICES", "lo");
  const base::Status loopback = reach_itself("nonesuch0");
  EXPECT_TRUE(loopback.ok()) << loopback.to_string();
}

}  // namespace
}  // namespace ronde::collectives::ucx
