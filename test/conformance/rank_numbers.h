// SPDX-License-Identifier: Apache-2.0
// The numbers of all ranks that cases start from, and what the order rule makes of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "test/conformance/case.h"
#include "test/conformance/order_rule.h"
#include "test/support/twister.h"
#include "test/unit/collectives/random_elements.h"
#include "test/unit/collectives/rule_oracle.h"

namespace ronde::conformance {

// What is reduced: numbers whose sums differ in their bits with the order of summation, or small
// ones whose sums are exact, for what sums in any order.
enum class Numbers : std::uint8_t { kTelling, kWhole };

// What is hardly drawn: what is no number, infinities, overflow (also in 16 bits alone), signed
// zeros and the smallest numbers. The one of this kind (0 to 7) on the first, the last or another
// rank; nothing: none.
inline std::optional<double> special_number(std::int64_t kind, bool first, bool last) {
  using Limits = std::numeric_limits<double>;
  switch (kind) {
    case 0:
      return first ? std::optional(Limits::quiet_NaN()) : std::nullopt;
    case 1:
      return last ? std::optional(Limits::infinity()) : std::nullopt;
    case 2:
      return first ? Limits::infinity() : -Limits::infinity();
    case 3:
      return 65504.0;  // the largest of f16
    case 4:
      return -0.0;
    case 5:
      return last ? 0.0 : -0.0;
    case 6:
      return 6e-8;  // the smallest of f16
    case 7:
      return 3.0e38;  // bf16 and f32 overflow with the second one
    default:
      return std::nullopt;
  }
}

// What the ranks of a process have alike, which the first that comes to it makes for all of them:
// else each would draw and reduce the numbers of every rank. Thread safety: any thread.
class OnceForAll {
 public:
  struct Drawn {
    std::vector<Bytes> inputs;
    testing::Twister after;
  };
  // Every rank asks in the same order; `number` counts.
  template <typename Make>
  const Drawn& drawn(std::size_t number, const Make& make) {
    return made(drawn_, number, make);
  }
  template <typename Make>
  const Bytes& reduced(std::size_t number, const Make& make) {
    return made(reduced_, number, make);
  }

 private:
  template <typename T, typename Make>
  const T& made(std::deque<T>& all, std::size_t number, const Make& make) {
    const std::lock_guard lock(mutex_);
    if (number == all.size()) all.push_back(make());
    return all.at(number);
  }

  std::mutex mutex_;
  std::deque<Drawn> drawn_;
  std::deque<Bytes> reduced_;
};

// Thread safety: none.
class RankNumbers {
 public:
  // once: of the ranks of this process; null: this one is alone.
  RankNumbers(const Hosts& hosts, Numbers numbers, std::uint64_t seed, OnceForAll* once)
      : hosts_(hosts), numbers_(numbers), random_(seed), once_(once) {
    for (const auto& ranks : hosts_) size_ += std::ssize(ranks);
  }
  [[nodiscard]] std::int64_t size() const { return size_; }

  // The tensors of all ranks. Floating types get numbers whose sums differ in their bits with the
  // order of summation.
  std::vector<Bytes> telling(DType dtype, const Rows& rows, std::int64_t width = 1) {
    return drawn([&] {
      std::vector<Bytes> inputs;
      for (const std::int64_t count : rows) {
        inputs.push_back(collectives::oracle::random_elements(dtype, count * width, random_));
      }
      return inputs;
    });
  }
  std::vector<Bytes> telling(DType dtype, std::int64_t elements) {
    return telling(dtype, Rows(static_cast<std::size_t>(size_), elements));
  }
  std::vector<Bytes> summands(DType dtype, std::int64_t elements) {
    if (numbers_ == Numbers::kTelling) return telling(dtype, elements);
    return drawn([&] { return whole(dtype, elements); });
  }
  std::vector<double> weights() { return any_weights(size_, random_); }

  // The allreduce of these tensors, of which the last draw gave some.
  Bytes reduced(const Reduction& what, const std::vector<Bytes>& inputs) {
    const auto make = [&] { return reduced_by_rule(what, hosts_, inputs); };
    return once_ == nullptr ? make() : once_->reduced(reductions_++, make);
  }
  // A rank's result of a reduce-scatter: `count` elements of the sum, from `first` on.
  Bytes scattered(const Reduction& what, std::int32_t rank, const std::vector<Bytes>& inputs,
                  std::int64_t first, std::int64_t count) {
    if (hosts_.size() == 1) return part_of(reduced(what, inputs), what.dtype, first, count);
    return scattered_by_rule(what, hosts_, rank, inputs, first, count);
  }

 private:
  std::vector<Bytes> whole(DType dtype, std::int64_t elements) {
    namespace oracle = collectives::oracle;
    std::vector<Bytes> inputs;
    for (std::int64_t rank = 0; rank < size_; ++rank) {
      Bytes& mine = inputs.emplace_back(static_cast<std::size_t>(elements * base::size_of(dtype)));
      for (std::int64_t i = 0; i < elements; ++i) {
        const std::uint64_t number = 1 + random_() % 4;
        oracle::store(dtype, mine.data(), i,
                      base::is_floating(dtype) ? oracle::encode(dtype, static_cast<double>(number))
                                               : number % (dtype == DType::kBool ? 2 : 5));
      }
    }
    return inputs;
  }
  template <typename Make>
  std::vector<Bytes> drawn(const Make& make) {
    if (once_ == nullptr) return make();
    const OnceForAll::Drawn& all = once_->drawn(draws_++, [&] {
      std::vector<Bytes> inputs = make();
      return OnceForAll::Drawn{std::move(inputs), random_};
    });
    random_ = all.after;
    return all.inputs;
  }

  const Hosts hosts_;
  const Numbers numbers_;
  std::int64_t size_ = 0;
  testing::Twister random_;
  OnceForAll* const once_;
  std::size_t draws_ = 0;
  std::size_t reductions_ = 0;
};

}  // namespace ronde::conformance
