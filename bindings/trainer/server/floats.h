// SPDX-License-Identifier: Apache-2.0
// Numbers that travel: in the parts in which they lie in memory, so that nobody gathers them.
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

// Thread safety: that of a std::vector; what the parts hold is not written any more.
class Floats {
 public:
  struct Part {
    std::shared_ptr<const void> owner;  // keeps the values alive as long as they may be read
    std::span<const float> values;
  };

  [[nodiscard]] static Floats of(std::vector<float> values) {
    Floats floats;
    const auto owner = std::make_shared<const std::vector<float>>(std::move(values));
    floats.add({owner, *owner});
    return floats;
  }
  // Appends numbers; none are no part.
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

// Whether none is infinite or no number. In blocks, so that compilers make it a few instructions.
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

// Reads numbers one after the other. They must outlive it.
class FloatReader {
 public:
  explicit FloatReader(const Floats& floats)
      : part_(floats.parts().begin()), left_(floats.size()) {}

  [[nodiscard]] std::size_t left() const noexcept { return left_; }
  // The next numbers that lie together: at most so many, and some if there are any left.
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
  // Calls use(numbers) with the next `count` numbers, in pieces.
  template <typename Use>
  void each(std::size_t count, Use&& use) {
    for (auto numbers = next(count); !numbers.empty(); numbers = next(count)) {
      count -= numbers.size();
      use(numbers);
    }
  }
  // Copies as many as there is room for.
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

// Numbers that are sent from where they lie, and must not be written until nobody reads them.
//
// Thread safety: belongs to one thread; any thread may let go of what it was lent.
class Loan {
 public:
  // What to own as long as the numbers are read, which lie in `memory`; that of before, if somebody
  // reads them already.
  template <typename Memory>
  [[nodiscard]] std::shared_ptr<const void> owner(Memory memory) {
    auto lent = lent_.lock();
    if (lent == nullptr) {
      std::promise<void> ended;
      ended_ = ended.get_future();
      lent = std::make_shared<Lent<Memory>>(std::move(memory), std::move(ended));
      lent_ = lent;
    }
    return lent;
  }
  // Waits for at most so long until nobody reads them any more; whether that is so.
  [[nodiscard]] bool ends_within(std::chrono::duration<double> time) const {
    return !ended_.valid() || ended_.wait_for(time) == std::future_status::ready;
  }

 private:
  template <typename Memory>
  struct Lent {
    Lent(Memory its_memory, std::promise<void> its_end)
        : memory(std::move(its_memory)), ended(std::move(its_end)) {}
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;
    ~Lent() { ended.set_value(); }
    Memory memory;
    std::promise<void> ended;
  };

  std::weak_ptr<const void> lent_;
  std::future<void> ended_;
};

}  // namespace ronde::trainer::server
