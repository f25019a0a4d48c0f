// SPDX-License-Identifier: Apache-2.0
// The requests of the C ABI: structs of older and newer programs, what is refused and in which
// words. Through libronde.so, in a job of engines in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ronde/ronde.hpp>

#include "base/text.h"
#include "test/unit/bindings/local_ranks.h"

namespace {

using ronde::testing::on_ranks;
using ::testing::HasSubstr;

// A call, and what came of it.
struct Outcome {
  ronde_status status;
  std::string text;
};

template <typename Call>
Outcome outcome_of(const Call& call) {
  ronde_error* error = nullptr;
  const ronde_status status = call(&error);
  Outcome outcome{status, ronde_error_message(error)};
  ronde_error_release(error);
  return outcome;
}

class RequestTest : public ::testing::Test {
 protected:
  RequestTest() {
    ronde_request_init(&request_);
    request_.name = "t";
    request_.input = values_;
    request_.output = values_;
    request_.shape = &length_;
    request_.dimensions = 1;
    request_.op = RONDE_SUM;
  }
  Outcome allreduce() {
    return outcome_of(
        [&](ronde_error** error) { return ronde_allreduce(engine_.get(), &request_, error); });
  }
  void expect_refused(const char* text) {
    const Outcome outcome = allreduce();
    EXPECT_EQ(outcome.status, RONDE_INVALID_ARGUMENT);
    EXPECT_THAT(outcome.text, HasSubstr(text));
  }

  ronde::LocalJob job_{1};
  ronde::Engine engine_{job_, 0};
  float values_[4] = {1, 2, 3, 4};
  std::int64_t length_ = 4;
  ronde_request request_{};
};

TEST_F(RequestTest, AProgramThatKnowsFewerFieldsGetsTheirDefaults) {
  // What lies behind an older struct is no request: it must not be read.
  constexpr std::size_t kFirst = offsetof(ronde_request, compression);
  for (const std::size_t size : {kFirst, offsetof(ronde_request, splits)}) {
    request_.struct_size = size;
    request_.split_count = size == kFirst ? 77 : 0;
    request_.compression = size == kFirst ? 99 : RONDE_COMPRESSION_BF16;
    request_.splits = reinterpret_cast<const std::int64_t*>(std::uintptr_t{8});
    const Outcome outcome = allreduce();
    EXPECT_EQ(outcome.status, RONDE_OK) << size << ": " << outcome.text;
    EXPECT_EQ(values_[3], 4.0F);
  }
}

struct NewerRequest {
  ronde_request known;
  std::int64_t unknown;
};

TEST_F(RequestTest, AProgramThatKnowsMoreFieldsIsServedWhileItLeavesThemAlone) {
  NewerRequest newer{request_, 0};
  newer.known.struct_size = sizeof newer;
  const auto call = [&](ronde_error** error) {
    return ronde_allreduce(engine_.get(), &newer.known, error);
  };
  EXPECT_EQ(outcome_of(call).status, RONDE_OK);
  newer.unknown = 1;
  const Outcome outcome = outcome_of(call);
  EXPECT_EQ(outcome.status, RONDE_UNSUPPORTED);
  EXPECT_THAT(outcome.text, HasSubstr("uses a field that this libronde.so"));
}

TEST_F(RequestTest, AStructWithoutASizeIsRefused) {
  request_.struct_size = 0;
  expect_refused("struct_size is not set: use ronde_request_init");
}

// Every rank of a group has structs of the same age, and so they lie one after another.
template <typename Request>
std::vector<Outcome> group_of(ronde::Engine& engine, std::size_t size, float* a, float* b) {
  static const std::int64_t kLength = 2;
  std::vector<std::byte> bytes(2 * size);
  for (const auto& [index, name, data] :
       {std::tuple{std::size_t{0}, "a", a}, std::tuple{std::size_t{1}, "b", b}}) {
    Request request{};
    auto* const known = reinterpret_cast<ronde_request*>(&request);
    ronde_request_init(known);
    known->struct_size = size;
    known->name = name;
    known->output = data;
    known->shape = &kLength;
    known->dimensions = 1;
    known->op = RONDE_SUM;
    std::memcpy(bytes.data() + index * size, &request, size);
  }
  const auto* const first = reinterpret_cast<const ronde_request*>(bytes.data());
  return {outcome_of(
      [&](ronde_error** error) { return ronde_grouped_allreduce(engine.get(), first, 2, error); })};
}

TEST(GroupRequests, OfOlderAndNewerProgramsLieOneAfterAnother) {
  on_ranks(2, [](ronde::Engine& engine) {
    float a[2] = {1, 1};
    float b[2] = {2, 2};
    for (const std::size_t size : {offsetof(ronde_request, compression), sizeof(ronde_request)}) {
      for (const Outcome& outcome : group_of<ronde_request>(engine, size, a, b)) {
        EXPECT_EQ(outcome.status, RONDE_OK) << outcome.text;
      }
    }
    for (const Outcome& outcome : group_of<NewerRequest>(engine, sizeof(NewerRequest), a, b)) {
      EXPECT_EQ(outcome.status, RONDE_OK) << outcome.text;
    }
    EXPECT_EQ(a[1], 8.0F);
    EXPECT_EQ(b[0], 16.0F);
  });
}

TEST(OperationInfo, HasAllThatCanBeCalled) {
  std::vector<std::string> names;
  for (std::int32_t i = 0; ronde_operation_info(i) != nullptr; ++i) {
    names.emplace_back(ronde_operation_info(i)->name);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("allreduce", "broadcast", "allgather", "barrier",
                                            "reduce_scatter", "all_to_all"));
  EXPECT_EQ(ronde_operation_info(-1), nullptr);
  EXPECT_EQ(ronde_operation_info(INT32_MAX), nullptr);
  const ronde_operation& scatter = *ronde_operation_info(4);
  EXPECT_EQ(scatter.input, RONDE_BLOCKS);
  EXPECT_EQ(scatter.output, RONDE_BLOCK);
  EXPECT_EQ(scatter.reduces, 1);
  EXPECT_EQ(scatter.has_root, 0);
  EXPECT_EQ(scatter.has_groups, 0);
  EXPECT_EQ(ronde_operation_info(1)->has_root, 1);
  EXPECT_EQ(ronde_operation_info(1)->has_groups, 1);
}

TEST_F(RequestTest, GroupsAreChecked) {
  const auto grouped = [&](const ronde_request* requests, std::int32_t count) {
    return outcome_of([&](ronde_error** error) {
      return ronde_grouped_allreduce(engine_.get(), requests, count, error);
    });
  };
  EXPECT_THAT(grouped(nullptr, 1).text, HasSubstr("requests is a null pointer"));
  EXPECT_THAT(grouped(&request_, 0).text, HasSubstr("a group of 0 requests"));
  EXPECT_THAT(grouped(&request_, -1).text, HasSubstr("a group of -1 requests"));
  float other[4] = {};
  ronde_request both[2] = {request_, request_};
  both[1].name = "u";
  both[1].input = both[1].output = other;
  EXPECT_EQ(grouped(both, 2).status, RONDE_OK);
  both[1].struct_size = offsetof(ronde_request, compression);
  EXPECT_THAT(grouped(both, 2).text, HasSubstr("requests[1] has another struct_size"));
  both[1] = both[0];
  both[1].name = "u";
  EXPECT_THAT(grouped(both, 2).text, HasSubstr("'u': its memory overlaps with that of 't'"));
  both[1].input = both[1].output = other;
  both[1].dtype = RONDE_I32;
  EXPECT_THAT(grouped(both, 2).text, HasSubstr("'u': it is allreduce(sum, i32, [4]), but 't'"));
  both[1].dtype = RONDE_F32;
  both[1].name = "t";
  const Outcome twice = grouped(both, 2);
  EXPECT_EQ(twice.status, RONDE_DUPLICATE_NAME);
  EXPECT_THAT(twice.text, HasSubstr("'t' is twice in one group"));
}

// With the length of the shape forgotten one element of many would be reduced.
TEST_F(RequestTest, AShapeWithoutDimensionsIsRefused) {
  request_.dimensions = 0;
  expect_refused("'t': shape is set and dimensions is 0: give it the length of shape");
  request_.shape = nullptr;  // a scalar
  EXPECT_EQ(allreduce().status, RONDE_OK);
}

// Everywhere, and the average is what a request begins with.
TEST_F(RequestTest, TheAverageOfNarrowIntegersIsRefused) {
  for (const auto& [dtype, name] :
       {std::pair{RONDE_U8, "u8"}, {RONDE_I8, "i8"}, {RONDE_U16, "u16"}, {RONDE_I16, "i16"}}) {
    ronde_request_init(&request_);
    request_.name = "t";
    request_.output = values_;
    request_.shape = &length_;
    request_.dimensions = 1;
    request_.dtype = dtype;
    const std::string text = std::string("'t': the average of ") + name + " is not defined";
    expect_refused(text.c_str());
    const auto grouped = [&](ronde_error** error) {
      return ronde_grouped_allreduce(engine_.get(), &request_, 1, error);
    };
    EXPECT_THAT(outcome_of(grouped).text, HasSubstr("'group of " + text.substr(1)));
    const auto scattered = [&](ronde_error** error) {
      request_.input = values_;
      return ronde_reduce_scatter(engine_.get(), &request_, error);
    };
    EXPECT_THAT(outcome_of(scattered).text, HasSubstr(text));
    request_.op = RONDE_SUM;
    EXPECT_EQ(allreduce().status, RONDE_OK);
  }
}

TEST(FlatAllreduce, TakesThePlaceOfARequest) {
  on_ranks(3, [](ronde::Engine& engine) {
    double values[2] = {1.0 + engine.rank(), 4};
    ronde_error* error = nullptr;
    EXPECT_EQ(ronde_allreduce_flat(engine.get(), "g", values, 2, RONDE_F64, RONDE_AVERAGE, &error),
              RONDE_OK);
    EXPECT_EQ(values[0], 2.0);
    EXPECT_EQ(values[1], 4.0);
    // It is the tensor that the other calls know by this name and shape.
    if (engine.rank() == 0) {
      engine.allreduce_blocking("g", std::span(values), ronde::max);
    } else {
      EXPECT_EQ(ronde_allreduce_flat(engine.get(), "g", values, 2, RONDE_F64, RONDE_MAX, &error),
                RONDE_OK);
    }
    const auto refused = [&](std::int64_t count, ronde_dtype dtype, const char* name) {
      return outcome_of([&](ronde_error** why) {
        return ronde_allreduce_flat(engine.get(), name, values, count, dtype, RONDE_SUM, why);
      });
    };
    EXPECT_EQ(refused(-1, RONDE_F64, "g").status, RONDE_INVALID_ARGUMENT);
    EXPECT_THAT(refused(2, static_cast<ronde_dtype>(13), "g").text, HasSubstr("no ronde_dtype"));
    EXPECT_THAT(refused(2, RONDE_F64, nullptr).text, HasSubstr("name is a null pointer"));
    EXPECT_EQ(ronde_allreduce_flat(nullptr, "g", values, 2, RONDE_F64, RONDE_SUM, nullptr),
              RONDE_INVALID_ARGUMENT);
  });
}

TEST_F(RequestTest, ValuesThatAreNoneAreRefused) {
  request_.compression = 3;
  expect_refused("'t': compression 3 is no ronde_compression");
  request_.compression = RONDE_COMPRESSION_BF16;
  request_.dtype = RONDE_F64;
  expect_refused("'t': compression bf16 is for f32, not for f64");
  request_.dtype = RONDE_F32;
  request_.compression = RONDE_COMPRESSION_NONE;
  request_.op = 8;
  expect_refused("op 8 is no ronde_op");
  request_.op = RONDE_BXOR;
  expect_refused("bxor is not defined for f32");
  request_.op = RONDE_SUM;
  request_.split_count = 1;
  expect_refused("split_count is 1: give it the length of splits");
  request_.split_count = -1;
  expect_refused("split_count is -1");
  request_.split_count = 0;
  request_.splits = &length_;
  expect_refused("split_count is 0");
}

TEST_F(RequestTest, AWeightNeedsItsFlagAndAnAverage) {
  request_.weight = 2.0;
  request_.op = RONDE_AVERAGE;
  expect_refused("'t': its weight is 2 without RONDE_FLAG_WEIGHTED");
  request_.flags = RONDE_FLAG_WEIGHTED;
  EXPECT_EQ(allreduce().status, RONDE_OK);
  EXPECT_EQ(values_[3], 4.0F);
  request_.weight = -0.5;
  expect_refused("'t': its weight is -0.5: give it a finite number, not below 0");
  request_.weight = 0.0;
  expect_refused("'t': the weights of all ranks add up to 0");
  request_.op = RONDE_MAX;
  expect_refused("'t': max has no weights");
  const Outcome moved = outcome_of(
      [&](ronde_error** error) { return ronde_broadcast(engine_.get(), &request_, error); });
  EXPECT_THAT(moved.text, HasSubstr("RONDE_FLAG_WEIGHTED is set, but it averages nothing"));
}

TEST_F(RequestTest, AReduceScatterNeedsItsInput) {
  request_.input = nullptr;
  const Outcome outcome = outcome_of(
      [&](ronde_error** error) { return ronde_reduce_scatter(engine_.get(), &request_, error); });
  EXPECT_EQ(outcome.status, RONDE_INVALID_ARGUMENT);
  EXPECT_EQ(outcome.text, "'t': the memory is a null pointer");
}

TEST_F(RequestTest, OnlyAnAllToAllHasReceivedSplits) {
  ronde_work* work = nullptr;
  ASSERT_EQ(ronde_allgather(engine_.get(), &request_, &work, nullptr), RONDE_OK);
  const std::int64_t* splits = nullptr;
  std::int32_t count = 0;
  EXPECT_THAT(outcome_of([&](ronde_error** error) {
                return ronde_work_received_splits(work, &splits, &count, error);
              }).text,
              HasSubstr("only an all-to-all has received splits"));
  ronde_work_release(work);
  ASSERT_EQ(ronde_all_to_all(engine_.get(), &request_, &work, nullptr), RONDE_OK);
  EXPECT_EQ(ronde_work_received_splits(work, nullptr, &count, nullptr), RONDE_INVALID_ARGUMENT);
  ASSERT_EQ(ronde_work_received_splits(work, &splits, &count, nullptr), RONDE_OK);
  ASSERT_EQ(count, 1);
  EXPECT_EQ(splits[0], 4);
  ronde_work_release(work);
}

TEST_F(RequestTest, CallsWithoutAPlaceForTheWorkAreRefused) {
  using Call = ronde_status(ronde_engine*, const ronde_request*, ronde_work**, ronde_error**);
  Call* const calls[] = {ronde_allreduce_async, ronde_broadcast_async,      ronde_allgather_async,
                         ronde_allgather,       ronde_reduce_scatter_async, ronde_all_to_all_async,
                         ronde_all_to_all,      ronde_barrier_async};
  for (Call* const call : calls) {
    const Outcome outcome = outcome_of(
        [&](ronde_error** error) { return call(engine_.get(), &request_, nullptr, error); });
    EXPECT_EQ(outcome.text, "work is a null pointer");
  }
  ronde_work* work = nullptr;
  for (Call* const call : calls) {
    const Outcome outcome =
        outcome_of([&](ronde_error** error) { return call(nullptr, &request_, &work, error); });
    EXPECT_EQ(outcome.text, "engine is a null pointer");
  }
}

TEST_F(RequestTest, TheTableOfRanksBelongsToTheEngine) {
  const char* text = nullptr;
  EXPECT_EQ(outcome_of([&](ronde_error** error) {
              return ronde_engine_describe(nullptr, &text, error);
            }).text,
            "engine is a null pointer");
  EXPECT_EQ(text, nullptr);
  const Outcome outcome = outcome_of(
      [&](ronde_error** error) { return ronde_engine_describe(engine_.get(), nullptr, error); });
  EXPECT_EQ(outcome.status, RONDE_INVALID_ARGUMENT);
  EXPECT_EQ(outcome.text, "text is a null pointer");
  ASSERT_EQ(ronde_engine_describe(engine_.get(), &text, nullptr), RONDE_OK);
  EXPECT_EQ(engine_.describe(), text);
  EXPECT_THAT(text, ::testing::EndsWith("no other rank"));
  const char* again = nullptr;
  ASSERT_EQ(ronde_engine_describe(engine_.get(), &again, nullptr), RONDE_OK);
  EXPECT_EQ(again, text);
  engine_.close();
  EXPECT_THROW(static_cast<void>(engine_.describe()), std::logic_error);
}

TEST_F(RequestTest, AnOutputOfTheWrongLengthIsNoticedByTheFacade) {
  std::vector<float> input(4);
  std::vector<float> output(3);
  try {
    engine_.reduce_scatter_blocking("rs", std::span(input), std::span(output), ronde::sum);
    ADD_FAILURE();
  } catch (const ronde::Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "the share of rank 0 has 4 elements and output 3: make them equal");
  }
  ronde::ReduceScatterOptions options;
  options.splits = {-4};
  EXPECT_THROW(engine_.reduce_scatter_blocking("rs", std::span(input), std::span(output),
                                               ronde::sum, options),
               ronde::Error);
}

// The facade's header has the rule of its own, since base is not installed.
TEST(Error, EscapesAsTheRuntimeDoes) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text{static_cast<char>(first), static_cast<char>(second), 'x'};
      ASSERT_EQ(ronde::detail::printable(text), ronde::base::printable(text)) << first << second;
    }
  }
}

}  // namespace
