// SPDX-License-Identifier: Apache-2.0
// Memory of floats that is used again once nobody reads it: the pages of fresh memory cost more
// than what is copied into them.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace ronde::trainer::server {

// Thread safety: any thread may let go of what was taken, also after the pool.
class FloatPool {
 public:
  // Empty, with the capacity that it had.
  [[nodiscard]] std::shared_ptr<std::vector<float>> take() {
    std::unique_ptr<std::vector<float>> memory;
    {
      const std::lock_guard lock(rest_->mutex);
      if (!rest_->free.empty()) {
        memory = std::move(rest_->free.back());
        rest_->free.pop_back();
      }
    }
    if (!memory) memory = std::make_unique<std::vector<float>>();
    memory->clear();
    return {memory.release(), [rest = rest_](std::vector<float>* back) {
              std::unique_ptr<std::vector<float>> owned(back);
              const std::lock_guard lock(rest->mutex);
              if (rest->free.size() < kKept) rest->free.push_back(std::move(owned));
            }};
  }

 private:
  static constexpr std::size_t kKept = 4;
  struct Rest {
    Rest() { free.reserve(kKept); }  // so that giving back never throws
    std::mutex mutex;
    std::vector<std::unique_ptr<std::vector<float>>> free;
  };
  std::shared_ptr<Rest> rest_ = std::make_shared<Rest>();
};

}  // namespace ronde::trainer::server
