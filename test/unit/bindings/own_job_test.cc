// SPDX-License-Identifier: Apache-2.0
// Engines whose options say which rank of how many they are: over stores, several jobs side by side
// in one process, and options that make no sense.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <ronde/ronde.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using testing::HasSubstr;

// What the ranks of one job share in this process.
class MemoryStore final : public ronde::Store {
 public:
  void set(const std::string& key, std::span<const std::byte> value) override {
    const std::lock_guard lock(mutex_);
    values_[key].assign(value.begin(), value.end());
    changed_.notify_all();
  }
  std::optional<std::vector<std::byte>> get(const std::string& key,
                                            std::chrono::nanoseconds timeout) override {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, timeout, [&] { return values_.contains(key); })) {
      return values_[key];
    }
    return std::nullopt;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<std::byte>> values_;
};

class BrokenStore final : public ronde::Store {
 public:
  void set(const std::string&, std::span<const std::byte>) override {
    throw std::runtime_error("the disk is gone");
  }
  std::optional<std::vector<std::byte>> get(const std::string&, std::chrono::nanoseconds) override {
    return std::nullopt;
  }
};

float sum_over(ronde::Engine& engine, const std::string& name, float mine) {
  std::vector<float> values(100, mine);
  engine.allreduce_blocking(name, values, ronde::sum);
  return values[99];
}

void in_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (auto& thread : threads) thread.join();
}

// The error of opening an engine; "opened" if there is none.
std::string opened(const std::function<void(ronde_engine_options&)>& change) {
  ronde_engine_options options;
  ronde_engine_options_init(&options);
  change(options);
  try {
    const ronde::Engine engine(options);
    return "opened";
  } catch (const ronde::Error& error) {
    EXPECT_EQ(error.status(), RONDE_INVALID_ARGUMENT);
    return error.what();
  }
}

TEST(OwnJob, OverAStore) {
  MemoryStore store;
  in_threads(3, [&](int rank) {
    ronde::Engine engine(store, rank, 3);
    EXPECT_EQ(engine.rank(), rank);
    EXPECT_EQ(engine.size(), 3);
    EXPECT_EQ(engine.local_size(), 3);
    EXPECT_EQ(sum_over(engine, "x", static_cast<float>(rank + 1)), 6.0F);
    engine.close();
  });
}

TEST(OwnJob, AtAMeetingPoint) {
  const std::string meet = "localhost:" + std::to_string(1 + ::getpid() % 65535);
  in_threads(2, [&](int rank) {
    ronde_engine_options options;
    ronde_engine_options_init(&options);
    options.rank = rank;
    options.size = 2;
    options.meet = meet.c_str();
    ronde::Engine engine(options);
    EXPECT_EQ(sum_over(engine, "x", static_cast<float>(rank + 1)), 3.0F);
    engine.close();
  });
}

// Jobs of different members, opened, used and closed in different orders on different ranks.
TEST(OwnJob, SeveralSideBySide) {
  MemoryStore all;
  MemoryStore pair;
  MemoryStore other_pair;
  in_threads(3, [&](int rank) {
    ronde::Engine world(all, rank, 3);
    std::optional<ronde::Engine> first;
    std::optional<ronde::Engine> second;
    if (rank < 2) first.emplace(pair, rank, 2);             // world's ranks 0 and 1
    if (rank > 0) second.emplace(other_pair, 2 - rank, 2);  // its ranks 2 and 1, in this order
    for (int step = 0; step < 20; ++step) {
      const std::string name = "step " + std::to_string(step);
      const float mine = static_cast<float>(rank);
      EXPECT_TRUE(rank != 2 || sum_over(*second, name, mine) == 3.0F);
      EXPECT_TRUE(rank == 2 || sum_over(*first, name, mine) == 1.0F);
      EXPECT_TRUE(rank != 1 || sum_over(*second, name, mine) == 3.0F);
      EXPECT_EQ(sum_over(world, name, static_cast<float>(rank)), 3.0F);
    }
    if (rank == 1) second->close();
    if (first) first->close();
    if (rank == 2) second->close();
    EXPECT_EQ(sum_over(world, "last", 1.0F), 3.0F) << "the others are closed";
    world.close();
  });
}

TEST(OwnJob, OfOne) {
  MemoryStore store;
  ronde::Engine engine(store, 0, 1);
  EXPECT_EQ(sum_over(engine, "x", 2.0F), 2.0F);
  EXPECT_EQ(opened([](auto& options) { options.size = 1; }), "opened");
}

TEST(OwnJob, WhatAStoreThrows) {
  BrokenStore store;
  try {
    const ronde::Engine engine(store, 1, 2);
    FAIL() << "it opened";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the disk is gone");
  }
}

// Rank 0's connection to it breaks once it has said that it is there.
class BreakingStore final : public ronde::Store {
 public:
  BreakingStore(MemoryStore& store, std::string words) : store_(store), words_(std::move(words)) {}
  void set(const std::string& key, std::span<const std::byte> value) override {
    store_.set(key, value);
  }
  std::optional<std::vector<std::byte>> get(const std::string&, std::chrono::nanoseconds) override {
    throw std::runtime_error(words_);
  }

 private:
  MemoryStore& store_;
  const std::string words_;
};

// What rank 1 is told when the store of rank 0 throws this.
std::string told(const std::string& words) {
  MemoryStore store;
  std::thread first([&] {
    BreakingStore breaking(store, words);
    EXPECT_THROW(ronde::Engine(breaking, 0, 2), std::runtime_error);
  });
  const std::string said = [&] {
    try {
      const ronde::Engine engine(store, 1, 2);
    } catch (const ronde::Error& error) {
      return std::string(error.what());
    }
    return std::string("it opened");
  }();
  first.join();
  return said;
}

TEST(OwnJob, WhatTheStoreOfOneRankThrowsReachesTheOthers) {
  EXPECT_THAT(told("connection reset by 10.0.0.9"),
              HasSubstr("the store of the program failed: connection reset by 10.0.0.9: get of"));
  EXPECT_THAT(told(""), HasSubstr("the store of the program failed: get of"));
}

TEST(OwnJob, OptionsThatMakeNoSense) {
  ronde_store store;
  ronde_store_init(&store);
  EXPECT_THAT(opened([](auto& options) { options.rank = 1; }), HasSubstr("set size too"));
  EXPECT_THAT(opened([](auto& options) { options.meet = "a:1"; }), HasSubstr("set size too"));
  EXPECT_THAT(opened([&](auto& options) { options.store = &store; }), HasSubstr("set size too"));
  EXPECT_THAT(opened([](auto& options) { options.size = -2; }), HasSubstr("give rank 0 of -2"));
  EXPECT_THAT(opened([](auto& options) {
                options.size = 2;
                options.rank = 2;
              }),
              HasSubstr("give rank 2 of 2: ranks count from 0"));
  EXPECT_THAT(opened([](auto& options) { options.size = 2; }), HasSubstr("RONDE_MEET is not set"));
  EXPECT_THAT(opened([](auto& options) {
                options.size = 2;
                options.meet = "nowhere";
              }),
              HasSubstr("the option meet=nowhere is not valid: expected host:port"));
  EXPECT_THAT(opened([&](auto& options) {
                options.size = 2;
                options.store = &store;
              }),
              HasSubstr("set or get of the store"));
  const ronde::LocalJob local(2);
  EXPECT_THAT(opened([&](auto& options) {
                options.size = 2;
                options.local_job = local.get();
              }),
              HasSubstr("give one of them"));
  store.set = [](void*, const char*, const void*, std::size_t) { return RONDE_OK; };
  store.get = [](void*, const char*, std::int64_t, ronde_store_take, void*) { return RONDE_OK; };
  EXPECT_THAT(opened([&](auto& options) {
                options.size = 2;
                options.store = &store;
                options.meet = "a:1";
              }),
              HasSubstr("give one of them"));
  store.struct_size = 0;
  EXPECT_THAT(opened([&](auto& options) {
                options.size = 2;
                options.store = &store;
              }),
              HasSubstr("struct_size is not set"));
}

// ---- several engines of a process at one meeting point ----

// Meeting points on this host that no other test has.
std::string next_point() {
  static std::atomic<int> next{0};
  return "localhost:" + std::to_string(20000 + (::getpid() * 17 + next++) % 40000);
}

ronde_engine_options at(const std::string& point, int rank, int size, const char* name = nullptr) {
  ronde_engine_options options;
  ronde_engine_options_init(&options);
  options.rank = rank;
  options.size = size;
  options.meet = point.c_str();
  options.name = name;
  return options;
}

// The error of opening one; "opened" if there is none.
std::string opened_at(const std::string& point, int rank, int size, const char* name = nullptr) {
  return opened([&](ronde_engine_options& options) { options = at(point, rank, size, name); });
}

class OneMeetingPoint : public testing::Test {
 protected:
  ~OneMeetingPoint() override { ::unsetenv("RONDE_START_TIMEOUT_SECONDS"); }
  // In tests that wait for it.
  static void hurry() { ::setenv("RONDE_START_TIMEOUT_SECONDS", "1", 1); }

  const std::string point_ = next_point();
};

// The threads of the two ranks come in different orders, and each has the same names of tensors.
TEST_F(OneMeetingPoint, EnginesOfOneNameMeetInAnyOrder) {
  const std::vector<std::string> names{"metric", "model", "third"};
  in_threads(6, [&](int thread) {
    const int rank = thread / 3;
    const int which = thread % 3;
    std::this_thread::sleep_for(
        std::chrono::milliseconds(rank == 0 ? 40 * which : 80 - 40 * which));
    const std::string& name = names[static_cast<std::size_t>(which)];
    ronde::Engine engine(at(point_, rank, 2, name.c_str()));
    EXPECT_EQ(sum_over(engine, "grad", static_cast<float>(which)), static_cast<float>(2 * which));
    engine.close();
  });
}

// Ranks 0 and 1 have opened one more than rank 2, at one place.
TEST_F(OneMeetingPoint, EnginesWithoutANameThatAreOutOfStepAreAnErrorOnEveryRank) {
  in_threads(3, [&](int rank) { EXPECT_EQ(opened_at(point_, rank, 3), "opened"); });
  in_threads(2, [&](int rank) { EXPECT_EQ(opened_at(point_, rank, 2), "opened"); });
  in_threads(3, [&](int rank) {
    EXPECT_THAT(opened_at(point_, rank, 3),
                AllOf(HasSubstr("rank 0 an engine without a name (number 3), rank 2 an engine "
                                "without a name (number 2)"),
                      HasSubstr("with a name each")));
  });
}

// Rank 1's named engine joins the meeting that rank 0 makes for one without a name, and leaves it
// to that one, which counts as all of them do.
TEST_F(OneMeetingPoint, EnginesWithAndWithoutANameMeetAtOnePlace) {
  for (int time = 0; time < 2; ++time) {
    in_threads(2, [&](int rank) { EXPECT_EQ(opened_at(point_, rank, 2), "opened"); });
  }
  in_threads(4, [&](int thread) {
    const int rank = thread / 2;
    const bool named = thread % 2 == 1;
    if (named == (rank == 0)) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(opened_at(point_, rank, 2, named ? "a" : nullptr), "opened") << thread;
  });
  in_threads(2, [&](int rank) { EXPECT_EQ(opened_at(point_, rank, 2), "opened"); });
}

// As one that was started anew beside another one that was not.
TEST_F(OneMeetingPoint, AProcessThatHasOpenedNoneTakesTheNumberOfTheOthers) {
  in_threads(2, [&](int rank) { EXPECT_EQ(opened_at(point_, rank, 2), "opened"); });
  for (int time = 0; time < 2; ++time) {
    in_threads(3, [&](int rank) { EXPECT_EQ(opened_at(point_, rank, 3), "opened"); });
  }
}

TEST_F(OneMeetingPoint, AnOpeningThatFailedDoesNotCount) {
  hurry();
  ronde_engine_options alone = at(point_, 0, 2);
  EXPECT_THROW(ronde::Engine engine(alone), ronde::Error) << "rank 1 did not come";
  ::unsetenv("RONDE_START_TIMEOUT_SECONDS");
  in_threads(2, [&](int rank) { EXPECT_EQ(opened_at(point_, rank, 2), "opened"); });
}

// Both threads of rank 0 are refused, and so is rank 1, which came for one of them.
TEST_F(OneMeetingPoint, TwoWithoutANameAtOnceAreRefused) {
  std::atomic<bool> one_is_refused = false;  // the second of the two, whichever that is
  std::vector<std::string> said(2);
  in_threads(3, [&](int thread) {
    if (thread == 2) {
      one_is_refused.wait(false);
      EXPECT_THAT(opened_at(point_, 1, 2), HasSubstr("rank 0 opens two engines"));
      return;
    }
    said[static_cast<std::size_t>(thread)] = opened_at(point_, 0, 2);
    one_is_refused = true;
    one_is_refused.notify_all();
  });
  const std::string what = " two engines without a name at the same time";
  EXPECT_THAT(said, testing::UnorderedElementsAre(HasSubstr("rank 0 opens" + what),
                                                  HasSubstr("this process opens" + what)));
}

// Neither rank goes on to its second engine, so both wait for the other until the deadline.
TEST_F(OneMeetingPoint, NamesInDifferentOrdersOfOneThreadAreInTheErrors) {
  hurry();
  in_threads(2, [&](int rank) {
    const ronde_engine_options options = at(point_, rank, 2, rank == 0 ? "a" : "b");
    try {
      const ronde::Engine engine(options);
      ADD_FAILURE() << "opened";
    } catch (const ronde::Error& error) {
      EXPECT_EQ(error.status(), RONDE_DEADLINE);
      EXPECT_THAT(error.what(),
                  HasSubstr("rank 1 came with engine 'b', and rank 0 with engine 'a'"));
    }
  });
}

// What rank 1 left to an engine "a" of its own has ended with the start that it was for.
TEST_F(OneMeetingPoint, AStartThatFailedLeavesNothingToTheNextOne) {
  hurry();
  in_threads(2, [&](int rank) {
    const ronde_engine_options options = at(point_, rank, 2, rank == 0 ? "a" : "b");
    EXPECT_THROW(ronde::Engine engine(options), ronde::Error);
  });
  ::unsetenv("RONDE_START_TIMEOUT_SECONDS");
  in_threads(2, [&](int rank) { EXPECT_EQ(opened_at(point_, rank, 2, "a"), "opened"); });
}

TEST_F(OneMeetingPoint, AStoreIsOfEnginesOfOneName) {
  MemoryStore store;
  in_threads(2, [&](int rank) {
    const std::string name = "engine " + std::to_string(rank);
    const ronde::detail::StoreFunctions functions(store);
    const std::string text = opened([&](ronde_engine_options& options) {
      options.store = functions.get();
      options.rank = rank;
      options.size = 2;
      options.name = name.c_str();
    });
    EXPECT_THAT(text, HasSubstr("rank 1 came with engine 'engine 1'"));
  });
}

}  // namespace
