// SPDX-License-Identifier: Apache-2.0
// What arrives over a channel whose other end goes away.
#include "launcher/agent/channel.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace ronde::launcher {
namespace {

Channel channel_over(base::FileDescriptor socket) {
  base::FileDescriptor out(::dup(socket.get()));
  return {std::move(socket), std::move(out)};
}

TEST(ChannelTest, WhatWasSaidBeforeTheEndArrivesThoughNothingCanBeSentAnyMore) {
  std::signal(SIGPIPE, SIG_IGN);
  constexpr std::size_t kFrames = 3;
  const std::vector<std::byte> frame(20000);
  auto ends = Channel::make_pair().value();
  Channel ours = channel_over(std::move(ends.ours));
  std::optional<Channel> theirs = channel_over(std::move(ends.theirs));
  for (std::size_t i = 0; i < kFrames; ++i) theirs->send(frame);
  theirs.reset();
  ours.send(frame);  // fails
  EXPECT_FALSE(ours.backlogged());
  std::size_t arrived = 0;
  while (!ours.closed()) {
    ours.read();
    for (auto next = ours.next(); next.ok() && next->has_value(); next = ours.next()) ++arrived;
  }
  EXPECT_EQ(arrived, kFrames);
}

}  // namespace
}  // namespace ronde::launcher
