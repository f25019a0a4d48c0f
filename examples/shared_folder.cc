// SPDX-License-Identifier: Apache-2.0
// Ranks that meet over a store of the program: here a folder that all of them share, which may be
// on a network file system. Started by hand, once for each rank, with a new folder each time:
//
//   shared_folder FOLDER 0 2 & shared_folder FOLDER 1 2
//
// LibTorch's c10d::Store, etcd or Redis fit in the same place: set() and get() are all there is.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ronde/ronde.hpp>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace fs = std::filesystem;

// A key is a file. Another name first, then a rename: so no rank reads half a value.
class SharedFolder final : public ronde::Store {
 public:
  explicit SharedFolder(fs::path folder) : folder_(std::move(folder)) {}

  void set(const std::string& key, std::span<const std::byte> value) override {
    const fs::path file = folder_ / key;
    fs::create_directories(file.parent_path());
    std::ofstream out(file.string() + ".part", std::ios::binary);
    out.exceptions(std::ios::failbit | std::ios::badbit);
    out.write(reinterpret_cast<const char*>(value.data()),
              static_cast<std::streamsize>(value.size()));
    out.close();
    fs::rename(file.string() + ".part", file);
  }
  std::optional<std::vector<std::byte>> get(const std::string& key,
                                            std::chrono::nanoseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (;;) {
      if (std::ifstream in(folder_ / key, std::ios::binary); in) {
        const std::string text{std::istreambuf_iterator<char>(in), {}};
        const auto bytes = std::as_bytes(std::span(text));
        return std::vector<std::byte>(bytes.begin(), bytes.end());
      }
      if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

 private:
  fs::path folder_;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) {
    std::fputs("usage: shared_folder FOLDER RANK SIZE\n", stderr);
    return 2;
  }
  SharedFolder store(argv[1]);
  ronde::Engine engine(store, std::stoi(argv[2]), std::stoi(argv[3]));
  std::vector<float> gradient(1000, static_cast<float>(engine.rank()));
  engine.allreduce_blocking("gradient", gradient, ronde::average);
  if (engine.rank() == 0) std::printf("ranks=%d average=%g\n", engine.size(), gradient[0]);
  engine.close();
} catch (const std::exception& error) {
  std::fprintf(stderr, "shared_folder: %s\n", error.what());
  return 1;
}
