// SPDX-License-Identifier: Apache-2.0
// Every iteration rewrites its buffers before it is timed and checks its results afterwards.
#include "test/bench/support/sampling.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "test/bench/support/memory.h"

namespace ronde::bench {

namespace {

constexpr std::int64_t kLine = 64;
constexpr std::int64_t kFloat = sizeof(float);

// Small whole numbers, so that every order of summing gives the same. They differ between ranks,
// between neighbours, and from those that the memory of a slot held in the rounds before.
float contribution(std::int64_t index, int rank, std::int64_t round) {
  return static_cast<float>((index & 7) + 1 + rank + round % 1021);
}

float expected(std::int64_t index, int ranks, std::int64_t round) {
  return static_cast<float>(ranks * ((index & 7) + 1 + round % 1021) + ranks * (ranks - 1) / 2);
}

// The buffers of one span, apart by whole lines.
class Buffers {
 public:
  Buffers(std::int64_t bytes, std::int64_t calls)
      : elements_(bytes / kFloat),
        stride_((bytes + 2 * kLine - 1) / kLine * kLine / kFloat),
        calls_(calls),
        memory_(static_cast<std::size_t>(stride_ * calls * kFloat)) {}

  [[nodiscard]] float* operator[](std::int64_t call) const {
    return reinterpret_cast<float*>(memory_.data()) + call * stride_;
  }
  void rewrite(int rank, std::int64_t iteration) const {
    for (std::int64_t call = 0; call < calls_; ++call) {
      float* const buffer = (*this)[call];
      for (std::int64_t i = 0; i < elements_; ++i)
        buffer[i] = contribution(i, rank, iteration * calls_ + call);
    }
  }
  // Counts the wrong results of an iteration. It looks at every result, so that every contender
  // finds in the caches what a program would that uses its results.
  [[nodiscard]] std::uint64_t count_wrong(const Contender& contender, int rank, int ranks,
                                          std::int64_t iteration) const {
    std::uint64_t wrong = 0;
    // Without a sum one result stands for all: they are in one place.
    for (std::int64_t call = contender.reduces() ? 0 : calls_ - 1; call < calls_; ++call) {
      const float* const result = contender.result((*this)[call]);
      const std::int64_t round = iteration * calls_ + call;
      for (std::int64_t i = 0; i < elements_; ++i) {
        const float right =
            contender.reduces() ? expected(i, ranks, round) : contribution(i, rank, round);
        wrong += result[i] != right ? 1U : 0U;
      }
    }
    return wrong;
  }

 private:
  std::int64_t elements_;
  std::int64_t stride_;  // in elements
  std::int64_t calls_;
  UserMemory memory_;
};

// Before every iteration it calls before(), which is not timed.
template <typename Before>
Sample take(Meeting& meeting, Contender& contender, const Buffers& buffers, std::int64_t bytes,
            const Schedule& schedule, const Before& before) {
  std::vector<double> times;
  std::uint64_t wrong = 0;
  for (int i = -schedule.warm_ups; i < schedule.iterations; ++i) {
    buffers.rewrite(meeting.rank(), i + schedule.warm_ups);
    before();
    meeting.line_up();
    const auto begin = Clock::now();
    for (std::int64_t call = 0; call < schedule.calls; ++call) {
      contender.run(buffers[call], bytes / kFloat);
    }
    const double seconds = meeting.longest(begin, Clock::now());
    if (i >= 0) times.push_back(seconds * 1e6 / static_cast<double>(schedule.calls));
    wrong += buffers.count_wrong(contender, meeting.rank(), meeting.ranks(), i + schedule.warm_ups);
  }
  std::sort(times.begin(), times.end());
  Sample sample;
  sample.contender = contender.name();
  sample.bytes = bytes;
  sample.median_us = times[times.size() / 2];
  sample.min_us = times.front();
  sample.wrong = meeting.sum(wrong);
  return sample;
}

// `take` gets the contender whose turn it is and the one after it.
template <typename Take>
std::vector<Sample> in_turns(const Contenders& contenders, int repetitions, const Take& take) {
  std::vector<Sample> samples;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    for (std::size_t turn = 0; turn < contenders.size(); ++turn) {
      // Somebody else begins each time: whoever comes after a certain other may profit from it.
      const std::size_t index = (turn + static_cast<std::size_t>(repetition)) % contenders.size();
      samples.push_back(take(*contenders[index], *contenders[(index + 1) % contenders.size()]));
      samples.back().repetition = repetition;
    }
  }
  return samples;
}

}  // namespace

Schedule schedule_for(std::int64_t bytes, bool quick) {
  constexpr std::int64_t kSpan = 256 << 10;
  constexpr std::int64_t kSample = 64 << 20;
  Schedule schedule;
  schedule.calls = std::clamp<std::int64_t>(kSpan / bytes, 1, 64);
  const std::int64_t fit = kSample / (bytes * schedule.calls);
  schedule.iterations =
      static_cast<int>(std::clamp<std::int64_t>(fit, bytes > kSample ? 3 : 5, 40));
  schedule.warm_ups = bytes > kSample ? 1 : 2;
  if (quick) {
    schedule.iterations = std::min(schedule.iterations, 3);
    schedule.warm_ups = 1;
  }
  return schedule;
}

std::vector<Sample> measure(Meeting& meeting, const Contenders& contenders, std::int64_t bytes,
                            int repetitions, bool quick) {
  const Schedule schedule = schedule_for(bytes, quick);
  const Buffers buffers(bytes, schedule.calls);
  return in_turns(contenders, repetitions, [&](Contender& contender, Contender& /*next*/) {
    return take(meeting, contender, buffers, bytes, schedule, [] {});
  });
}

std::vector<Sample> measure_cold(Meeting& meeting, const Contenders& contenders, std::int64_t bytes,
                                 int repetitions, bool quick) {
  constexpr std::size_t kCopied = 1 << 20;
  const Schedule schedule{.calls = 1, .iterations = quick ? 3 : 60, .warm_ups = quick ? 1 : 5};
  const Buffers buffers(bytes, 1);
  const UserMemory from(kCopied);
  const UserMemory to(kCopied);
  const UserMemory others(static_cast<std::size_t>(bytes));
  return in_turns(contenders, repetitions, [&](Contender& contender, Contender& next) {
    return take(meeting, contender, buffers, bytes, schedule, [&] {
      std::memcpy(to.data(), from.data(), kCopied);
      next.run(reinterpret_cast<float*>(others.data()), bytes / kFloat);
    });
  });
}

}  // namespace ronde::bench
