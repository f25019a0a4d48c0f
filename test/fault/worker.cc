// SPDX-License-Identifier: Apache-2.0
// A rank of the jobs that the fault tests start: it allreduces vectors whose sums are known, over
// and over, and checks every one. One rank can be told to strike: to send itself a signal at a
// given moment of an iteration, which is how a test hits the middle of a collective every time.
// Each rank writes its report into a file of its own, because mpirun does not keep the output of
// ranks apart.
//
// usage: worker folder=DIR [bytes=N,N,...] [iterations=N] [in_place=0|1] [prepared=0|1] [seed=N]
//               [sets=0|1] [victim=RANK at=ITERATION after=SECONDS signal=N [joins=0|1]]
//               [blocked=RANK]
// sets: the lower and the upper half of the ranks are process sets, each with iterations of its
// own. joins: the victim has joined when it strikes, and the others' iterations go on without it.
// blocked: this rank, of the set without the victim, stands in its program from an iteration on
// until the victim strikes, which that one does many iterations later, of its own set (at=0).
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <optional>
#include <ronde/ronde.hpp>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "test/e2e/mpi_calls/mpi_call_counter.h"
#include "test/support/words.h"

namespace {

using ronde::testing::now_ns;
using ronde::testing::write_file;

constexpr int kExitFailedJob = 3;  // a survivor's exit code

// When a rank stands in its program, and how many iterations the other set does beside it.
constexpr std::uint64_t kBlocksAt = 4;
constexpr std::uint64_t kIterationsBeside = 300;

struct Settings {
  std::string folder;
  std::vector<std::size_t> bytes{8};  // the sizes of an iteration's vectors, submitted together
  std::uint64_t iterations = 0;       // 0: until something fails
  bool in_place = false;
  bool prepared = false;  // operations that are agreed once, in place
  std::uint64_t seed = 1;
  int victim = -1;
  std::uint64_t at = 3;
  double after = 0;
  int signal = SIGKILL;
  bool joins = false;
  bool sets = false;
  int blocked = -1;

  [[nodiscard]] bool without_victim(std::uint64_t iteration) const {
    return joins && iteration >= at;
  }
};

Settings parse(int argc, char** argv) {
  Settings settings;
  using Value = const std::string&;
  ronde::testing::read_words(
      argc, argv,
      {{"folder", [&](Value value) { settings.folder = value; }},
       {"bytes",
        [&](Value value) {
          settings.bytes.clear();
          std::istringstream list(value);
          for (std::string size; std::getline(list, size, ',');) {
            settings.bytes.push_back(std::stoul(size));
          }
        }},
       {"iterations", [&](Value value) { settings.iterations = std::stoul(value); }},
       {"in_place", [&](Value value) { settings.in_place = value == "1"; }},
       {"prepared", [&](Value value) { settings.prepared = value == "1"; }},
       {"seed", [&](Value value) { settings.seed = std::stoul(value); }},
       {"victim", [&](Value value) { settings.victim = std::stoi(value); }},
       {"at", [&](Value value) { settings.at = std::stoul(value); }},
       {"after", [&](Value value) { settings.after = std::stod(value); }},
       {"joins", [&](Value value) { settings.joins = value == "1"; }},
       {"sets", [&](Value value) { settings.sets = value == "1"; }},
       {"blocked", [&](Value value) { settings.blocked = std::stoi(value); }},
       {"signal", [&](Value value) { settings.signal = std::stoi(value); }}});
  if (settings.folder.empty()) throw std::invalid_argument("worker: folder=DIR is missing");
  return settings;
}

// Whole numbers, so small that their sums are exact in any order. They differ by seed and rank, so
// that a value of another job, another rank or another place is noticed.
std::uint64_t contribution(std::uint64_t seed, int rank, std::size_t index) {
  const auto r = static_cast<std::uint64_t>(rank);
  return (seed * 29 + r * 17 + index * (2 * r + 2 * seed + 3)) % 64;
}

// They return after 64 elements, for every seed and rank: so much is computed, and the rest is
// compared with it.
using Period = std::array<float, 64>;

Period period_of(std::uint64_t seed, int first_rank, int ranks) {
  Period period{};
  for (std::size_t i = 0; i < period.size(); ++i) {
    std::uint64_t sum = 0;
    for (int rank = first_rank; rank < first_rank + ranks; ++rank) {
      sum += contribution(seed, rank, i);
    }
    period[i] = static_cast<float>(sum);
  }
  return period;
}

// The first element that is not what it should be; the data's size: all are.
std::size_t first_wrong(std::span<const float> data, const Period& expected) {
  for (std::size_t begin = 0; begin < data.size(); begin += expected.size()) {
    const auto part = data.subspan(begin, std::min(expected.size(), data.size() - begin));
    if (std::memcmp(part.data(), expected.data(), part.size_bytes()) == 0) continue;
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (part[i] != expected[i]) return begin + i;
    }
  }
  return data.size();
}

class Tensor {
 public:
  Tensor(const Settings& settings, std::size_t position)
      : name_("v" + std::to_string(position)),
        seed_(settings.seed),
        in_place_(settings.in_place || settings.prepared),
        output_(settings.bytes[position] / sizeof(float)) {}

  void prepare(int rank) {
    if (in_place_) {
      fill(output_, rank);
    } else if (input_.empty()) {
      input_.resize(output_.size());
      fill(input_, rank);
    }
  }

  void agree(ronde::Engine& engine) {
    prepared_ = engine.prepare_allreduce(name_, output_, ronde::sum);
  }
  void run_prepared() { prepared_.run(); }

  ronde::Work submit(ronde::Engine& engine) {
    if (in_place_) return engine.allreduce(name_, std::span(output_), ronde::sum);
    return engine.allreduce(name_, std::span(std::as_const(input_)), std::span(output_),
                            ronde::sum);
  }

  // Checks every element of a small vector, and of any in the first iteration; later only some
  // elements of a large one, so that the job spends its time in the collectives. without: a rank
  // that has joined, or -1.
  void check(int ranks, int without) {
    constexpr std::size_t kSmall = 1 << 20;
    const bool only_some = checked_ && output_.size() > kSmall;
    checked_ = true;
    Period expected = period_of(seed_, 0, ranks);
    const Period missing = period_of(seed_, without, without < 0 ? 0 : 1);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] -= missing[i];
    std::size_t wrong = only_some ? 0 : first_wrong(output_, expected);
    while (only_some && wrong < output_.size() &&
           output_[wrong] == expected[wrong % expected.size()]) {
      wrong += 1009;
    }
    if (wrong >= output_.size()) return;
    throw std::runtime_error("wrong result: element " + std::to_string(wrong) + " of " + name_ +
                             " is " + std::to_string(output_[wrong]) + ", expected " +
                             std::to_string(expected[wrong % expected.size()]));
  }

  [[nodiscard]] bool input_intact(int rank) const {
    return first_wrong(input_, period_of(seed_, rank, 1)) == input_.size();
  }

  void mark_output() { std::fill(output_.begin(), output_.end(), kMark); }
  [[nodiscard]] bool output_is_marked() const {
    return std::all_of(output_.begin(), output_.end(), [](float x) { return x == kMark; });
  }

 private:
  static constexpr float kMark = -12345.0F;

  void fill(std::vector<float>& data, int rank) const {
    const Period period = period_of(seed_, rank, 1);
    for (std::size_t begin = 0; begin < data.size(); begin += period.size()) {
      std::copy_n(period.data(), std::min(period.size(), data.size() - begin), &data[begin]);
    }
  }

  std::string name_;
  std::uint64_t seed_;
  bool in_place_;
  bool checked_ = false;
  std::vector<float> input_;
  std::vector<float> output_;
  ronde::Prepared prepared_;
};

void strike(const Settings& settings) {
  std::this_thread::sleep_for(std::chrono::duration<double>(settings.after));
  write_file(settings.folder + "/struck", std::to_string(now_ns()) + "\n");
  ::kill(::getpid(), settings.signal);
}

// Registered before Ronde registers its MPI_Finalize, and so called after it.
void report_calls_at_exit() {
  const char* folder = std::getenv("FAULT_TEST_FOLDER");
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (folder == nullptr || rank == nullptr) return;
  write_file(std::string(folder) + "/rank-" + rank + ".calls", take_mpi_calls() + "\n");
}

// The others of its set wait for it meanwhile.
void stand(const Settings& settings) {
  write_file(settings.folder + "/blocked", "");
  const auto longest = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!std::filesystem::exists(settings.folder + "/struck") &&
         std::chrono::steady_clock::now() < longest) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void block(Settings& settings, int rank, std::uint64_t iteration) {
  if (rank == settings.blocked && iteration == kBlocksAt) stand(settings);
  if (rank == settings.victim && settings.at == 0 &&
      std::filesystem::exists(settings.folder + "/blocked")) {
    settings.at = iteration + kIterationsBeside;
  }
}

// One step of a training job, more or less; `rank` is that of the job.
void iterate(const Settings& settings, ronde::Engine& engine, int rank,
             std::vector<Tensor>& tensors, std::uint64_t iteration) {
  for (Tensor& tensor : tensors) tensor.prepare(engine.rank());
  if (rank == settings.victim && iteration == settings.at) {
    std::thread([settings] { strike(settings); }).detach();
  }
  const bool without = settings.without_victim(iteration);
  if (without && rank == settings.victim) {
    engine.join();
    return;
  }
  std::vector<ronde::Work> works;
  works.reserve(tensors.size());
  for (Tensor& tensor : tensors) {
    if (settings.prepared) {
      tensor.run_prepared();
    } else {
      works.push_back(tensor.submit(engine));
    }
  }
  for (ronde::Work& work : works) work.wait();
  const int missing = without ? settings.victim : -1;
  for (Tensor& tensor : tensors) tensor.check(engine.size(), missing);
}

ronde::Engine half_of(ronde::Engine& job) {
  const int middle = job.size() / 2;
  const bool upper = job.rank() >= middle;
  std::vector<int> ranks(static_cast<std::size_t>(upper ? job.size() - middle : middle));
  std::iota(ranks.begin(), ranks.end(), upper ? middle : 0);
  ronde::Engine half = job.subset(ranks, upper ? "upper half" : "lower half");
  job.barrier_blocking("both are open");  // nobody strikes before
  return half;
}

std::string later_text(ronde::Engine& engine) {
  std::vector<float> one(1);
  try {
    engine.allreduce_blocking("later", std::span(one));
  } catch (const ronde::Error& error) {
    return error.what();
  }
  return "no error";
}

// Reports the failure as the caller of Ronde sees it: the error, and the state of its memory.
std::string verdict_of(ronde::Engine& engine, std::vector<Tensor>& tensors, int rank,
                       const ronde::Error& error) {
  static_cast<void>(take_mpi_calls());  // those before the failure
  std::ostringstream verdict;
  verdict << "failed_ns=" << now_ns() << "\nstatus=" << ronde_status_name(error.status())
          << "\nculprit=" << error.rank() << "\ntext=" << error.what()
          << "\nlater=" << later_text(engine) << '\n';
  bool intact = true;
  for (Tensor& tensor : tensors) {
    intact = intact && tensor.input_intact(rank);
    tensor.mark_output();
  }
  // The peers may still work on tensors that were in flight here.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  bool marked = true;
  for (const Tensor& tensor : tensors) marked = marked && tensor.output_is_marked();
  verdict << "inputs=" << (intact ? "intact" : "changed")
          << "\noutputs=" << (marked ? "left alone" : "written after the failure") << '\n';
  return verdict.str();
}

int run(Settings settings) {
  std::vector<Tensor> tensors;  // outlive the engine
  for (std::size_t i = 0; i < settings.bytes.size(); ++i) tensors.emplace_back(settings, i);
  ronde::Engine engine;
  std::optional<ronde::Engine> half;
  const int rank = engine.rank();
  const std::string mine = settings.folder + "/rank-" + std::to_string(rank);
  write_file(mine + ".pid", std::to_string(::getpid()) + "\n");
  std::uint64_t iteration = 0;
  std::int64_t longest = 0;
  try {
    if (settings.sets) half.emplace(half_of(engine));
    ronde::Engine& where = half ? *half : engine;
    for (Tensor& tensor : tensors) {
      if (settings.prepared) tensor.agree(where);
    }
    while (settings.iterations == 0 || iteration < settings.iterations) {
      const std::int64_t began = now_ns();
      ++iteration;
      if (settings.blocked >= 0) block(settings, rank, iteration);
      iterate(settings, where, rank, tensors, iteration);
      longest = std::max(longest, now_ns() - began);
    }
    engine.close();
    write_file(mine + ".verdict", "status=done\niterations=" + std::to_string(iteration) +
                                      "\nlongest_ns=" + std::to_string(longest) + '\n');
    return 0;
  } catch (const ronde::Error& error) {
    ronde::Engine& where = half ? *half : engine;
    std::string verdict = verdict_of(where, tensors, where.rank(), error);
    std::string closing = "no error";
    try {
      engine.close();
    } catch (const ronde::Error& late) {
      closing = late.what();
    }
    verdict += "close=" + closing + "\niterations=" + std::to_string(iteration) + '\n';
    write_file(mine + ".verdict", verdict);
    return kExitFailedJob;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (std::atexit(report_calls_at_exit) != 0) throw std::runtime_error("atexit");
    return run(parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "worker: %s\n", error.what());
    return 1;
  }
}
