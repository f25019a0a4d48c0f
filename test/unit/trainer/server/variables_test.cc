// SPDX-License-Identifier: Apache-2.0
// The variables of a group: updates, who still reads the values of before, and rows of tables.
#include "bindings/trainer/server/variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {
namespace {

// Two workers whose pushes have weights 1 and 3.
TEST(ServerVariables, ARoundIsTheAverageBySamples) {
  VariableSpecs specs;
  specs.variables = {{"v", {2}}};
  Variables variables(specs, Floats::of({0.0F, 0.0F}));
  Message one;
  one.weight = 1.0;
  one.floats = Floats::of({4.0F, 0.0F});
  Message three;
  three.weight = 3.0;
  three.floats = Floats::of({0.0F, 4.0F});
  const std::vector<const Message*> pushes{&one, &three};
  variables.update(pushes, 1.0);
  EXPECT_THAT(variables.values({}).whole(), testing::ElementsAre(-1.0F, -3.0F));
  EXPECT_EQ(variables.version(), 1U);
}

// A pull sends the variables from where they lie: an update must not be seen in what is under way.
TEST(ServerVariables, AnUpdateLeavesWhatIsBeingReadAsItIs) {
  VariableSpecs specs;
  specs.variables = {{"v", {2}}, {"w", {1}}};
  Variables variables(specs, Floats::of({1.0F, 2.0F, 3.0F}));
  Floats first = variables.values({});
  const float* const lent = first.parts().front().values.data();
  EXPECT_EQ(variables.values({}).parts().front().values.data(), lent);  // where they lie
  Message push;
  push.weight = 1.0;
  push.floats = Floats::of({1.0F});
  push.floats.add(Floats::of({1.0F, 1.0F}));  // cut elsewhere than the variables are
  const Message* const pushes = &push;
  variables.update({&pushes, 1}, 1.0);
  EXPECT_THAT(first.whole(), testing::ElementsAre(1.0F, 2.0F, 3.0F));
  const Floats second = variables.values({});
  first = {};
  variables.update({&pushes, 1}, 1.0);
  EXPECT_THAT(second.whole(), testing::ElementsAre(0.0F, 1.0F, 2.0F));
  EXPECT_THAT(variables.values({}).whole(), testing::ElementsAre(-1.0F, 0.0F, 1.0F));
}

TEST(ServerVariables, WhatNobodyReadsIsUpdatedInPlace) {
  VariableSpecs specs;
  specs.variables = {{"v", {2}}};
  Variables variables(specs, Floats::of({1.0F, 2.0F}));
  const float* const before = variables.values({}).parts().front().values.data();
  Message push;
  push.weight = 1.0;
  push.floats = Floats::of({1.0F, 1.0F});
  const Message* const pushes = &push;
  variables.update({&pushes, 1}, 1.0);
  EXPECT_EQ(variables.values({}).parts().front().values.data(), before);
}

TEST(ServerVariables, ALoanEndsWithItsLastReader) {
  Loan loan;
  EXPECT_TRUE(loan.ends_within({}));
  const auto memory = std::make_shared<int>(1);
  auto one = loan.owner(memory);
  auto two = loan.owner(std::make_shared<int>(2));
  EXPECT_EQ(one, two);
  one = nullptr;
  EXPECT_FALSE(loan.ends_within({}));
  EXPECT_EQ(memory.use_count(), 2);
  std::jthread reader([last = std::move(two)]() mutable { last = nullptr; });
  EXPECT_TRUE(loan.ends_within(std::chrono::minutes(1)));
  reader.join();
  EXPECT_EQ(memory.use_count(), 1);
}

TEST(ServerVariables, RowsThatComeTwiceAreSummedAndOthersStay) {
  VariableSpecs specs;
  specs.tables = {{.name = "t", .rows = 3, .width = 2, .scale = 0.0}};
  Variables variables(specs, {});
  Message push;
  push.weight = 1.0;
  push.ids = {0, 3, 2, 0, 2};
  push.floats = Floats::of({1.0F, 2.0F, 5.0F, 6.0F, 10.0F, 20.0F});
  ASSERT_TRUE(variables.fits(push.ids, push.floats.size()));
  const Message* const pushes = &push;
  variables.update({&pushes, 1}, 1.0);
  EXPECT_THAT(variables.values(std::vector<std::int64_t>{0, 3, 0, 1, 2}).whole(),
              testing::ElementsAre(-5.0F, -6.0F, 0.0F, 0.0F, -11.0F, -22.0F));
  EXPECT_FALSE(variables.fits(std::vector<std::int64_t>{0, 1, 3}));
  EXPECT_FALSE(variables.fits(std::vector<std::int64_t>{0, 5, 1}));
  EXPECT_FALSE(variables.fits(std::vector<std::int64_t>{1, 0}));
  EXPECT_FALSE(variables.fits(std::vector<std::int64_t>{0, 1, -1}));
}

Message rows_pushed(std::vector<std::int64_t> ids, std::vector<float> numbers) {
  Message push;
  push.weight = 1.0;
  push.ids = std::move(ids);
  push.floats = Floats::of(std::move(numbers));
  return push;
}

// More rows than there is room for at first, of any number: they keep their values and moments.
TEST(ServerVariables, ATableGrowsByWhatIsPushedAndNotByWhatIsPulled) {
  VariableSpecs growing;
  growing.optimizer = {.momentum = 0.5};
  growing.tables = {{.name = "t", .rows = 500, .width = 1, .first = 1, .stride = 2}};
  Variables fixed(growing, {});
  growing.tables[0].rows = 0;
  growing.tables[0].grows = true;
  Variables grown(VariableSpecs::of(growing.text()), {});
  const std::vector<std::int64_t> some{0, 3, 499, 0, 250};
  EXPECT_EQ(grown.values(some).whole(), fixed.values(some).whole());
  EXPECT_EQ(grown.size(), 0U);
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t id = 499; id >= 0; id -= 3) {
      const Message push = rows_pushed({0, 1, id}, {static_cast<float>(id)});
      const Message* const one = &push;
      fixed.update({&one, 1}, 0.1);
      grown.update({&one, 1}, 0.1);
    }
  }
  EXPECT_EQ(grown.values(some).whole(), fixed.values(some).whole());
  EXPECT_LT(grown.size(), 500U);
  EXPECT_TRUE(grown.fits(std::vector<std::int64_t>{0, 1, INT64_MAX}));
  EXPECT_FALSE(grown.fits(std::vector<std::int64_t>{0, 1, -1}));
  EXPECT_TRUE(grown.state().empty());
}

TEST(ServerVariables, ARuleOfTheProgramUpdatesTheRowsThatArePushed) {
  VariableSpecs specs;
  specs.tables = {{.name = "t", .rows = 2, .width = 2, .scale = 0.0, .rule = "largest"}};
  const RowRules rules{
      {"largest", [](std::span<float> row, std::span<const float> pushed, double rate) {
         row[0] = std::max(row[0], pushed[0]);
         row[1] += static_cast<float>(rate);
       }}};
  Variables variables(VariableSpecs::of(specs.text()), {}, rules);
  for (const float one : {3.0F, 2.0F}) {
    const Message push = rows_pushed({0, 1, 1}, {one, 0.0F});
    const Message* const pushed = &push;
    variables.update({&pushed, 1}, 0.5);
  }
  EXPECT_THAT(variables.values(std::vector<std::int64_t>{0, 2, 0, 1}).whole(),
              testing::ElementsAre(0.0F, 0.0F, 3.0F, 1.0F));
  EXPECT_THROW(Variables(specs, {}), TrainerError);
}

}  // namespace
}  // namespace ronde::trainer::server
