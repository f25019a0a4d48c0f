// SPDX-License-Identifier: Apache-2.0
// The flags and vectors in shared memory, and the sum of them.
#include "examples/perf/contenders/contender.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "examples/perf/contenders/agreement.h"
#include "examples/perf/options/options.h"

namespace ronde::perf {

namespace {

constexpr std::size_t kMostFloorBytes = std::size_t{64} << 10;

// A vector behind its flag: a short one lies in the flag's cache line.
struct alignas(128) Flagged {
  std::atomic<std::uint32_t> flag{0};
  alignas(16) std::array<std::byte, kMostFloorBytes> bytes;
};
// Two of each rank: whoever sets a flag for call k + 1 has read all of call k.
using OfRank = std::array<Flagged, 2>;

// Thread safety: belongs to one thread.
class Mapping {
 public:
  explicit Mapping(std::size_t ranks = 0) : ranks_(ranks) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (all_ != nullptr) ::munmap(all_, ranks_ * sizeof(OfRank));
  }
  // The first rank makes the memory, of zeros, which the others then find by its name.
  void map(const char* name, bool make) {
    const int file = ::shm_open(name, make ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
    const std::size_t bytes = ranks_ * sizeof(OfRank);
    void* memory = MAP_FAILED;
    if (file >= 0 && (!make || ::ftruncate(file, static_cast<off_t>(bytes)) == 0)) {
      memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    const int error = errno;
    if (file >= 0) ::close(file);
    if (memory == MAP_FAILED) {
      throw std::runtime_error(std::string("--against floor: shared memory: ") +
                               std::strerror(error));
    }
    all_ = static_cast<OfRank*>(memory);
  }
  [[nodiscard]] Flagged& at(std::size_t rank, std::uint32_t call) const {
    return all_[rank][call % 2];
  }
  [[nodiscard]] std::size_t ranks() const { return ranks_; }

 private:
  std::size_t ranks_;
  OfRank* all_ = nullptr;
};

void relax_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

bool ranks_outnumber_cores(std::size_t ranks) {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 &&
         ranks > static_cast<std::size_t>(CPU_COUNT(&cores));
}

class FloorContender final : public Contender {
 public:
  FloorContender(std::size_t rank, std::unique_ptr<Mapping> mapping)
      : rank_(rank), mapping_(std::move(mapping)), yields_(ranks_outnumber_cores(ranks())) {}

  [[nodiscard]] std::string name() const override { return "floor"; }
  [[nodiscard]] std::string lacks(const Case& shape) const override {
    if (!shape.is_whole() || shape.row().reduces == 0) {
      return std::string(name_of(shape.operation));
    }
    if (shape.dtype->code != RONDE_F32) return std::string(shape.dtype->name);
    if (shape.op->reduction != Reduction::kSum) return std::string(shape.op->name);
    return shape.bytes() <= kMostFloorBytes ? "" : "vectors of more than 64 KiB";
  }
  void prepare(const Task& task) override { task_ = task; }
  void run() override {
    ++call_;
    const std::size_t count = task_.shape.count;
    Flagged& mine = mapping_->at(rank_, call_);
    std::memcpy(mine.bytes.data(), task_.input, count * sizeof(float));
    mine.flag.store(call_, std::memory_order_release);
    for (std::size_t rank = 0; rank < ranks(); ++rank) await(mapping_->at(rank, call_).flag);
    auto* const sum = reinterpret_cast<float*>(task_.output);
    std::memcpy(sum, mapping_->at(0, call_).bytes.data(), count * sizeof(float));
    for (std::size_t rank = 1; rank < ranks(); ++rank) {
      const auto* const more =
          reinterpret_cast<const float*>(mapping_->at(rank, call_).bytes.data());
      for (std::size_t i = 0; i < count; ++i) sum[i] += more[i];
    }
  }
  [[nodiscard]] std::byte* result() override { return task_.output; }

 private:
  static constexpr int kPauses = 64;  // before it yields

  [[nodiscard]] std::size_t ranks() const { return mapping_->ranks(); }
  void await(const std::atomic<std::uint32_t>& flag) const {
    for (int looks = 0; flag.load(std::memory_order_acquire) != call_; ++looks) {
      if (yields_ && looks >= kPauses) {
        ::sched_yield();
      } else {
        relax_core();
      }
    }
  }

  const std::size_t rank_;
  const std::unique_ptr<Mapping> mapping_;
  const bool yields_;
  std::uint32_t call_ = 0;
  Task task_;
};

}  // namespace

std::unique_ptr<Contender> make_floor(Engine& engine) {
  if (engine.local_size() != engine.size()) {
    throw UsageError("--against floor works on one host: leave it out");
  }
  auto mapping = std::make_unique<Mapping>(static_cast<std::size_t>(engine.size()));
  std::array<char, 64> name{};
  const std::string made = "/ronde-perf." + std::to_string(::getpid());
  std::ranges::copy(made, name.begin());
  const bool first = engine.rank() == 0;
  on_every_rank(engine, [&] {
    if (first) mapping->map(name.data(), true);
  });
  engine.broadcast_blocking(
      "ronde-perf/floor", std::span(reinterpret_cast<std::uint8_t*>(name.data()), name.size()), 0);
  try {
    on_every_rank(engine, [&] {
      if (!first) mapping->map(name.data(), false);
    });
  } catch (...) {
    if (first) ::shm_unlink(name.data());
    throw;
  }
  if (first) ::shm_unlink(name.data());
  return std::make_unique<FloorContender>(static_cast<std::size_t>(engine.rank()),
                                          std::move(mapping));
}

}  // namespace ronde::perf
