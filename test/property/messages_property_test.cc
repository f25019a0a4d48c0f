// SPDX-License-Identifier: Apache-2.0
// Random messages beside random batches: every rank draws the same schedule from a seed, and begins
// its part of it in an order of its own, on one to four hosts. Every message arrives whole, those
// of a pair and tag in their order, and every sum is right. RONDE_TEST_SEEDS names how many
// schedules, from 1 on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.h"
#include "runtime/messages/message.h"
#include "test/property/draws.h"
#include "test/support/engines.h"

namespace ronde::runtime {
namespace {

struct Planned {
  int from = 0;
  int to = 0;
  std::int64_t tag = 0;
  std::size_t bytes = 0;
  int number = 0;
  bool any = false;        // received from any rank: then nobody else sends with this tag
  bool in_buffer = false;  // the sender's lies in its arena
};

struct Schedule {
  int ranks = 2;
  int hosts = 1;
  std::string setting = "auto";
  std::vector<Planned> messages;
  std::vector<std::size_t> batches;  // elements of each allreduce
};

std::size_t draw_bytes(std::mt19937_64& random) {
  switch (draw(random, 0, 3)) {
    case 0:
      return static_cast<std::size_t>(draw(random, 0, 100));
    case 1:
      return static_cast<std::size_t>(draw(random, 30'000, 35'000));
    case 2:
      return static_cast<std::size_t>(draw(random, 0, 20'000));
    default:
      return static_cast<std::size_t>(draw(random, 40'000, 1'500'000));
  }
}

Schedule schedule_of(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Schedule schedule;
  schedule.ranks = static_cast<int>(draw(random, 1, 4));
  schedule.hosts = static_cast<int>(draw(random, 1, schedule.ranks));
  schedule.setting = chance(random, 0.5) ? "slots" : "auto";
  const auto count = static_cast<int>(draw(random, 1, 40));
  for (int i = 0; i < count; ++i) {
    Planned one;
    one.from = static_cast<int>(draw(random, 0, schedule.ranks - 1));
    one.to = static_cast<int>(draw(random, 0, schedule.ranks - 1));
    one.any = chance(random, 0.2);
    one.tag = one.any ? 1000 + i : draw(random, 0, 2);
    one.bytes = draw_bytes(random);
    one.number = i;
    one.in_buffer = chance(random, 0.3);
    schedule.messages.push_back(one);
  }
  for (std::int64_t i = draw(random, 0, 10); i > 0; --i) {
    schedule.batches.push_back(static_cast<std::size_t>(draw(random, 1, 30'000)));
  }
  return schedule;
}

// Every 8 bytes are other ones, in every message.
void fill(std::span<std::byte> bytes, const Planned& message) {
  auto word = static_cast<std::uint64_t>(message.number + 1) << 32;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(word), ++word) {
    std::memcpy(&bytes[at], &word, std::min(sizeof(word), bytes.size() - at));
  }
}

std::size_t first_wrong(std::span<const std::byte> bytes, const Planned& message) {
  auto word = static_cast<std::uint64_t>(message.number + 1) << 32;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(word), ++word) {
    const std::size_t size = std::min(sizeof(word), bytes.size() - at);
    if (std::memcmp(&bytes[at], &word, size) != 0) return at;
  }
  return bytes.size();
}

// A message of this rank, or a sum: in the order in which it begins them.
class RankOf {
 public:
  RankOf(const Schedule& schedule, std::uint64_t seed, Engine& engine)
      : schedule_(schedule),
        random_(seed * 64 + static_cast<std::uint64_t>(engine.rank())),
        engine_(engine) {}

  void run() {
    plan();
    for (const auto& begin : order_) {
      begin();
      if (chance(random_, 0.2) && !works_.empty()) wait_for_one();
    }
    while (!works_.empty()) wait_for_one();
    for (const auto& check : checks_) check();
  }

 private:
  struct Memory {
    std::unique_ptr<std::byte[]> plain;  // not set to zeros, which takes longer than a message
    std::unique_ptr<BoardBuffer> buffer;
    [[nodiscard]] std::byte* data() { return buffer ? buffer->bytes().data() : plain.get(); }
  };

  // Messages of a pair and tag begin in their order, whatever is drawn.
  void plan() {
    std::map<std::tuple<int, int, std::int64_t, bool>, std::vector<std::function<void()>>> lines;
    for (const Planned& message : schedule_.messages) {
      if (message.from == engine_.rank()) {
        lines[{message.from, message.to, message.tag, true}].push_back(
            [this, message] { begin_message(message, true); });
      }
      if (message.to == engine_.rank()) {
        lines[{message.from, message.to, message.tag, false}].push_back(
            [this, message] { begin_message(message, false); });
      }
    }
    for (std::size_t i = 0; i < schedule_.batches.size(); ++i) {
      lines[{-1, -1, static_cast<std::int64_t>(i), true}].push_back([this, i] { begin_sum(i); });
    }
    std::vector<std::vector<std::function<void()>>*> left;
    for (auto& [key, line] : lines) {
      std::reverse(line.begin(), line.end());
      left.push_back(&line);
    }
    while (!left.empty()) {
      const auto at = static_cast<std::size_t>(draw(random_, 0, std::ssize(left) - 1));
      order_.push_back(std::move(left[at]->back()));
      left[at]->pop_back();
      if (left[at]->empty()) left.erase(left.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

  void begin_message(const Planned& message, bool sends) {
    auto memory = std::make_shared<Memory>();
    if (sends && message.in_buffer) {
      auto buffer = engine_.allocate(base::Bytes::of_size(message.bytes));
      ASSERT_TRUE(buffer.ok()) << buffer.status().message();
      memory->buffer = std::move(*buffer);
    } else {
      memory->plain.reset(new std::byte[message.bytes + 1]);
    }
    MessageRequest request;
    request.rank = sends ? message.to : (message.any ? MessageRequest::kAnyRank : message.from);
    request.tag = message.tag;
    request.count = static_cast<std::int64_t>(message.bytes);
    request.memory = memory->data();
    if (sends) fill({memory->data(), message.bytes}, message);
    auto work = sends ? engine_.send(request) : engine_.receive(request);
    ASSERT_TRUE(work.ok()) << work.status().message();
    works_.push_back(*work);
    checks_.push_back([message, memory, sends, work = *work] {
      if (sends) return;
      ASSERT_EQ(work->message_source, message.from);
      ASSERT_EQ(first_wrong({memory->data(), message.bytes}, message), message.bytes)
          << message.from << " to " << message.to << ", message " << message.number;
    });
  }

  void begin_sum(std::size_t number) {
    auto data = std::make_shared<std::vector<float>>(
        schedule_.batches[number], static_cast<float>(engine_.rank() + static_cast<int>(number)));
    auto work = engine_.submit(testing::allreduce_of("sum" + std::to_string(number), *data));
    ASSERT_TRUE(work.ok()) << work.status().message();
    works_.push_back(*work);
    checks_.push_back([this, data, number] {
      const int ranks = schedule_.ranks;
      const auto sum =
          static_cast<float>(ranks * (ranks - 1) / 2 + ranks * static_cast<int>(number));
      ASSERT_EQ(data->front(), sum);
      ASSERT_EQ(data->back(), sum);
    });
  }

  // Only what all ranks can finish by now is waited for with patience: others may wait for this
  // rank's next message.
  void wait_for_one() {
    const auto at = static_cast<std::size_t>(draw(random_, 0, std::ssize(works_) - 1));
    const bool last = order_begun();
    if (last) {
      const base::Status status = engine_.wait(*works_[at]);
      ASSERT_TRUE(status.ok()) << status.message();
    } else if (!engine_.poll(*works_[at])) {
      return;
    } else {
      ASSERT_TRUE(Engine::result(*works_[at]).ok());
    }
    works_.erase(works_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  [[nodiscard]] bool order_begun() const { return checks_.size() == order_.size(); }

  const Schedule& schedule_;
  std::mt19937_64 random_;
  Engine& engine_;
  std::vector<std::function<void()>> order_;
  std::vector<Engine::WorkPtr> works_;
  std::vector<std::function<void()>> checks_;
};

std::uint64_t seeds() {
  const char* wanted = std::getenv("RONDE_TEST_SEEDS");
  return base::parse_number<std::uint64_t>(wanted == nullptr ? "" : wanted).value_or(200);
}

TEST(MessagesProperty, ArriveWholeAndInOrderBesideBatches) {
  const std::uint64_t last = seeds();
  for (std::uint64_t seed = 1; seed <= last; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Schedule schedule = schedule_of(seed);
    testing::EngineOptions options;
    options.environment = {"RONDE_MESSAGES=" + schedule.setting};
    std::vector<std::int32_t> leaders;
    for (int rank = 0; rank < schedule.ranks; ++rank) leaders.push_back(rank % schedule.hosts);
    options.shape = base::JobShape::of_leaders(leaders).value();
    testing::run_job(schedule.ranks, options,
                     [&](int, Engine& engine) { RankOf(schedule, seed, engine).run(); });
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace ronde::runtime
