// SPDX-License-Identifier: Apache-2.0
// The engine from outside, on the facade alone: how long a small allreduce takes from submit to
// wait, what an engine costs that has nothing to do, and what an operation costs when many are
// outstanding. Start it with mpirun, or alone. The last line is key=value.
//
//   engine latency [bytes]       blocking allreduces back to back
//   engine idle [seconds]        nothing for so long
//   engine outstanding [spans]   8-byte reduce-scatters, 1,000 and 8,000 at a time, so many times
//   engine waits [bytes] [turns]     blocking allreduces beside submit and wait() at once
//   engine overlap [bytes] [turns]   submit, compute, wait() beside compute and then blocking
//   engine cpu [bytes] [turns]       the processor time of all ranks for so many allreduces
//   engine opening               the constructor of an engine, on the slowest rank
#include <algorithm>
#include <array>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <ronde/ronde.hpp>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kCalls = 64;  // between two readings of the clock
constexpr int kSpans = 300;
constexpr int kWarmUps = 50;

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  constexpr double kPerSecond = 1e9;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / kPerSecond;
}

int latency(ronde::Engine& engine, std::size_t bytes, int spans) {
  std::vector<float> buffer(bytes / sizeof(float));
  const auto expected = static_cast<float>(engine.size());
  std::vector<double> times;
  std::uint64_t wrong = 0;
  ronde_statistics before = engine.statistics();
  for (int span = -kWarmUps; span < spans; ++span) {
    if (span == 0) before = engine.statistics();
    engine.barrier_blocking("start");
    const auto begin = Clock::now();
    for (int call = 0; call < kCalls; ++call) {
      std::fill(buffer.begin(), buffer.end(), 1.0F);
      engine.allreduce_blocking("x", std::span(buffer), ronde::sum);
      wrong += buffer.back() != expected ? 1U : 0U;
    }
    const std::chrono::duration<double, std::micro> gone = Clock::now() - begin;
    if (span >= 0) times.push_back(gone.count() / kCalls);
  }
  const ronde_statistics after = engine.statistics();
  engine.allreduce_blocking("times", std::span(times), ronde::max);
  engine.allreduce_blocking("wrong", std::span(&wrong, 1), ronde::sum);
  std::sort(times.begin(), times.end());
  const auto at = [&](std::size_t percent) { return times[(times.size() - 1) * percent / 100]; };
  if (engine.rank() == 0) {
    std::printf(
        "ranks=%d bytes=%zu p10_us=%.3f p50_us=%.3f p90_us=%.3f wakes_per_call=%.3f "
        "wrong=%" PRIu64 "\n",
        engine.size(), bytes, at(10), at(50), at(90),
        static_cast<double>(after.background_wakes - before.background_wakes) /
            (spans * (kCalls + 1)),
        wrong);
  }
  return wrong == 0 ? 0 : 1;
}

int idle(ronde::Engine& engine, double seconds) {
  // Once there and back, so that everything exists that an engine in use has.
  float one = 1.0F;
  engine.allreduce_blocking("x", std::span(&one, 1), ronde::sum);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until it has gone to sleep
  const ronde_statistics before = engine.statistics();
  const double cpu_before = cpu_seconds();
  const auto begin = Clock::now();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const std::chrono::duration<double> gone = Clock::now() - begin;
  double share = (cpu_seconds() - cpu_before) / gone.count();
  const ronde_statistics after = engine.statistics();
  std::uint64_t bytes = after.control_bytes - before.control_bytes;
  std::uint64_t wakes = after.background_wakes - before.background_wakes;
  engine.allreduce_blocking("share", std::span(&share, 1), ronde::max);
  engine.allreduce_blocking("bytes", std::span(&bytes, 1), ronde::sum);
  engine.allreduce_blocking("wakes", std::span(&wakes, 1), ronde::sum);
  if (engine.rank() == 0) {
    std::printf("ranks=%d seconds=%.2f core_share=%.6f control_bytes=%" PRIu64 " wakes=%" PRIu64
                "\n",
                engine.size(), gone.count(), share, bytes, wakes);
  }
  return 0;
}

// Reduce-scatters do not fuse, so each of them is a batch of its own. The same 8,000 operations run
// all together or 1,000 at a time.
class Outstanding {
 public:
  explicit Outstanding(ronde::Engine& engine)
      : engine_(engine),
        ranks_(static_cast<std::size_t>(engine.size())),
        share_(std::max<std::size_t>(1, 2 / ranks_)),
        input_(share_ * ranks_, 1.0F),
        outputs_(share_ * kMany) {
    for (std::size_t i = 0; i < kMany; ++i) names_.push_back("scatter " + std::to_string(i));
    for (int step = 0; step < 2; ++step) static_cast<void>(span(kMany));  // the plan learns them
  }

  // Returns the microseconds of each operation when `count` of them are outstanding together.
  double span(std::size_t count) {
    std::fill(outputs_.begin(), outputs_.end(), 0.0F);
    Clock::duration gone{};
    for (std::size_t first = 0; first < kMany; first += count) gone += run(first, count);
    const auto right = static_cast<float>(ranks_);
    wrong_ += static_cast<std::uint64_t>(
        std::count_if(outputs_.begin(), outputs_.end(), [&](float sum) { return sum != right; }));
    return std::chrono::duration<double, std::micro>(gone).count() / kMany;
  }

  [[nodiscard]] std::uint64_t wrong() const { return wrong_; }

  static constexpr std::size_t kFew = 1000;
  static constexpr std::size_t kMany = 8000;

 private:
  // Rank 0 submits when the others have, so that its queue grows faster than it is worked off.
  Clock::duration run(std::size_t first, std::size_t count) {
    std::vector<ronde::Work> works;
    works.reserve(count);
    engine_.barrier_blocking("idle");
    if (engine_.rank() != 0) submit(first, count, works);
    engine_.barrier_blocking("start");
    const auto begin = Clock::now();
    if (engine_.rank() == 0) submit(first, count, works);
    for (ronde::Work& work : works) work.wait();
    return Clock::now() - begin;
  }

  void submit(std::size_t first, std::size_t count, std::vector<ronde::Work>& works) {
    for (std::size_t i = first; i < first + count; ++i) {
      const auto output = std::span(outputs_).subspan(i * share_, share_);
      works.push_back(engine_.reduce_scatter(names_[i], std::span(input_), output, ronde::sum));
    }
  }

  ronde::Engine& engine_;
  const std::size_t ranks_;
  const std::size_t share_;  // elements of each rank: 8 bytes in all, or one for each rank
  std::vector<float> input_;
  std::vector<float> outputs_;
  std::vector<std::string> names_;
  std::uint64_t wrong_ = 0;
};

int outstanding(ronde::Engine& engine, int spans) {
  Outstanding scatters(engine);
  std::vector<double> few;
  std::vector<double> many;
  for (int span = 0; span < spans; ++span) {
    few.push_back(scatters.span(Outstanding::kFew));
    many.push_back(scatters.span(Outstanding::kMany));
  }
  std::uint64_t wrong = scatters.wrong();
  engine.allreduce_blocking("wrong", std::span(&wrong, 1), ronde::sum);
  const auto median = [](std::vector<double>& times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  };
  if (engine.rank() == 0) {
    std::printf("ranks=%d few=%zu many=%zu few_us=%.3f many_us=%.3f wrong=%" PRIu64 "\n",
                engine.size(), Outstanding::kFew, Outstanding::kMany, median(few), median(many),
                wrong);
  }
  return wrong == 0 ? 0 : 1;
}

// The allreduce that blocks beside the one that is submitted and waited for, in turns. Each has a
// name of its own, because the engine learns by name whether its submitter waits at once.
class Pair {
 public:
  Pair(ronde::Engine& engine, std::size_t bytes) : engine_(engine), buffer_(bytes / sizeof(float)) {
    blocking(0us);
  }

  void blocking(Clock::duration computing) {
    compute(computing);
    fill();
    engine_.allreduce_blocking("blocks", std::span(buffer_), ronde::sum);
    check();
  }

  void submitted(const std::string& name, Clock::duration computing) {
    fill();
    ronde::Work work = engine_.allreduce(name, std::span(buffer_), ronde::sum);
    compute(computing);
    work.wait();
    check();
  }

  // Returns the microseconds of each call.
  template <typename Call>
  double span(int calls, Call&& call) {
    engine_.barrier_blocking("start");
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls;
  }

  [[nodiscard]] std::uint64_t wrong() {
    engine_.allreduce_blocking("wrong", std::span(&wrong_, 1), ronde::sum);
    return wrong_;
  }

 private:
  static void compute(Clock::duration length) {
    if (length.count() == 0) return;
    for (const auto end = Clock::now() + length; Clock::now() < end;) {
    }
  }
  // The ends alone: at a MiB filling would be measured otherwise.
  void fill() { buffer_.front() = buffer_.back() = 1.0F; }
  void check() {
    const auto expected = static_cast<float>(engine_.size());
    if (buffer_.front() != expected || buffer_.back() != expected) ++wrong_;
  }

  ronde::Engine& engine_;
  std::vector<float> buffer_;
  std::uint64_t wrong_ = 0;
};

// The median over the spans of the slowest rank's times.
double slowest(ronde::Engine& engine, const char* name, std::vector<double>& times) {
  engine.allreduce_blocking(name, std::span(times), ronde::max);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// In spans of some milliseconds, so that each pays for what it leaves the background thread to do.
int waits(ronde::Engine& engine, std::size_t bytes, int turns) {
  const int calls = bytes < (64U << 10) ? 1000 : bytes < (1U << 20) ? 300 : 30;
  Pair pair(engine, bytes);
  std::vector<double> blocks;
  std::vector<double> waits;
  for (int span = -5; span < turns; ++span) {
    const double first = pair.span(calls, [&] { pair.blocking(0us); });
    const double second = pair.span(calls, [&] { pair.submitted("waits", 0us); });
    if (span < 0) continue;
    blocks.push_back(first);
    waits.push_back(second);
  }
  const std::uint64_t wrong = pair.wrong();
  const double blocking_us = slowest(engine, "blocking times", blocks);
  const double waits_us = slowest(engine, "waits times", waits);
  if (engine.rank() == 0) {
    std::printf("ranks=%d bytes=%zu blocking_us=%.3f waits_us=%.3f wrong=%" PRIu64 "\n",
                engine.size(), bytes, blocking_us, waits_us, wrong);
  }
  return wrong == 0 ? 0 : 1;
}

// Each of three loops with a computation: "after" computes and then blocks; "steady" computes
// between submit and wait(), always under that name; "changed" is the one such call of a name whose
// submitter had waited at once 64 times. Prints the microseconds of one turn.
int overlap(ronde::Engine& engine, std::size_t bytes, int turns) {
  constexpr int kRounds = 8;
  Pair pair(engine, bytes);
  std::string line = "ranks=" + std::to_string(engine.size());
  for (const auto computing : {50us, 200us, 500us}) {
    std::array<std::vector<double>, 3> times;
    for (int span = -5; span < turns; ++span) {
      const std::array<double, 3> turn{
          pair.span(kRounds, [&] { pair.blocking(computing); }),
          pair.span(kRounds, [&] { pair.submitted("overlaps", computing); }),
          (pair.span(kCalls, [&] { pair.submitted("changes", 0us); }),
           pair.span(1, [&] { pair.submitted("changes", computing); }))};
      for (std::size_t i = 0; span >= 0 && i < turn.size(); ++i) times.at(i).push_back(turn.at(i));
    }
    const std::string suffix = "_" + std::to_string(computing.count()) + "=";
    line += " after" + suffix + std::to_string(slowest(engine, "after", times[0]));
    line += " steady" + suffix + std::to_string(slowest(engine, "steady", times[1]));
    line += " changed" + suffix + std::to_string(slowest(engine, "changed", times[2]));
  }
  const std::uint64_t wrong = pair.wrong();
  if (engine.rank() == 0) std::printf("%s wrong=%" PRIu64 "\n", line.c_str(), wrong);
  return wrong == 0 ? 0 : 1;
}

// Prints the seconds of processors that all ranks together take for each GiB of the tensors that
// one of them reduces: its own threads, and those of MPI or UCX.
int cpu(ronde::Engine& engine, std::size_t bytes, int turns) {
  constexpr double kGib = 1U << 30U;
  std::vector<float> buffer(bytes / sizeof(float));
  const auto expected = static_cast<float>(engine.size());
  std::uint64_t wrong = 0;
  double before = 0;
  for (int turn = -2; turn < turns; ++turn) {
    if (turn == 0) before = cpu_seconds();
    std::fill(buffer.begin(), buffer.end(), 1.0F);
    engine.allreduce("x", std::span(buffer), ronde::sum).wait();
    wrong += buffer.back() != expected ? 1U : 0U;
  }
  double used = cpu_seconds() - before;
  engine.allreduce_blocking("used", std::span(&used, 1), ronde::sum);
  engine.allreduce_blocking("wrong", std::span(&wrong, 1), ronde::sum);
  if (engine.rank() == 0) {
    std::printf("ranks=%d bytes=%zu cpu_s_per_gib=%.6f wrong=%" PRIu64 "\n", engine.size(), bytes,
                used * kGib / (static_cast<double>(bytes) * turns), wrong);
  }
  return wrong == 0 ? 0 : 1;
}

int opening() {
  const auto begin = Clock::now();
  ronde::Engine engine;
  double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  engine.allreduce_blocking("opening", std::span(&seconds, 1), ronde::max);
  if (engine.rank() == 0) std::printf("ranks=%d opening_s=%.6f\n", engine.size(), seconds);
  return 0;
}

int usage() {
  std::fputs(
      "usage: engine latency [bytes] | engine idle [seconds] | engine outstanding [spans] | "
      "engine waits [bytes] [turns] | engine overlap [bytes] [turns] | engine cpu [bytes] "
      "[turns] | engine opening\n",
      stderr);
  return 2;
}

// The modes that take a number of bytes, and how many turns they take unless told.
struct BySize {
  std::string_view mode;
  int (*measure)(ronde::Engine& engine, std::size_t bytes, int turns);
  int turns;
};
constexpr std::array<BySize, 4> kBySize{{{"latency", latency, kSpans},
                                         {"waits", waits, 100},
                                         {"overlap", overlap, 100},
                                         {"cpu", cpu, 10}}};

int run_by_size(const BySize& by_size, const char* size, const char* turns) {
  constexpr long long kMostBytes = 64 << 20;
  const long long bytes = size == nullptr ? 8 : std::atoll(size);
  const int count = turns == nullptr ? by_size.turns : std::atoi(turns);
  if (bytes < 4 || bytes > kMostBytes || bytes % 4 != 0 || count < 1) return usage();
  ronde::Engine engine;
  return by_size.measure(engine, static_cast<std::size_t>(bytes), count);
}

int run(const std::string& mode, const char* argument, const char* turns) {
  for (const BySize& by_size : kBySize) {
    if (mode == by_size.mode) return run_by_size(by_size, argument, turns);
  }
  if (turns != nullptr) return usage();
  if (mode == "opening" && argument == nullptr) return opening();
  if (mode == "idle") {
    const double seconds = argument == nullptr ? 3.0 : std::atof(argument);
    if (!(seconds > 0.0 && seconds <= 3600.0)) return usage();
    ronde::Engine engine;
    return idle(engine, seconds);
  }
  if (mode == "outstanding") {
    const int spans = argument == nullptr ? 5 : std::atoi(argument);
    if (spans < 1 || spans > 1000) return usage();
    ronde::Engine engine;
    return outstanding(engine, spans);
  }
  return usage();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2 || argc > 4) return usage();
    return run(argv[1], argc >= 3 ? argv[2] : nullptr, argc == 4 ? argv[3] : nullptr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "engine: %s\n", error.what());
    return 1;
  }
}
