// SPDX-License-Identifier: Apache-2.0
// The suite that every back end must pass, about streams: what a batch waits for, and who waits for
// a batch.
#include <gmock/gmock.h>

#include <cstddef>
#include <vector>

#include "test/device/conformance.h"

namespace ronde::device_test {
namespace {

constexpr std::size_t kElements = 500;
constexpr std::size_t kBytes = kElements * sizeof(float);
constexpr std::int32_t kLong = 300;  // milliseconds

class ConformanceStreams : public Conformance {};

// Memory of one rank that is written in a stream.
struct Written {
  explicit Written(const DeviceRank& rank)
      : kit(*Device::instance().kit),
        source(contribution(rank.rank(), kElements)),
        memory(std::vector<float>(kElements, -1000.0F)),
        late(std::vector<float>(kElements, 0.0F)) {}

  // What the batch must wait for.
  void write(void* stream) {
    kit.delay(stream, 30);
    kit.copy(stream, memory.get(), source.get(), kBytes);
  }
  // What it need not wait for.
  void write_later(void* stream) {
    kit.delay(stream, kLong);
    kit.copy(stream, late.get(), source.get(), kBytes);
  }
  [[nodiscard]] bool later_is_over() const { return late.values<float>()[0] != 0.0F; }

  const ronde_device_kit& kit;
  const DeviceMemory source;
  const DeviceMemory memory;
  const DeviceMemory late;
};

ronde_plugin_work* allreduce(DeviceRank& rank, const DeviceMemory& memory,
                             ronde_plugin_mark* ready) {
  return rank.execute(Batch().add(memory, kElements, ready).get());
}

void expect_sums(const DeviceMemory& memory, const DeviceRank& rank) {
  EXPECT_EQ(memory.values<float>(), summed(rank.size(), kElements));
}

TEST_P(ConformanceStreams, ABatchBeginsBehindTheMarkOfAStream) {
  job_.run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    Written written(rank);
    void* const stream = written.kit.make_stream();
    written.write(stream);
    ronde_plugin_mark* const mark = rank.mark(stream);
    written.write_later(stream);
    ronde_plugin_work* const work = allreduce(rank, written.memory, mark);
    EXPECT_EQ(rank.poll(work), RONDE_PLUGIN_PENDING);
    ASSERT_EQ(rank.finish(work), RONDE_PLUGIN_OK) << rank.text();
    EXPECT_FALSE(written.later_is_over()) << "what came after the mark was waited for";
    EXPECT_GE(rank.rings(), 1);
    expect_sums(written.memory, rank);
    rank.unmark(mark);
    written.kit.synchronize(stream);
    written.kit.free_stream(stream);
  });
}

// The event is not in the way of what it is used for next.
TEST_P(ConformanceStreams, AnEventIsMarkedAsItWasRecordedLast) {
  job_.run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    Written written(rank);
    void* const stream = written.kit.make_stream();
    void* const event = written.kit.make_event(stream);  // over before anything is written
    written.write(stream);
    written.kit.record_event(event, stream);
    // Behind the event, so that it need not be waited for, whatever is recorded there.
    written.write_later(stream);
    ronde_plugin_mark* const mark = rank.mark(stream, event);
    written.kit.record_event(event, stream);
    ronde_plugin_work* const work = allreduce(rank, written.memory, mark);
    EXPECT_EQ(rank.poll(work), RONDE_PLUGIN_PENDING);
    ASSERT_EQ(rank.finish(work), RONDE_PLUGIN_OK) << rank.text();
    EXPECT_FALSE(written.later_is_over()) << "the event was looked at after the mark";
    expect_sums(written.memory, rank);
    rank.unmark(mark);
    written.kit.synchronize(stream);
    written.kit.free_event(event);
    written.kit.free_stream(stream);
  });
}

TEST_P(ConformanceStreams, AMarkOutlivesItsStreamAndEvent) {
  job_.run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    for (const bool with_event : {false, true}) {
      Written written(rank);
      void* const stream = written.kit.make_stream();
      written.write(stream);
      void* const event = with_event ? written.kit.make_event(stream) : nullptr;
      ronde_plugin_mark* const mark = rank.mark(stream, event);
      if (with_event) written.kit.free_event(event);
      written.kit.free_stream(stream);
      ASSERT_EQ(rank.finish(allreduce(rank, written.memory, mark)), RONDE_PLUGIN_OK) << rank.text();
      expect_sums(written.memory, rank);
      rank.unmark(mark);
    }
  });
}

TEST_P(ConformanceStreams, AMarkedStreamMayBeCaptured) {
  job_.run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    Written written(rank);
    void* const stream = written.kit.make_stream();
    written.write(stream);
    ronde_plugin_mark* const mark = rank.mark(stream);
    written.kit.begin_capture(stream);
    ASSERT_EQ(rank.finish(allreduce(rank, written.memory, mark)), RONDE_PLUGIN_OK) << rank.text();
    written.kit.end_capture(stream);
    expect_sums(written.memory, rank);
    rank.unmark(mark);
    written.kit.free_stream(stream);
  });
}

TEST_P(ConformanceStreams, OneMarkServesTwoBatchesAndMayGoOnceTheyHaveIt) {
  job_.run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    Written first(rank);
    Written second(rank);
    void* const stream = first.kit.make_stream();
    first.write(stream);
    second.write(stream);
    ronde_plugin_mark* const mark = rank.mark(stream);
    ronde_plugin_work* const one = allreduce(rank, first.memory, mark);
    ronde_plugin_work* const other = allreduce(rank, second.memory, mark);
    rank.unmark(mark);
    ASSERT_EQ(rank.finish(one), RONDE_PLUGIN_OK) << rank.text();
    ASSERT_EQ(rank.finish(other), RONDE_PLUGIN_OK) << rank.text();
    expect_sums(first.memory, rank);
    expect_sums(second.memory, rank);
    first.kit.free_stream(stream);
  });
}

TEST_P(ConformanceStreams, AStreamWaitsForAWork) {
  job_.run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    const ronde_device_kit& kit = *Device::instance().kit;
    void* const before = kit.make_stream();
    void* const after = kit.make_stream();
    const DeviceMemory memory(contribution(rank.rank(), kElements));
    const DeviceMemory result(std::vector<float>(kElements, 0.0F));
    kit.delay(before, 50);
    ronde_plugin_mark* const mark = rank.mark(before);
    ronde_plugin_work* const work = allreduce(rank, memory, mark);
    Text text{};
    const auto at_once =
        rank.plugin().wait_on(rank.engine(), work, after, text.data(), text.size());
    if (at_once == RONDE_PLUGIN_PENDING) {
      ASSERT_EQ(rank.wait_on(work, after), RONDE_PLUGIN_OK) << rank.text();
      EXPECT_GE(rank.rings(), 1) << "nobody says when to ask again";
    } else {
      ASSERT_EQ(at_once, RONDE_PLUGIN_OK) << text.data();
      EXPECT_EQ(rank.poll(work), RONDE_PLUGIN_PENDING) << "the host has waited";
    }
    kit.copy(after, result.get(), memory.get(), kBytes);
    kit.synchronize(after);
    expect_sums(result, rank);
    ASSERT_EQ(rank.finish(work), RONDE_PLUGIN_OK);
    rank.unmark(mark);
    kit.free_stream(before);
    kit.free_stream(after);
  });
}

// With nobody who unmarks or polls: the engine goes, and everything with it.
TEST_P(ConformanceStreams, ClosingEndsMarksAndWorks) {
  job_.run([this](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    Written written(rank);
    void* const stream = written.kit.make_stream();
    written.write(stream);
    [[maybe_unused]] auto* const work = allreduce(rank, written.memory, rank.mark(stream));
    job_.meet();
    rank.close();
    written.kit.synchronize(stream);
    written.kit.free_stream(stream);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ConformanceStreams, testing::Values(1, 2, 3));

}  // namespace
}  // namespace ronde::device_test
