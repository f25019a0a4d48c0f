// SPDX-License-Identifier: Apache-2.0
// The collectives of the toy device: the streams of all ranks of a job meet here.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/device/plugin.h"

namespace ronde::toy {

[[nodiscard]] std::int64_t size_of_dtype(std::int32_t dtype);

// What one rank brings to a collective; pointers are those that the device can use.
struct Call {
  std::uint64_t number = 0;  // the same on all ranks
  std::int32_t rank = 0;
  ronde_plugin_batch batch{};
  std::vector<ronde_plugin_tensor> tensors;
};

// Thread safety: all functions, from any thread.
class Hub {
 public:
  // By one rank, for a job of so many; each of them takes it once.
  static Hub* make(std::int32_t size);
  static std::shared_ptr<Hub> take(Hub* hub);

  // Returns when the collective is over on this rank; an empty text, or why it failed.
  std::string run(const Call& call);
  // Whoever is in run(), or comes later, fails.
  void abort(const std::string& why);

 private:
  struct Meeting {
    std::vector<const Call*> calls;  // by rank
    std::int32_t come = 0;
    std::int32_t computed = 0;
    std::int32_t gone = 0;
  };

  explicit Hub(std::int32_t size) : size_(size) {}

  const std::int32_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Meeting> meetings_;
  bool aborted_ = false;
  std::string why_;
};

}  // namespace ronde::toy
