// SPDX-License-Identifier: Apache-2.0
// N ranks of a collective in one thread, over the in-memory transport: a test steps them in the
// order it likes. Their ends are watched: a buffer that is written while it is being sent, or
// used before it has been received, fails the test; so does a request that points at memory which a
// test has declared to be the user's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/transport/collective.h"
#include "collectives/transport/end_table.h"
#include "collectives/transport/local.h"
#include "collectives/transport/workspace.h"

namespace ronde::collectives {

// An index of a container.
inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// Thread safety: one thread at a time.
class WatchedEnd {
 public:
  using Request = Transport::Request;

  WatchedEnd(std::shared_ptr<LocalHub> hub, int rank) : rank_(rank), inner_(std::move(hub), rank) {}

  [[nodiscard]] int outstanding() const { return inner_.outstanding(); }
  [[nodiscard]] std::int64_t messages() const { return messages_; }
  [[nodiscard]] std::int64_t bytes_sent() const { return bytes_sent_; }
  [[nodiscard]] int most_outstanding() const { return most_outstanding_; }

  // No request may point here until the job has run; after that the memory may be used again.
  void keep_out_of(std::span<const std::byte> users) { users_.push_back(users); }
  void forget_users() { users_.clear(); }

  base::Result<Request> send(int peer, int tag, std::span<const std::byte> data) {
    expect_not_the_users(data);
    base::Result<Request> request = inner_.send(peer, tag, data);
    ++messages_;
    bytes_sent_ += std::ssize(data);
    most_outstanding_ = std::max(most_outstanding_, outstanding());
    if (request.ok()) sent_[*request] = {data, {data.begin(), data.end()}};
    return request;
  }
  base::Result<Request> receive(int peer, int tag, std::span<std::byte> data) {
    expect_not_the_users(data);
    if (!data.empty()) std::memset(data.data(), 0xEE, data.size());
    base::Result<Request> request = inner_.receive(peer, tag, data);
    most_outstanding_ = std::max(most_outstanding_, outstanding());
    return request;
  }
  base::Result<bool> test(Request request) {
    base::Result<bool> done = inner_.test(request);
    if (done.ok() && !*done) return done;
    const auto found = sent_.find(request);
    if (found != sent_.end()) {
      const Sent& sent = found->second;
      EXPECT_TRUE(std::equal(sent.data.begin(), sent.data.end(), sent.copy.begin()))
          << "rank " << rank_ << " wrote to a buffer that was being sent";
      sent_.erase(found);
    }
    return done;
  }

 private:
  struct Sent {
    std::span<const std::byte> data;
    std::vector<std::byte> copy;
  };

  void expect_not_the_users(std::span<const std::byte> data) const {
    const std::less<const std::byte*> before;
    for (const std::span<const std::byte> users : users_) {
      const bool apart = !before(data.data(), users.data() + users.size()) ||
                         !before(users.data(), data.data() + data.size());
      EXPECT_TRUE(data.empty() || users.empty() || apart)
          << "rank " << rank_ << ": a request points at the user's memory";
    }
  }

  const int rank_;
  LocalEnd inner_;
  std::int64_t messages_ = 0;
  std::int64_t bytes_sent_ = 0;
  int most_outstanding_ = 0;
  std::map<Request, Sent> sent_;
  std::vector<std::span<const std::byte>> users_;
};

// The result of one rank's collective.
struct Outcome {
  bool done = false;
  base::Status status;
};

// Thread safety: one thread at a time.
class JobOfRanks {
 public:
  explicit JobOfRanks(int size, FaultPlan plan = {})
      : max_delay_(plan.max_delay), hub_(std::make_shared<LocalHub>(size, std::move(plan))) {
    for (int rank = 0; rank < size; ++rank) {
      workspaces_.push_back(std::make_unique<Workspace>());
      auto end = std::make_unique<WatchedEnd>(hub_, rank);
      watched_.push_back(end.get());
      transports_.push_back(transport_over(std::move(end), rank, size, hub_->delays()));
    }
  }
  ~JobOfRanks() { transports_.clear(); }  // before the workspaces
  JobOfRanks(const JobOfRanks&) = delete;
  JobOfRanks& operator=(const JobOfRanks&) = delete;

  [[nodiscard]] int size() const { return hub_->size(); }
  LocalHub& hub() { return *hub_; }
  Transport& transport(int rank) { return transports_[static_cast<std::size_t>(rank)]; }
  WatchedEnd& watched(int rank) { return *watched_[static_cast<std::size_t>(rank)]; }
  Workspace& workspace(int rank) { return *workspaces_[static_cast<std::size_t>(rank)]; }

  // Steps all ranks until each is done, has failed, or nothing happens any more: in turn, or with a
  // seed in a random order, some ranks more often than others.
  std::vector<Outcome> run(std::vector<std::unique_ptr<Collective>>& collectives,
                           std::uint64_t seed = 0) {
    std::mt19937_64 random(seed);
    std::vector<Outcome> outcomes(collectives.size());
    std::vector<std::size_t> order(collectives.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (int quiet_rounds = 0; quiet_rounds < 20 * (max_delay_ + 2);) {
      bool progress = false;
      bool open = false;
      if (seed != 0) std::shuffle(order.begin(), order.end(), random);
      for (const std::size_t rank : order) {
        // Sometimes one goes on for as long as it can, so that the others are far behind.
        const std::uint64_t steps = seed == 0 ? 1 : random() % 8 == 0 ? 1000 : random() % 3;
        bool moved = true;
        for (std::uint64_t i = 0; i < steps && moved; ++i) {
          moved = step(collectives[rank], outcomes[rank]);
          progress |= moved;
        }
        open |= !outcomes[rank].done && outcomes[rank].status.ok();
      }
      if (!open) break;
      quiet_rounds = progress ? 0 : quiet_rounds + 1;
    }
    for (WatchedEnd* const end : watched_) end->forget_users();
    return outcomes;
  }

  // Runs the collectives and expects that every rank succeeds and that no request is left.
  void expect_done(std::vector<std::unique_ptr<Collective>>& collectives, std::uint64_t seed = 0) {
    expect_done(run(collectives, seed));
  }
  void expect_done(const std::vector<Outcome>& outcomes) {
    for (int rank = 0; rank < size(); ++rank) {
      const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
      ASSERT_TRUE(outcome.done) << "rank " << rank << ": "
                                << (outcome.status.ok() ? "stuck" : outcome.status.to_string());
      ASSERT_EQ(transport(rank).outstanding(), 0) << "rank " << rank;
    }
  }

 private:
  static bool step(const std::unique_ptr<Collective>& collective, Outcome& outcome) {
    if (outcome.done || !outcome.status.ok()) return false;
    const base::Result<StepResult> result = collective->step();
    outcome.status = result.status();
    if (!result.ok()) return true;
    outcome.done = *result == StepResult::kDone;
    return *result != StepResult::kIdle;
  }

  int max_delay_;
  std::shared_ptr<LocalHub> hub_;
  std::vector<std::unique_ptr<Workspace>> workspaces_;
  std::vector<Transport> transports_;
  std::vector<WatchedEnd*> watched_;  // they belong to the transports
};

}  // namespace ronde::collectives
