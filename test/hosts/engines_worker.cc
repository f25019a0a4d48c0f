// SPDX-License-Identifier: Apache-2.0
// A rank with two engines at once, each used by several threads; every sum is checked.
//
// usage: engines_worker mpi                 both of all ranks, of which one numbers them backwards
//        engines_worker store|point FOLDER  one of all ranks, and one of all but rank 0, backwards;
//                                           they meet over the folder, or, that of all, at
//                                           RONDE_MEET (RONDE_RANK and RONDE_SIZE say who this is)
#include <mpi.h>

#include <ronde/mpi.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <optional>
#include <ronde/ronde.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Engines = std::vector<ronde::Engine>;

// A key is a file below `folder`, and gets its name when it is whole.
class Folder final : public ronde::Store {
 public:
  explicit Folder(fs::path folder) : folder_(std::move(folder)) {}
  void set(const std::string& key, std::span<const std::byte> value) override {
    const fs::path file = folder_ / key;
    fs::create_directories(file.parent_path());
    const std::string part = file.string() + ".part";
    std::ofstream(part, std::ios::binary)
        .write(reinterpret_cast<const char*>(value.data()),
               static_cast<std::streamsize>(value.size()));
    fs::rename(part, file);
  }
  std::optional<std::vector<std::byte>> get(const std::string& key,
                                            std::chrono::nanoseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (std::chrono::steady_clock::now() < deadline) {
      if (std::ifstream in(folder_ / key, std::ios::binary); in) {
        const std::string text{std::istreambuf_iterator<char>(in), {}};
        const auto bytes = std::as_bytes(std::span(text));
        return std::vector<std::byte>(bytes.begin(), bytes.end());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return std::nullopt;
  }

 private:
  const fs::path folder_;
};

// Over a duplicate of the world.
ronde::Engine open_over_mpi(bool backwards) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm communicator = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, backwards ? -rank : rank, &communicator);
  ronde_engine_options options;
  ronde_engine_options_init(&options);
  ronde_engine_options_set_communicator(&options, communicator);
  ronde::Engine engine(options);
  MPI_Comm_free(&communicator);
  return engine;
}

int number(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr) throw std::invalid_argument(std::string(name) + " is not set");
  return std::stoi(text);
}

Engines open_by_hand(const fs::path& folder, bool at_the_point) {
  const int rank = number("RONDE_RANK");
  const int size = number("RONDE_SIZE");
  Folder of_all(folder / "all");
  Folder of_some(folder / "some");
  const auto open_all = [&] {
    return at_the_point ? ronde::Engine() : ronde::Engine(of_all, rank, size);
  };
  const auto open_some = [&] { return ronde::Engine(of_some, size - 1 - rank, size - 1); };
  // Each opening waits for its members, so they begin in any order, but side by side.
  std::vector<std::future<ronde::Engine>> opening;
  if (rank % 2 == 0) opening.push_back(std::async(std::launch::async, open_all));
  if (rank > 0) opening.push_back(std::async(std::launch::async, open_some));
  if (rank % 2 == 1) opening.push_back(std::async(std::launch::async, open_all));
  Engines engines;
  for (auto& one : opening) engines.push_back(one.get());
  return engines;
}

// Whether each element has the bits of `expected`: of the first, and then of the one before it.
bool all_are(const std::vector<float>& data, float expected) {
  return std::memcmp(data.data(), &expected, sizeof expected) == 0 &&
         std::memcmp(data.data(), data.data() + 1, (data.size() - 1) * sizeof expected) == 0;
}

// A thread's tensors of one engine: small whole numbers, so that sums are exact, and other ones
// than those of another thread or engine.
class Tensors {
 public:
  Tensors(ronde::Engine& engine, int thread)
      : engine_(&engine),
        prefix_("thread " + std::to_string(thread) + ": "),
        offset_(10 * engine.size() + thread) {}

  void submit(int step) {
    for (std::size_t i = 0; i < kLengths.size(); ++i) {
      data_[i].assign(kLengths[i], static_cast<float>(engine_->rank() + offset_ + step));
      works_[i] = engine_->allreduce(prefix_ + std::to_string(i), std::span(data_[i]), ronde::sum);
    }
  }
  void check(int step) {
    const int ranks = engine_->size();
    const auto sum = static_cast<float>(ranks * (ranks - 1) / 2 + ranks * (offset_ + step));
    for (std::size_t i = 0; i < kLengths.size(); ++i) {
      works_[i].wait();
      if (all_are(data_[i], sum)) continue;
      throw std::runtime_error(prefix_ + "a sum of " + std::to_string(ranks) + " ranks is wrong");
    }
  }

 private:
  static constexpr std::array<std::size_t, 4> kLengths{1, 700, 40'000, 300'000};

  ronde::Engine* engine_;
  std::string prefix_;
  int offset_;
  std::array<std::vector<float>, kLengths.size()> data_;
  std::array<ronde::Work, kLengths.size()> works_;
};

// A thread that uses all engines, and begins with another one than its neighbours.
void use(Engines& engines, int thread) {
  std::vector<Tensors> all;
  for (ronde::Engine& engine : engines) all.emplace_back(engine, thread);
  if ((engines.front().rank() + thread) % 2 == 1) std::reverse(all.begin(), all.end());
  for (int step = 0; step < 10; ++step) {
    // Whoever waits, works: this thread drives one engine while the other has something to do too.
    for (Tensors& tensors : all) tensors.submit(step);
    for (Tensors& tensors : all) tensors.check(step);
  }
}

void use(Engines& engines) {
  std::vector<std::future<void>> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.push_back(std::async(std::launch::async, [&, thread] { use(engines, thread); }));
  }
  for (auto& thread : threads) thread.get();
}

void run_over_mpi() {
  int offered = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &offered);
  for (int round = 0; round < 2; ++round) {
    Engines engines;
    for (const bool backwards : {false, true}) engines.push_back(open_over_mpi(backwards));
    ronde::Engine& other = engines[1];
    if (engines[0].rank() + other.rank() != other.size() - 1)
      throw std::runtime_error("wrong ranks");
    use(engines);
    // One engine closes first, and the other must still work.
    engines[0].close();
    std::vector<std::int64_t> last(3, 1);
    other.allreduce_blocking("last", std::span(last), ronde::sum);
    if (last[2] != other.size()) throw std::runtime_error("wrong sum after the other engine's end");
    other.close();
  }
  MPI_Finalize();
}

void run_by_hand(const fs::path& folder, bool at_the_point) {
  Engines engines = open_by_hand(folder, at_the_point);
  use(engines);
  for (ronde::Engine& engine : engines) engine.close();  // in another order than the neighbours
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string how = argc > 1 ? argv[1] : "";
  if (how == "mpi") {
    run_over_mpi();
  } else if (argc == 3) {
    run_by_hand(argv[2], how == "point");
  } else {
    throw std::invalid_argument("usage: engines_worker mpi | store|point FOLDER");
  }
  std::printf("two engines are right\n");
} catch (const std::exception& error) {
  std::fprintf(stderr, "engines_worker: %s\n", error.what());
  std::fflush(stderr);
  std::_Exit(1);  // the other ranks may not be able to end MPI together
}
