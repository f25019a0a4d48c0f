// SPDX-License-Identifier: Apache-2.0
// Something that is measured: an allreduce of f32 sums in place, or a yardstick beside it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ronde::bench {

// Thread safety: belongs to one thread of each rank. All functions are collective.
class Contender {
 public:
  explicit Contender(std::string name) : name_(std::move(name)) {}
  virtual ~Contender() = default;

  [[nodiscard]] const std::string& name() const { return name_; }
  // False: the result is what this rank had in its buffer.
  [[nodiscard]] virtual bool reduces() const { return true; }
  // Throws when it fails.
  virtual void run(float* buffer, std::int64_t elements) = 0;
  // Where the last run with that buffer has left its result.
  [[nodiscard]] virtual const float* result(const float* buffer) const { return buffer; }

 private:
  std::string name_;
};

using Contenders = std::vector<std::unique_ptr<Contender>>;

}  // namespace ronde::bench
