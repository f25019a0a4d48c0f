// SPDX-License-Identifier: Apache-2.0
// A rank with two engines whose members differ: one of all ranks, and one of all but rank 0, in
// which they are numbered backwards. Both are opened, used and closed in another order than on the
// rank's neighbours. The ranks meet over a folder, or, for the engine of all, at RONDE_MEET.
//
// usage: store_engines_worker FOLDER store|point      (RONDE_RANK and RONDE_SIZE say who this is)
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
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

// An engine and its sums of small whole numbers.
class Sums {
 public:
  explicit Sums(ronde::Engine engine) : engine_(std::move(engine)) {}
  void submit(int step) {
    for (std::size_t i = 0; i < works_.size(); ++i) {
      data_[i].assign(kLengths[i], static_cast<float>(engine_.rank() + step));
      works_[i] = engine_.allreduce(std::to_string(i), std::span(data_[i]), ronde::sum);
    }
  }
  void check(int step) {
    const int ranks = engine_.size();
    const auto sum = static_cast<float>(ranks * (ranks - 1) / 2 + ranks * step);
    for (std::size_t i = 0; i < works_.size(); ++i) {
      works_[i].wait();
      if (data_[i] == std::vector<float>(kLengths[i], sum)) continue;
      throw std::runtime_error("a sum of " + std::to_string(ranks) + " ranks is wrong");
    }
  }
  ronde::Engine& engine() { return engine_; }

 private:
  static constexpr std::array<std::size_t, 3> kLengths{1, 700, 300'000};

  ronde::Engine engine_;
  std::array<std::vector<float>, kLengths.size()> data_;
  std::array<ronde::Work, kLengths.size()> works_;
};

int number(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr) throw std::invalid_argument(std::string(name) + " is not set");
  return std::stoi(text);
}

void run(const fs::path& folder, bool at_the_point) {
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
  std::vector<Sums> engines;
  for (auto& one : opening) engines.emplace_back(one.get());
  for (int step = 0; step < 10; ++step) {
    for (Sums& sums : engines) sums.submit(step);
    if (step % 2 == 1) std::reverse(engines.begin(), engines.end());
    for (Sums& sums : engines) sums.check(step);
  }
  for (Sums& sums : engines) sums.engine().close();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("usage: store_engines_worker FOLDER store|point");
  run(argv[1], std::string(argv[2]) == "point");
  std::printf("two engines are right\n");
} catch (const std::exception& error) {
  std::fprintf(stderr, "store_engines_worker: %s\n", error.what());
  return 1;
}
