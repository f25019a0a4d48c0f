// SPDX-License-Identifier: Apache-2.0
// Where the groups of all ranks of a communicator of the fake NCCL meet.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "base/dtype.h"

namespace ronde::fake {

// One call inside a group; pointers are those that the device can use.
struct Operation {
  enum class Kind { kAllreduce, kBroadcast, kReduce, kSend, kReceive };
  Kind kind = Kind::kAllreduce;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::int64_t elements = 0;
  base::DType dtype = base::DType::kU8;
  base::ReduceOp op = base::ReduceOp::kSum;
  double multiplier = 1.0;
  int peer = 0;
};
using Group = std::vector<Operation>;

// Thread safety: all functions, from any thread.
class Hub {
 public:
  explicit Hub(int size) : size_(size), gone_(static_cast<std::size_t>(size)) {}

  [[nodiscard]] int size() const { return size_; }
  void join() {
    const std::lock_guard lock(mutex_);
    ++joined_;
  }
  [[nodiscard]] bool complete() {
    const std::lock_guard lock(mutex_);
    return joined_ == size_;
  }
  // The kernel of one rank: returns when its part is over, or the rank is gone. False: the groups
  // of the ranks do not fit together.
  bool run(int rank, std::uint64_t number, const Group& group);
  // The kernels of this rank end; those of others go on waiting for it.
  void leave(int rank);

 private:
  struct Meeting {
    std::vector<const Group*> groups;  // by rank
    int come = 0;
    int computed = 0;
    int gone = 0;
  };

  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Meeting> meetings_;
  std::vector<char> gone_;
  int joined_ = 0;
};

}  // namespace ronde::fake
