// SPDX-License-Identifier: Apache-2.0
// The floats of a message: the parts in which they lie in memory, so that they are not copied.
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace ronde::trainer::server {

// Thread safety: that of a std::vector. The numbers of a part must not be written any more.
class Floats {
 public:
  struct Part {
    std::shared_ptr<const void> owner;  // of the memory of the values
    std::span<const float> values;
  };

  [[nodiscard]] static Floats of(std::vector<float> values) {
    Floats floats;
    const auto owner = std::make_shared<const std::vector<float>>(std::move(values));
    floats.add({owner, *owner});
    return floats;
  }
  // Appends a part, unless it is empty.
  void add(Part part) {
    size_ += part.values.size();
    if (!part.values.empty()) parts_.push_back(std::move(part));
  }
  void add(const Floats& others) {
    for (const Part& one : others.parts_) add(one);
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::vector<float> whole() const {
    std::vector<float> all;
    all.reserve(size_);
    for (const Part& one : parts_) all.insert(all.end(), one.values.begin(), one.values.end());
    return all;
  }
  [[nodiscard]] const std::vector<Part>& parts() const noexcept { return parts_; }

 private:
  std::vector<Part> parts_;
  std::size_t size_ = 0;
};

// Whether no value is infinite or NaN. In blocks, so that compilers vectorise it.
[[nodiscard]] inline bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7f800000U;
  const auto count = [](std::span<const float> some) {
    std::uint32_t found = 0;
    for (const float one : some) {
      found += (std::bit_cast<std::uint32_t>(one) & kExponent) == kExponent ? 1U : 0U;
    }
    return found;
  };
  constexpr std::size_t kBlock = 256;
  for (; values.size() >= kBlock; values = values.subspan(kBlock)) {
    if (count(values.first<kBlock>()) != 0) return false;
  }
  return count(values) == 0;
}
[[nodiscard]] inline bool all_finite(const Floats& floats) {
  return std::ranges::all_of(floats.parts(),
                             [](const auto& one) { return all_finite(one.values); });
}

[[nodiscard]] inline std::size_t bytes_of(const Floats& floats) {
  return floats.size() * sizeof(float);
}

// Reads numbers one after the other. The floats must outlive it.
class FloatReader {
 public:
  explicit FloatReader(const Floats& floats)
      : part_(floats.parts().begin()), left_(floats.size()) {}

  [[nodiscard]] std::size_t left() const noexcept { return left_; }
  // The next numbers that lie together, at most `most`; empty only at the end.
  std::span<const float> next(std::size_t most) {
    if (left_ == 0 || most == 0) return {};
    const std::size_t count = std::min(most, part_->values.size() - at_);
    const auto found = part_->values.subspan(at_, count);
    at_ += count;
    left_ -= count;
    if (at_ == part_->values.size()) {
      ++part_;
      at_ = 0;
    }
    return found;
  }
  // Calls use(numbers) for the next `count` numbers, in parts.
  template <typename Use>
  void each(std::size_t count, Use&& use) {
    for (auto numbers = next(count); !numbers.empty(); numbers = next(count)) {
      count -= numbers.size();
      use(numbers);
    }
  }
  // Fills `to` with the next numbers, as far as there are any.
  void read(std::span<float> to) {
    each(to.size(), [&to](std::span<const float> numbers) {
      std::ranges::copy(numbers, to.begin());
      to = to.subspan(numbers.size());
    });
  }

 private:
  std::vector<Floats::Part>::const_iterator part_;
  std::size_t at_ = 0;  // in the part
  std::size_t left_;
};

// Memory that messages refer to: it must not be written until the last of them is gone.
//
// Thread safety: belongs to one thread; any thread may release an owner.
class Loan {
 public:
  // The owner for the parts of a message whose numbers lie in `memory`. While an earlier owner is
  // alive it is returned again.
  template <typename Memory>
  [[nodiscard]] std::shared_ptr<const void> owner(Memory memory) {
    auto lent = lent_.lock();
    if (lent == nullptr) {
      std::promise<void> ended;  // its destructor makes the future ready
      ended_ = ended.get_future();
      lent = std::make_shared<std::pair<Memory, std::promise<void>>>(std::move(memory),
                                                                     std::move(ended));
      lent_ = lent;
    }
    return lent;
  }
  // Waits until all owners are released, for at most `time`; returns whether they are.
  [[nodiscard]] bool ends_within(std::chrono::duration<double> time) const {
    return !ended_.valid() || ended_.wait_for(time) == std::future_status::ready;
  }

 private:
  std::weak_ptr<const void> lent_;
  std::future<void> ended_;
};

}  // namespace ronde::trainer::server
