// SPDX-License-Identifier: Apache-2.0
// A rank with two engines at once, each on a communicator of its own and used by several threads:
// one numbers the ranks as mpirun does, the other backwards. Every sum is checked.
//
// usage: mpi_engines_worker [rounds=N] [threads=N] [steps=N]
#include <mpi.h>

#include <ronde/mpi.h>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <ronde/ronde.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/support/words.h"

namespace {

struct Settings {
  int rounds = 2;  // how often the engines are opened and closed
  int threads = 3;
  int steps = 10;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto [key, text] = ronde::testing::key_and_value(word);
    if (text.empty()) throw std::invalid_argument("unknown word " + word);
    const int value = std::stoi(text);
    if (key == "rounds") {
      settings.rounds = value;
    } else if (key == "threads") {
      settings.threads = value;
    } else if (key == "steps") {
      settings.steps = value;
    } else {
      throw std::invalid_argument("unknown word " + word);
    }
  }
  return settings;
}

// A duplicate of the world; `backwards`: numbered the other way round.
class Communicator {
 public:
  explicit Communicator(bool backwards) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, 0, backwards ? -rank : rank, &communicator_);
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() { MPI_Comm_free(&communicator_); }

  [[nodiscard]] ronde_engine_options options() const {
    ronde_engine_options options;
    ronde_engine_options_init(&options);
    ronde_engine_options_set_communicator(&options, communicator_);
    return options;
  }

 private:
  MPI_Comm communicator_ = MPI_COMM_NULL;
};

// The first thing that went wrong in any thread.
//
// Thread safety: any thread.
class Trouble {
 public:
  template <typename Body>
  void guard(const Body& body) {
    try {
      body();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!first_) first_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
};

// Whether each element has the bits of `expected`: of the first, and then of the one before it.
bool all_are(const std::vector<float>& data, float expected) {
  return std::memcmp(data.data(), &expected, sizeof expected) == 0 &&
         std::memcmp(data.data(), data.data() + 1, (data.size() - 1) * sizeof expected) == 0;
}

// A thread's tensors of one engine: small whole numbers, so that sums are exact.
class Tensors {
 public:
  Tensors(ronde::Engine& engine, int which, int thread)
      : engine_(engine),
        prefix_("engine " + std::to_string(which) + " thread " + std::to_string(thread) + ": "),
        offset_(which * 10 + thread) {}

  void submit(int step) {
    for (std::size_t i = 0; i < kLengths.size(); ++i) {
      data_[i].assign(kLengths[i], static_cast<float>(engine_.rank() + offset_ + step));
      works_[i] = engine_.allreduce(prefix_ + std::to_string(i), std::span(data_[i]), ronde::sum);
    }
  }
  void check(int step) {
    const int ranks = engine_.size();
    const int sum = ranks * (ranks - 1) / 2 + ranks * (offset_ + step);
    const auto expected = static_cast<float>(sum);
    for (std::size_t i = 0; i < kLengths.size(); ++i) {
      works_[i].wait();
      if (all_are(data_[i], expected)) continue;
      for (const float x : data_[i]) {
        if (x == expected) continue;
        throw std::runtime_error(prefix_ + std::to_string(i) + " is " + std::to_string(x) +
                                 ", expected " + std::to_string(expected));
      }
    }
  }

 private:
  static constexpr std::array<std::size_t, 4> kLengths{1, 700, 40'000, 300'000};

  ronde::Engine& engine_;
  const std::string prefix_;
  const int offset_;
  std::array<std::vector<float>, kLengths.size()> data_;
  std::array<ronde::Work, kLengths.size()> works_;
};

// A thread that uses both engines, and begins with another one than its neighbours.
void use(ronde::Engine& one, ronde::Engine& other, const Settings& settings, int thread) {
  Tensors first(one, 1, thread);
  Tensors second(other, 2, thread);
  Tensors* in_order[]{&first, &second};
  if ((one.rank() + thread) % 2 == 1) std::swap(in_order[0], in_order[1]);
  for (int step = 0; step < settings.steps; ++step) {
    for (Tensors* tensors : in_order) tensors->submit(step);
    // Whoever waits, works: this thread drives one engine while the other has something to do too.
    for (Tensors* tensors : in_order) tensors->check(step);
  }
}

void round(const Settings& settings) {
  const Communicator forwards(false);
  const Communicator backwards(true);
  ronde::Engine one(forwards.options());
  ronde::Engine other(backwards.options());
  if (one.rank() + other.rank() != one.size() - 1) throw std::runtime_error("wrong ranks");
  Trouble trouble;
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(settings.threads));
  for (int thread = 0; thread < settings.threads; ++thread) {
    threads.emplace_back(
        [&, thread] { trouble.guard([&] { use(one, other, settings, thread); }); });
  }
  for (std::thread& thread : threads) thread.join();
  trouble.rethrow();
  // One engine closes first, and the other must still work.
  one.close();
  std::vector<std::int64_t> last(3, 1);
  other.allreduce_blocking("last", std::span(last), ronde::sum);
  if (last[2] != other.size()) throw std::runtime_error("wrong sum after the other engine's end");
  other.close();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Settings settings = parse(argc, argv);
    int offered = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &offered);
    for (int i = 0; i < settings.rounds; ++i) round(settings);
    MPI_Finalize();
    std::printf("two engines are right\n");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_engines_worker: %s\n", error.what());
    std::fflush(stderr);
    std::_Exit(1);  // the other ranks may not be able to end MPI together
  }
}
