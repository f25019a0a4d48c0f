// SPDX-License-Identifier: Apache-2.0
// Ranks that meet over a store, and what they say where they cannot.
#include "runtime/meet/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "test/unit/runtime/meet/meeting_ranks.h"

namespace ronde::runtime {
namespace {

using base::Code;
using base::Result;
using base::Status;
using std::chrono::seconds;
using ::testing::HasSubstr;

// What all ranks share.
class Values {
 public:
  void set(const std::string& key, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    values_[key].assign(bytes.begin(), bytes.end());
    changed_.notify_all();
  }
  Result<std::vector<std::byte>> get(const std::string& key, base::Nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, timeout, [&] { return values_.contains(key); })) {
      return values_[key];
    }
    return Status::error(Code::kDeadline, "no " + key);
  }
  std::size_t keys() {
    const std::lock_guard lock(mutex_);
    return values_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<std::byte>> values_;
};

class SharedStore final : public Store {
 public:
  explicit SharedStore(std::shared_ptr<Values> values) : values_(std::move(values)) {}
  Status set(const std::string& key, std::span<const std::byte> bytes) override {
    EXPECT_LE(key.size(), 128U);
    EXPECT_EQ(key.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789/"), std::string::npos)
        << key;
    if (broken) return Status::error(Code::kSystem, "no space left");
    values_->set(key, bytes);
    return {};
  }
  Result<std::vector<std::byte>> get(const std::string& key, base::Nanoseconds timeout) override {
    return values_->get(key, waits ? timeout : base::Nanoseconds());
  }
  bool broken = false;
  bool waits = true;

 private:
  std::shared_ptr<Values> values_;
};

using Then = std::function<Status(std::int32_t, collectives::Meeting&)>;

// Ranks `ranks` of a job of `size` meet over `values`, each in a thread; returns their errors.
std::vector<Status> meet_at(
    const std::shared_ptr<Values>& values, std::int32_t size,
    const std::vector<std::int32_t>& ranks, const Then& then = {},
    base::Nanoseconds limit = seconds(60),
    const std::function<void(std::int32_t, SharedStore&, std::int32_t&)>& change = {}) {
  const base::SteadyClock clock;
  std::vector<Status> results(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      auto store = std::make_shared<SharedStore>(values);
      std::int32_t told = size;
      if (change) change(ranks[i], *store, told);
      auto met = meet_over(store, ranks[i], told, clock, clock.after(limit));
      results[i] = met.ok() && then ? then(ranks[i], **met) : met.status();
    });
  }
  for (auto& thread : threads) thread.join();
  return results;
}

void expect_each_says(const std::vector<Status>& results, Code code, const std::string& words) {
  for (const Status& result : results) {
    EXPECT_EQ(result.code(), code) << result.to_string();
    EXPECT_THAT(result.message(), HasSubstr(words));
  }
}

TEST(MeetOverStore, AllExchange) {
  const base::SteadyClock clock;
  for (const std::int32_t size : {2, 3, 8}) {
    std::vector<std::int32_t> ranks;
    for (std::int32_t rank = 0; rank < size; ++rank) ranks.push_back(rank);
    const auto values = std::make_shared<Values>();
    const auto results =
        meet_at(values, size, ranks, [&](std::int32_t rank, collectives::Meeting& meeting) {
          EXPECT_EQ(meeting.rank(), rank);
          EXPECT_EQ(meeting.size(), size);
          EXPECT_EQ(std::ssize(meeting.ranks_on_this_host()), size);
          return exchange_and_check(rank, meeting, 5, clock);
        });
    for (const Status& result : results) EXPECT_TRUE(result.ok()) << result.to_string();
    EXPECT_EQ(values->keys(), static_cast<std::size_t>(6 * (size + 1)))
        << "a key of each rank and one with the bytes of all, a round";
  }
}

TEST(MeetOverStore, AStoreThatDoesNotWaitIsAskedAgain) {
  const auto values = std::make_shared<Values>();
  const base::SteadyClock clock;
  const auto impatient = [](std::int32_t, SharedStore& store, std::int32_t&) {
    store.waits = false;
  };
  std::vector<Status> first;
  std::thread early([&] { first = meet_at(values, 3, {1, 2}, {}, seconds(60), impatient); });
  while (values->keys() < 2) std::this_thread::yield();
  const auto last = meet_at(values, 3, {0}, {}, seconds(60), impatient);
  early.join();
  for (const Status& result : {first[0], first[1], last[0]}) {
    EXPECT_TRUE(result.ok()) << result.to_string();
  }
}

TEST(MeetOverStore, ARankThatDoesNotCome) {
  expect_each_says(meet_at(std::make_shared<Values>(), 4, {0, 1, 3}, {}, seconds(5)),
                   Code::kDeadline, "rank 2 (host unknown) took no part in meeting over the store");
  expect_each_says(meet_at(std::make_shared<Values>(), 2, {1}, {}, seconds(1)), Code::kDeadline,
                   "rank 0 (host unknown) took no part in meeting over the store");
}

// A rank that has waited for rank 0 is out of patience before rank 0 is, and names the same one.
TEST(MeetOverStore, RankZeroComesLateAndAnotherRankNever) {
  const auto values = std::make_shared<Values>();
  const base::SteadyClock clock;
  Status early;
  std::thread first([&] {
    early = meet_over(std::make_shared<SharedStore>(values), 1, 3, clock, clock.after(seconds(6)))
                .status();
  });
  while (values->keys() == 0) std::this_thread::yield();  // rank 1 has come
  // From then on rank 0 would give rank 1 as long as it had in the beginning.
  for (const auto come = clock.after(std::chrono::milliseconds(500)); clock.now() < come;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const auto late = meet_at(values, 3, {0}, {}, seconds(12));
  first.join();
  expect_each_says({early, late.front()}, Code::kDeadline,
                   "rank 2 (host unknown) took no part in meeting over the store");
  for (const Status& one : {early, late.front()}) EXPECT_EQ(one.rank(), 2) << one.message();
}

TEST(MeetOverStore, ARankThatTakesNoPartLater) {
  const base::SteadyClock clock;
  const auto without_rank_1 = [&](const collectives::StartTrouble& of_rank_2) {
    auto results = meet_at(std::make_shared<Values>(), 3, {0, 1, 2},
                           [&](std::int32_t rank, collectives::Meeting& meeting) {
                             if (rank == 1) return Status();
                             return meeting
                                 .allgather({}, "doing more",
                                            rank == 2 ? of_rank_2 : collectives::StartTrouble(),
                                            clock, clock.after(seconds(5)))
                                 .status();
                           });
    results.erase(results.begin() + 1);
    return results;
  };
  const auto results = without_rank_1({});
  expect_each_says(results, Code::kDeadline, "took no part in doing more");
  EXPECT_EQ(results[0].rank(), 1);
  expect_each_says(without_rank_1({2, 2, "its disk is full"}), Code::kPeerFailed,
                   "rank 2 cannot start: its disk is full");
}

TEST(MeetOverStore, RanksOfDifferentSizes) {
  const auto results = meet_at(std::make_shared<Values>(), 3, {0, 1, 2}, {}, seconds(20),
                               [](std::int32_t rank, SharedStore&, std::int32_t& told) {
                                 if (rank == 2) told = 4;
                               });
  expect_each_says(results, Code::kInvalidArgument, "was told that the job has 4 ranks");
}

// What an older engine has left is not taken for an answer; where it was a failure, both are named.
TEST(MeetOverStore, AStoreThatWasUsedBefore) {
  const auto values = std::make_shared<Values>();
  for (const Status& result : meet_at(values, 2, {0, 1})) EXPECT_TRUE(result.ok());
  expect_each_says(meet_at(values, 2, {1}), Code::kInvalidArgument,
                   "the store holds what another engine has left there");
  const auto failed = std::make_shared<Values>();
  expect_each_says(meet_at(failed, 2, {0}, {}, seconds(1)), Code::kDeadline, "rank 1");
  expect_each_says(meet_at(failed, 2, {1}), Code::kDeadline, "rank 0 has given up: rank 1");
  expect_each_says(meet_at(failed, 2, {1}), Code::kDeadline,
                   "if an older engine has left that in the store: give all ranks the same size");
}

TEST(MeetOverStore, AStoreThatFails) {
  const auto results = meet_at(
      std::make_shared<Values>(), 2, {0, 1}, {}, seconds(2),
      [](std::int32_t rank, SharedStore& store, std::int32_t&) { store.broken = rank == 1; });
  expect_each_says({results[1]}, Code::kTransport,
                   "the store of the program failed: no space left");
  expect_each_says({results[0]}, Code::kDeadline, "rank 1 (host unknown) took no part");
}

}  // namespace
}  // namespace ronde::runtime
