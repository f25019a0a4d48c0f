// SPDX-License-Identifier: Apache-2.0
// Two starts of a training in one directory at a time: their system calls in all orders, with an
// end of either or of both before each. At no time both have the directory, and what was
// acknowledged is there afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "test/unit/trainer/chief/directory_model.h"

namespace ronde::trainer {
namespace {

using testing::HasSubstr;

// What one call has returned.
struct Returned {
  std::int64_t value = 0;
  std::string bytes{};
  std::vector<std::string> names{};
};
using History = std::vector<std::shared_ptr<const Returned>>;

// A process that has made some calls, and makes one more: so the states of two of them can be
// visited in any order, without threads.
class ReplayedProcess final : public FileSystem {
 public:
  ReplayedProcess(ProcessModel& live, History& history) : live_(live), history_(history) {}

  int open(const std::string& path, int flags) override {
    return small(next([&] { return Returned{live_.open(path, flags)}; }));
  }
  std::int64_t size(int file) override {
    return next([&] { return Returned{live_.size(file)}; }).value;
  }
  std::int64_t read(int file, char* bytes, std::size_t size) override {
    const Returned& returned = next([&] {
      std::string there(size, '\0');
      const std::int64_t got = live_.read(file, there.data(), size);
      there.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
      return Returned{got, there};
    });
    std::copy(returned.bytes.begin(), returned.bytes.end(), bytes);
    return returned.value;
  }
  std::int64_t write(int file, std::string_view bytes) override {
    return next([&] { return Returned{live_.write(file, bytes)}; }).value;
  }
  int sync(int file) override {
    return small(next([&] { return Returned{live_.sync(file)}; }));
  }
  int close(int file) override {
    try {
      return small(next([&] { return Returned{live_.close(file)}; }));
    } catch (const Killed&) {  // in a destructor, from which nothing is thrown
      return 0;
    }
  }
  int make_directory(const std::string& path) override {
    return small(next([&] { return Returned{live_.make_directory(path)}; }));
  }
  int rename(const std::string& from, const std::string& to) override {
    return small(next([&] { return Returned{live_.rename(from, to)}; }));
  }
  int remove(const std::string& path) override {
    return small(next([&] { return Returned{live_.remove(path)}; }));
  }
  int list(const std::string& path, std::vector<std::string>& names) override {
    const Returned& returned = next([&] {
      Returned listed;
      listed.value = live_.list(path, listed.names);
      return listed;
    });
    names = returned.names;
    return small(returned);
  }
  int lock(int file) override {
    return small(next([&] { return Returned{live_.lock(file)}; }));
  }
  std::string process() override { return live_.process(); }
  Life life(const std::string& process) override {
    return static_cast<Life>(
        next([&] { return Returned{static_cast<std::int64_t>(live_.life(process))}; }).value);
  }
  void pause(std::chrono::milliseconds span) override {
    next([&] {
      live_.pause(span);
      return Returned{};
    });
  }
  std::uint64_t random() override {
    return static_cast<std::uint64_t>(
        next([&] { return Returned{static_cast<std::int64_t>(live_.random())}; }).value);
  }

 private:
  template <typename Live>
  const Returned& next(Live&& live) {
    if (at_ == history_.size()) {
      if (std::exchange(has_made_one_, true)) throw Killed{};
      history_.push_back(std::make_shared<const Returned>(live()));
    }
    return *history_[at_++];
  }
  static int small(const Returned& returned) { return static_cast<int>(returned.value); }

  ProcessModel& live_;
  History& history_;
  std::size_t at_ = 0;
  bool has_made_one_ = false;
};

// What can be different between two searches.
struct Setting {
  std::array<Start, 2> starts;
  std::uint64_t before = 1;  // steps that an earlier training has saved
  bool has_locks = true;
  // Nobody knows whether a process of another host lives: a long silence is taken for death.
  bool on_two_hosts = false;
  Mistake mistake = Mistake::kNone;
};

class StartsSearch {
 public:
  explicit StartsSearch(Setting setting) : setting_(std::move(setting)) {}

  void search() {
    State first;
    first.disk.has_locks = setting_.has_locks;
    if (setting_.before != 0) {
      run_alone(first.disk, {.steps = setting_.before}, first.told, all_is_well);
    }
    visit(first);
    std::printf("%zu states, %d of them with both in, %d disks judged\n", seen_.size(), both_in_,
                judged_);
  }
  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] int both_in() const { return both_in_; }

 private:
  struct State {
    DiskModel disk;
    Told told;
    std::array<History, 2> histories;
    std::array<Outcome, 2> outcomes;
    std::array<bool, 2> killed{};
    std::array<std::size_t, 2> events{};

    [[nodiscard]] bool is_over(std::size_t one) const { return killed[one] || outcomes[one].ended; }
  };

  void visit(const State& state) {
    if (!problem_.empty() || !is_new(state)) return;
    if (seen_.size() > kMostStates) problem_ = "two starts may go round in circles";
    judge_state(state);
    for (const std::size_t one : {0U, 1U}) {
      if (state.is_over(one)) continue;
      visit(after_a_call_of(one, state));
      if (setting_.on_two_hosts) continue;  // each may stand still for ever as it is
      State ended(state);
      ended.killed[one] = true;
      ended.disk.close_files_of(static_cast<int>(one) + 2);
      visit(ended);
    }
  }

  State after_a_call_of(std::size_t one, const State& before) {
    State state(before);
    const auto lives = [&](int process) {
      const std::size_t other = static_cast<std::size_t>(process) - 2;
      if (process == 1) return FileSystem::Life::kDead;
      if (setting_.on_two_hosts) return FileSystem::Life::kUnknown;
      return before.is_over(other) ? FileSystem::Life::kDead : FileSystem::Life::kAlive;
    };
    ProcessModel live(state.disk, static_cast<int>(one) + 2, all_is_well, lives, setting_.mistake);
    ReplayedProcess process(live, state.histories[one]);
    std::size_t events = 0;
    TrainingModel training(process, setting_.starts[one], [&](const Event& event) {
      if (++events > before.events[one]) state.told.take(event);
    });
    training.run();
    state.outcomes[one] = training.outcome;
    state.events[one] = events;
    if (training.outcome.ended) state.disk.close_files_of(static_cast<int>(one) + 2);
    return state;
  }

  bool is_new(const State& state) {
    std::size_t key = 0;
    const auto add = [&key](std::size_t hash) { key = (key ^ hash) * 1099511628211U + 1; };
    const std::hash<std::string> hash;
    add(hash(state.disk.shown_with_synced() + state.told.shown()));
    for (const std::size_t one : {0U, 1U}) {
      add(state.killed[one] ? 1 : 2);
      if (state.is_over(one)) continue;
      for (const auto& returned : state.histories[one]) {
        add(static_cast<std::size_t>(returned->value));
        add(hash(returned->bytes));
        for (const std::string& name : returned->names) add(hash(name));
      }
    }
    return seen_.insert(key).second;
  }

  void judge_state(const State& state) {
    const auto& [first, second] = state.outcomes;
    const bool both_live = !state.is_over(0) && !state.is_over(1);
    if (both_live && first.has_directory && second.has_directory) {
      ++both_in_;
      if (!setting_.on_two_hosts) problem_ = "both have the directory";
    }
    if (setting_.has_locks && first.ended && second.ended && !first.restored && !second.restored) {
      problem_ = "both were refused: " + first.error + "; " + second.error;
    }
    for (const bool cuts_power : {false, true}) {
      DiskModel left(state.disk);
      for (const int process : {2, 3}) left.close_files_of(process);
      if (cuts_power) left.cut_power();
      if (!left_.insert(std::hash<std::string>()(left.shown() + state.told.shown())).second)
        continue;
      ++judged_;
      if (problem_.empty()) problem_ = judge(left, state.told);
    }
    for (const Outcome& one : state.outcomes) {
      if (!one.ended || one.restored || is_a_good_reason(one.error)) continue;
      if (setting_.on_two_hosts) continue;  // it meets the files of one that goes on writing
      problem_ = "refused for another reason: " + one.error;
    }
  }

  static bool is_a_good_reason(const std::string& error) {
    return error.find("is held by another training") != std::string::npos ||
           error.find("has saved nothing: use --restore step-") != std::string::npos;
  }

  static constexpr std::size_t kMostStates = 1'000'000;

  const Setting setting_;
  std::set<std::size_t> seen_;
  std::set<std::size_t> left_;
  std::string problem_;
  int both_in_ = 0;
  int judged_ = 0;
};

std::string problem_of(Setting setting) {
  StartsSearch searched(std::move(setting));
  searched.search();
  return searched.problem();
}

TEST(CheckpointStarts, OneOfTwoHasTheDirectory) {
  EXPECT_EQ(problem_of({.starts = {Start{.steps = 1}, Start{.steps = 1}}}), "");
}

TEST(CheckpointStarts, AlsoTheFirstTwo) {
  EXPECT_EQ(problem_of({.starts = {Start{.steps = 1}, Start{.steps = 1}}, .before = 0}), "");
}

TEST(CheckpointStarts, AlsoWithoutLocks) {
  EXPECT_EQ(problem_of({.starts = {Start{.steps = 1}, Start{.steps = 1}}, .has_locks = false}), "");
}

TEST(CheckpointStarts, AlsoWhereOneBeginsAnew) {
  EXPECT_EQ(problem_of({.starts = {Start{.steps = 1}, Start{.how = "never", .steps = 1}}}), "");
}

TEST(CheckpointStarts, OneTakenForDeadLosesNothing) {
  StartsSearch searched(
      {.starts = {Start{.steps = 1}, Start{.steps = 1}}, .has_locks = false, .on_two_hosts = true});
  searched.search();
  EXPECT_EQ(searched.problem(), "");
  EXPECT_GT(searched.both_in(), 0);
}

TEST(CheckpointStarts, FindThatAnOwnerIsNotExclusive) {
  EXPECT_EQ(problem_of({.starts = {Start{.steps = 1}, Start{.steps = 1}},
                        .has_locks = false,
                        .mistake = Mistake::kNotExclusive}),
            "both have the directory");
}

}  // namespace
}  // namespace ronde::trainer
