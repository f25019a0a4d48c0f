// SPDX-License-Identifier: Apache-2.0
// What every transport promises (transport.h), as checks that each rank of a job runs: over memory,
// UCX and MPI alike.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/numbers.h"
#include "base/status.h"
#include "collectives/transport/transport.h"

namespace ronde::collectives {

// One rank's side of the checks. Every rank of the job runs the same checks in the same order; each
// check uses tags of its own.
//
// Thread safety: one thread for each object.
class TransportContract {
 public:
  using Message = std::vector<std::byte>;
  using Request = Transport::Request;

  explicit TransportContract(Transport& transport) : transport_(transport) {}

  void run_all() {
    messages_of_a_tag_arrive_in_the_order_they_were_sent();
    receives_may_come_before_or_after_the_message();
    empty_messages_are_messages();
    many_requests_end_in_any_order();
    another_length_is_an_error();
    EXPECT_EQ(transport_.outstanding(), 0);
  }

  // Each rank sends 12 messages of several sizes on two tags to every rank, itself included.
  void messages_of_a_tag_arrive_in_the_order_they_were_sent() {
    constexpr int kMessages = 12;
    // From a word to what no transport sends in one piece.
    constexpr std::array<std::size_t, 5> kSizes{1, 64, 5000, 200'000, 3'000'000};
    const auto size_of = [&](int n) {
      return kSizes[n == 7 ? 4 : base::narrow<std::size_t>(n % 4)];
    };
    std::vector<Message> received;
    std::vector<Message> sent;
    std::vector<Request> requests;
    for (const int tag : {7, 3}) {
      for_peers([&](int) {
        for (int n = 0; n < kMessages; ++n) received.emplace_back(size_of(n));
      });
      static_cast<void>(tag);
    }
    std::size_t at = 0;
    for (const int tag : {7, 3}) {
      for_peers([&](int peer) {
        for (int n = 0; n < kMessages; ++n) requests.push_back(receive(peer, tag, received[at++]));
      });
    }
    sent.reserve(received.size());
    for (int n = 0; n < kMessages; ++n) {
      for_peers([&](int peer) {
        for (const int tag : {3, 7}) {
          sent.push_back(make(rank(), peer, n * 10 + tag, size_of(n)));
          requests.push_back(send(peer, tag, sent.back()));
        }
      });
    }
    EXPECT_EQ(transport_.outstanding(), base::narrow<int>(requests.size()));
    finish_all(requests);
    at = 0;
    for (const int tag : {7, 3}) {
      for_peers([&](int peer) {
        for (int n = 0; n < kMessages; ++n) {
          ASSERT_TRUE(equal(received[at++], make(peer, rank(), n * 10 + tag, size_of(n))))
              << "message " << n << " of tag " << tag << " from " << peer;
        }
      });
    }
  }

  // A message that arrives first waits for its receive, small or large.
  void receives_may_come_before_or_after_the_message() {
    for (const std::size_t size : {std::size_t{16}, std::size_t{1'000'000}}) {
      for (const bool early : {false, true}) {
        std::vector<Message> received(peers(), Message(size));
        std::vector<Message> sent;
        std::vector<Request> requests;
        sent.reserve(peers());
        const auto receive_all = [&] {
          for_peers([&](int peer) {
            requests.push_back(receive(peer, 11, received[base::narrow<std::size_t>(peer)]));
          });
        };
        if (early) receive_all();
        for_peers([&](int peer) {
          sent.push_back(make(rank(), peer, early ? 1 : 2, size));
          requests.push_back(send(peer, 11, sent.back()));
        });
        // A word from everybody: what was sent before is on its way.
        meet(12);
        if (!early) receive_all();
        finish_all(requests);
        for_peers([&](int peer) {
          ASSERT_TRUE(equal(received[base::narrow<std::size_t>(peer)],
                            make(peer, rank(), early ? 1 : 2, size)));
        });
      }
    }
  }

  void empty_messages_are_messages() {
    std::vector<Request> requests;
    for_peers([&](int peer) { requests.push_back(receive(peer, 21, {})); });
    for (const Request request : requests) {
      const auto done = transport_.test(request);
      ASSERT_TRUE(done.ok());
      ASSERT_FALSE(*done) << "nothing was sent yet";
    }
    meet(22);
    for_peers([&](int peer) { requests.push_back(send(peer, 21, {})); });
    finish_all(requests);
  }

  // Hundreds at once, of many tags, tested in a random order.
  void many_requests_end_in_any_order() {
    constexpr int kTags = 100;
    const auto tag_of = [](int n) { return n == kTags - 1 ? 32767 : 100 + n * 300; };
    std::vector<Message> received(peers() * kTags, Message(300));
    std::vector<Message> sent;
    std::vector<Request> requests;
    sent.reserve(received.size());
    std::size_t at = 0;
    for (int n = 0; n < kTags; ++n) {
      for_peers([&](int peer) { requests.push_back(receive(peer, tag_of(n), received[at++])); });
    }
    for (int n = kTags - 1; n >= 0; --n) {
      for_peers([&](int peer) {
        sent.push_back(make(rank(), peer, n, 300));
        requests.push_back(send(peer, tag_of(n), sent.back()));
      });
    }
    std::shuffle(requests.begin(), requests.end(), std::mt19937(base::narrow<unsigned>(rank())));
    finish_all(requests);
    at = 0;
    for (int n = 0; n < kTags; ++n) {
      for_peers([&](int peer) { ASSERT_TRUE(equal(received[at++], make(peer, rank(), n, 300))); });
    }
  }

  // The next rank sends less and more than this one expects. It concerns that message alone.
  void another_length_is_an_error() {
    const int next = (rank() + 1) % transport_.size();
    const int previous = (rank() + transport_.size() - 1) % transport_.size();
    for (const std::size_t sent_bytes : {std::size_t{0}, std::size_t{7}, std::size_t{9}}) {
      // Open MPI cuts a longer message of a rank to itself without a word.
      if (sent_bytes > 8 && next == rank()) continue;
      Message room(16);  // a transport may write behind the end of a receive
      const Message message = make(rank(), previous, 5, sent_bytes);
      const Request received = receive(next, 31, std::span(room).first(8));
      const Request sent = send(previous, 31, message);
      const base::Status status = finish(received);
      EXPECT_TRUE(finish(sent).ok());
      ASSERT_FALSE(status.ok()) << sent_bytes << " bytes where 8 were expected";
      EXPECT_EQ(status.code(), base::Code::kTransport) << status.to_string();
      EXPECT_EQ(status.rank(), next) << status.to_string();
      for (const int named : {rank(), next}) {
        EXPECT_NE(status.message().find("rank " + std::to_string(named)), std::string::npos)
            << status.message();
      }
    }
    meet(32);
  }

  // Every rank has come here.
  void meet(int tag) {
    std::vector<Message> words(peers(), Message(1));
    const Message mine(1);
    std::vector<Request> requests;
    for_peers([&](int peer) {
      requests.push_back(receive(peer, tag, words[base::narrow<std::size_t>(peer)]));
      requests.push_back(send(peer, tag, mine));
    });
    finish_all(requests);
  }

  // The n-th message that rank `from` sends to rank `to`.
  static Message make(int from, int to, int n, std::size_t size) {
    Message message(size);
    auto value = static_cast<std::uint32_t>((from * 31 + to) * 1009 + n);
    std::byte* const bytes = message.data();  // a test is not optimised: an iterator would be slow
    for (std::size_t i = 0; i < size; ++i) {
      value = value * 1664525U + 1013904223U;
      bytes[i] = static_cast<std::byte>(value >> 24U);
    }
    return message;
  }

  // As ==, which is slow where it is not optimised.
  static ::testing::AssertionResult equal(const Message& received, const Message& sent) {
    if (received.size() == sent.size() &&
        (sent.empty() || std::memcmp(received.data(), sent.data(), sent.size()) == 0)) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure()
           << ::testing::PrintToString(received) << " is not " << ::testing::PrintToString(sent);
  }

  Request send(int peer, int tag, std::span<const std::byte> message) {
    const auto request = transport_.send(peer, tag, message);
    EXPECT_TRUE(request.ok()) << request.status().to_string();
    return *request;
  }
  Request receive(int peer, int tag, std::span<std::byte> message) {
    const auto request = transport_.receive(peer, tag, message);
    EXPECT_TRUE(request.ok()) << request.status().to_string();
    return *request;
  }
  // Polls until the request has ended.
  base::Status finish(Request request) {
    const base::Instant limit = deadline();
    while (clock_.now() < limit) {
      const auto done = transport_.test(request);
      if (!done.ok()) return done.status();
      if (*done) return {};
      std::this_thread::yield();
    }
    return base::Status::error(base::Code::kDeadline, "the request never ended");
  }
  void finish_all(std::vector<Request> requests) {
    const base::Instant limit = deadline();
    while (!requests.empty() && clock_.now() < limit) {
      std::erase_if(requests, [&](Request request) {
        const auto done = transport_.test(request);
        EXPECT_TRUE(done.ok()) << done.status().to_string();
        return !done.ok() || *done;
      });
      std::this_thread::yield();
    }
    EXPECT_TRUE(requests.empty()) << requests.size() << " requests never ended";
  }

 private:
  [[nodiscard]] int rank() const { return transport_.rank(); }
  [[nodiscard]] std::size_t peers() const { return base::narrow<std::size_t>(transport_.size()); }
  template <typename Body>
  void for_peers(Body&& body) {
    for (int peer = 0; peer < transport_.size(); ++peer) body(peer);
  }
  [[nodiscard]] base::Instant deadline() const { return clock_.after(std::chrono::seconds(60)); }

  Transport& transport_;
  base::SteadyClock clock_;
};

}  // namespace ronde::collectives
