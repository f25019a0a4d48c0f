// SPDX-License-Identifier: Apache-2.0
#include "collectives/two_level/phases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ronde::collectives {
namespace {

// The phases that have begun and ended, and the phases B that may end.
struct Record {
  std::vector<std::string> in_host;
  std::set<std::int64_t> across;  // the blocks in phase B
  std::set<std::int64_t> may_end;
  std::set<int> tags;
  std::size_t most_across = 0;
  BatchTimes times{};
  bool fails = false;
};

class Instant final : public Collective {
 public:
  base::Result<StepResult> step() override { return StepResult::kDone; }
};

class Across final : public Collective {
 public:
  Across(Record& record, std::int64_t block) : record_(record), block_(block) {
    record_.across.insert(block);
    record_.most_across = std::max(record_.most_across, record_.across.size());
  }
  base::Result<StepResult> step() override {
    if (record_.fails) return base::Status::error(base::Code::kTransport, "cut");
    if (!record_.may_end.contains(block_)) return StepResult::kIdle;
    record_.across.erase(block_);
    return StepResult::kDone;
  }

 private:
  Record& record_;
  const std::int64_t block_;
};

class Recorded final : public TwoLevelPhases {
 public:
  Recorded(Record& record, std::int64_t blocks)
      : TwoLevelPhases(blocks, 32, record.times), record_(record) {}

 private:
  Phase before(std::int64_t block) override {
    record_.in_host.push_back("A" + std::to_string(block));
    if (block % 2 == 1) return nothing();
    return std::unique_ptr<Collective>(std::make_unique<Instant>());
  }
  Phase across(std::int64_t block) override {
    record_.tags.insert(tag_of(block));
    return std::unique_ptr<Collective>(std::make_unique<Across>(record_, block));
  }
  Phase after(std::int64_t block) override {
    record_.in_host.push_back("C" + std::to_string(block));
    return nothing();
  }

  Record& record_;
};

StepResult run_until_idle(Collective& collective) {
  while (true) {
    const StepResult result = collective.step().value();
    if (result != StepResult::kProgress) return result;
  }
}

TEST(TwoLevelPhases, OneOrderInTheHostWheneverTheOthersEnd) {
  using Order = std::vector<std::string>;
  Record record;
  Recorded phases(record, 5);
  EXPECT_EQ(run_until_idle(phases), StepResult::kIdle);
  EXPECT_EQ(record.in_host, (Order{"A0", "A1", "A2"}));
  EXPECT_EQ(record.across, (std::set<std::int64_t>{0, 1, 2})) << "the line has three to carry";
  record.may_end = {1, 2};
  EXPECT_EQ(run_until_idle(phases), StepResult::kIdle);
  EXPECT_EQ(record.in_host, (Order{"A0", "A1", "A2"})) << "C0 comes first";
  record.may_end = {0, 1, 2};
  EXPECT_EQ(run_until_idle(phases), StepResult::kIdle);
  EXPECT_EQ(record.in_host, (Order{"A0", "A1", "A2", "C0", "A3", "C1", "A4", "C2"}));
  record.may_end = {3, 4};
  EXPECT_EQ(run_until_idle(phases), StepResult::kDone);
  EXPECT_EQ(record.in_host, (Order{"A0", "A1", "A2", "C0", "A3", "C1", "A4", "C2", "C3", "C4"}));
  EXPECT_EQ(record.most_across, 3U);
  EXPECT_EQ(record.tags, (std::set<int>{32, 36, 40, 44}));
}

TEST(TwoLevelPhases, NoBlocksAreDoneAtOnce) {
  Record record;
  Recorded phases(record, 0);
  EXPECT_EQ(phases.step().value(), StepResult::kDone);
  EXPECT_TRUE(record.in_host.empty());
}

TEST(TwoLevelPhases, AnErrorOfAPhaseIsTheirs) {
  Record record;
  Recorded phases(record, 2);
  EXPECT_EQ(run_until_idle(phases), StepResult::kIdle);
  record.fails = true;
  EXPECT_EQ(phases.step().status().message(), "cut");
}

}  // namespace
}  // namespace ronde::collectives
