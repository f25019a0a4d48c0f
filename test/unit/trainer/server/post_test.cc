// SPDX-License-Identifier: Apache-2.0
// Sockets of tasks: peers that end at a bad moment, and what is kept of those who send too much.
#include "bindings/trainer/server/post.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace ronde::trainer::server {
namespace {

std::string address_of_test() {
  static std::atomic<int> count = 0;
  return "ipc://@ronde-post-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
}

constexpr Address kServerOfPost{Role::kServer, 0, 0};
constexpr Address kWorkerOfPost{Role::kWorker, 1, 7};

std::unique_ptr<Post> worker_at(const std::string& address) {
  auto post = std::make_unique<Post>(PostOptions{.self = kWorkerOfPost, .access = {}, .say = {}});
  post->connect(kServerOfPost, address);
  return post;
}

Message beat_of_post(std::uint64_t sequence) {
  Message message;
  message.from = kWorkerOfPost;
  message.to = kServerOfPost;
  message.sequence = sequence;
  return message;
}

std::vector<Message> receive_of(Post& post, double seconds) {
  std::vector<Message> all;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    for (Message& one : post.receive(0.05)) all.push_back(std::move(one));
  }
  return all;
}

// ZeroMQ 4.3.4 aborts if a heartbeat of its own is due on a connection whose input it has stopped
// (as more waits than the mark allows), and whose other end is gone.
TEST(Post, APeerThatSendsMuchAndEndsIsNoEndOfTheOther) {
  const std::string address = address_of_test();
  Post server({.self = kServerOfPost, .access = {}, .say = {}});
  server.listen(address);
  auto worker = worker_at(address);
  const auto sends_until = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  for (std::uint64_t i = 0; std::chrono::steady_clock::now() < sends_until; ++i) {
    worker->send(beat_of_post(i + 1));
    (void)worker->receive(0.0);
  }
  worker.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(1300));
  EXPECT_THAT(receive_of(server, 0.2), testing::SizeIs(testing::Ge(16U)));
}

}  // namespace
}  // namespace ronde::trainer::server
