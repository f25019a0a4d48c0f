// SPDX-License-Identifier: Apache-2.0
// Two starts of a training in one directory at a time: their system calls in all orders, with an
// end of either or of both before each. At no time both have the directory, and what was
// acknowledged is there afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <compare>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "test/unit/trainer/keep/directory_model.h"

namespace ronde::trainer {
namespace {

using testing::HasSubstr;

// What one call has returned.
struct Returned {
  std::int64_t value = 0;
  std::string bytes{};
  std::vector<std::string> names{};

  auto operator<=>(const Returned&) const = default;
};
using History = std::vector<const Returned*>;
using LiveCall = std::function<Returned(FileSystem& live)>;

// A process that has made some calls, and is about to make one more: so the states of two of them
// can be visited in any order, without threads.
class ReplayedProcess final : public FileSystem {
 public:
  ReplayedProcess(std::string name, const History& history)
      : name_(std::move(name)), history_(history) {}

  // The call that it has not made; none: it has ended.
  LiveCall next_call;

  int open(const std::string& path, int flags) override {
    return small(next([=](FileSystem& live) { return Returned{live.open(path, flags)}; }));
  }
  std::int64_t size(int file) override {
    return next([=](FileSystem& live) { return Returned{live.size(file)}; }).value;
  }
  std::int64_t read(int file, char* bytes, std::size_t size) override {
    const Returned& returned = next([=](FileSystem& live) {
      std::string there(size, '\0');
      const std::int64_t got = live.read(file, there.data(), size);
      there.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
      return Returned{got, there};
    });
    std::copy(returned.bytes.begin(), returned.bytes.end(), bytes);
    return returned.value;
  }
  std::int64_t write(int file, std::string_view bytes) override {
    return next([file, all = std::string(bytes)](FileSystem& live) {
             return Returned{live.write(file, all)};
           })
        .value;
  }
  int sync(int file) override {
    return small(next([=](FileSystem& live) { return Returned{live.sync(file)}; }));
  }
  int close(int file) override {
    try {
      return small(next([=](FileSystem& live) { return Returned{live.close(file)}; }));
    } catch (const Killed&) {  // in a destructor, from which nothing is thrown
      return 0;
    }
  }
  int make_directory(const std::string& path) override {
    return small(next([=](FileSystem& live) { return Returned{live.make_directory(path)}; }));
  }
  int rename(const std::string& from, const std::string& to) override {
    return small(next([=](FileSystem& live) { return Returned{live.rename(from, to)}; }));
  }
  int remove(const std::string& path) override {
    return small(next([=](FileSystem& live) { return Returned{live.remove(path)}; }));
  }
  int list(const std::string& path, std::vector<std::string>& names) override {
    const Returned& returned = next([=](FileSystem& live) {
      Returned listed;
      listed.value = live.list(path, listed.names);
      return listed;
    });
    names = returned.names;
    return small(returned);
  }
  int lock(int file) override {
    return small(next([=](FileSystem& live) { return Returned{live.lock(file)}; }));
  }
  std::string process() override { return name_; }
  Life life(const std::string& process) override {
    return static_cast<Life>(next([=](FileSystem& live) {
                               return Returned{static_cast<std::int64_t>(live.life(process))};
                             }).value);
  }
  void pause(std::chrono::milliseconds span) override {
    next([=](FileSystem& live) {
      live.pause(span);
      return Returned{};
    });
  }
  std::uint64_t random() override {
    return static_cast<std::uint64_t>(next([](FileSystem& live) {
                                        return Returned{static_cast<std::int64_t>(live.random())};
                                      }).value);
  }

 private:
  template <typename Live>
  const Returned& next(Live&& live) {
    if (at_ < history_.size()) return *history_[at_++];
    if (!next_call) next_call = std::forward<Live>(live);
    throw Killed{};
  }
  static int small(const Returned& returned) { return static_cast<int>(returned.value); }

  const std::string name_;
  const History& history_;
  std::size_t at_ = 0;
};

// How far a start is after some calls. Which call comes next depends on nothing but what those have
// returned, so each start is replayed once for each history, whatever the other one does meanwhile.
struct Point {
  History history;
  Outcome outcome;
  std::vector<Event> events;  // those of the last step to here
  std::size_t events_ever = 0;
  LiveCall next_call;
  std::map<Returned, std::unique_ptr<Point>> then;  // by what the next call returns
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
  explicit StartsSearch(Setting setting) : setting_(std::move(setting)) {
    for (const std::size_t one : {0U, 1U}) replay(one, starts_[one], 0);
  }

  void search() {
    State first;
    first.disk.has_locks = setting_.has_locks;
    if (setting_.before != 0) {
      run_alone(first.disk, {.steps = setting_.before}, first.told, all_is_well);
    }
    for (const std::size_t one : {0U, 1U}) go_to(first, one, starts_[one]);
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
    std::array<Point*, 2> points{};
    std::array<bool, 2> killed{};

    [[nodiscard]] const Outcome& outcome(std::size_t one) const { return points[one]->outcome; }
    [[nodiscard]] bool is_over(std::size_t one) const { return killed[one] || outcome(one).ended; }
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
    Point& point = *before.points[one];
    const auto [then, is_first] = point.then.try_emplace(point.next_call(live));
    if (is_first) {
      then->second = std::make_unique<Point>();
      then->second->history = point.history;
      then->second->history.push_back(&then->first);
      replay(one, *then->second, point.events_ever);
    }
    go_to(state, one, *then->second);
    return state;
  }

  static void go_to(State& state, std::size_t one, Point& point) {
    state.points[one] = &point;
    for (const Event& event : point.events) state.told.take(event);
    if (point.outcome.ended) state.disk.close_files_of(static_cast<int>(one) + 2);
  }

  // Finds out what a start does after the last call of a point's history, up to the next one.
  void replay(std::size_t one, Point& point, std::size_t before) {
    ReplayedProcess process(ProcessModel::name_of(static_cast<int>(one) + 2), point.history);
    TrainingModel training(process, setting_.starts[one], [&](const Event& event) {
      if (++point.events_ever > before) point.events.push_back(event);
    });
    training.run();
    point.outcome = training.outcome;
    point.next_call = std::move(process.next_call);
  }

  bool is_new(const State& state) {
    std::size_t key = 0;
    const auto add = [&key](std::size_t hash) { key = (key ^ hash) * 1099511628211U + 1; };
    const std::hash<std::string> hash;
    add(hash(state.disk.shown_with_synced() + state.told.shown()));
    for (const std::size_t one : {0U, 1U}) {
      add(state.killed[one] ? 1 : 2);
      if (state.is_over(one)) continue;
      add(std::hash<const Point*>()(state.points[one]));
    }
    return seen_.insert(key).second;
  }

  void judge_state(const State& state) {
    const std::string told = state.told.shown();
    const Outcome& first = state.outcome(0);
    const Outcome& second = state.outcome(1);
    const bool both_live = !state.is_over(0) && !state.is_over(1);
    if (both_live && first.has_directory && second.has_directory) {
      ++both_in_;
      if (!setting_.on_two_hosts) problem_ = "both have the directory";
    }
    if (setting_.has_locks && first.ended && second.ended && !first.restored && !second.restored) {
      problem_ = "both were refused: " + first.error + "; " + second.error;
    }
    for (const bool cuts_power : {false, true}) {
      const std::string shown =
          cuts_power ? state.disk.synced() : state.disk.shown(DiskModel::Locks::kOpened);
      if (!left_.insert(std::hash<std::string>()(shown + told)).second) continue;
      DiskModel left(state.disk);
      for (const int process : {2, 3}) left.close_files_of(process);
      if (cuts_power) left.cut_power();
      ++judged_;
      if (problem_.empty()) problem_ = judge(left, state.told);
    }
    for (const Outcome* one : {&first, &second}) {
      if (!one->ended || one->restored || is_a_good_reason(one->error)) continue;
      if (setting_.on_two_hosts) continue;  // it meets the files of one that goes on writing
      problem_ = "refused for another reason: " + one->error;
    }
  }

  static bool is_a_good_reason(const std::string& error) {
    return error.find("is held by another training") != std::string::npos ||
           error.find("has saved nothing: use --restore step-") != std::string::npos;
  }

  static constexpr std::size_t kMostStates = 1'000'000;

  const Setting setting_;
  std::array<Point, 2> starts_;
  std::unordered_set<std::size_t> seen_;
  std::unordered_set<std::size_t> left_;
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
