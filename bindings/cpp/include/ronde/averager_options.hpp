// SPDX-License-Identifier: Apache-2.0
// What may be asked of a GradientAverager, and what it says of its steps. Included by ronde.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ronde {

// What wait() does about gradients that were not made ready in its step. In either case they are
// averaged, so the other ranks notice nothing.
enum class Missing : std::uint8_t {
  kSubmit,  // nothing more: a layer that was not used has no gradient
  kError    // it throws, naming them: in this program every gradient is used in every step
};

// How a GradientAverager goes about its steps; each rank may choose for itself.
// Thread safety: a value.
struct AveragerOptions {
  // Gradients in host memory are held back until so many bytes of them are ready.
  std::size_t bucket_bytes = std::size_t{1} << 20;
  Missing missing = Missing::kSubmit;
};

// The steps of one GradientAverager so far. "Before wait()" is what ran beside the trainer's own
// computing: where no average is done before wait(), the averager's overlap pays nothing, either
// because nothing was submitted before (lower bucket_bytes) or because backward ends too soon.
// Thread safety: a value.
struct AveragerStatistics {
  std::uint64_t steps = 0;    // that wait() completed
  std::uint64_t tensors = 0;  // averaged in these steps, by number and by bytes
  std::uint64_t bytes = 0;
  std::uint64_t tensors_submitted_before_wait = 0;  // started while backward was going on
  std::uint64_t bytes_submitted_before_wait = 0;
  std::uint64_t tensors_done_before_wait = 0;  // whose averages were there when wait() was called
  std::uint64_t bytes_done_before_wait = 0;
  // From the first submission of a step to its wait(), added up over the steps: how long the
  // transfer could run beside the trainer.
  double seconds_before_wait = 0.0;
  double seconds_in_wait = 0.0;  // how long the trainer stood still, in wait() and wait_again()

  // The share of the bytes, from 0 to 1, whose averages were there when wait() was called.
  [[nodiscard]] double share_before_wait() const {
    if (bytes == 0) return 0.0;
    return static_cast<double>(bytes_done_before_wait) / static_cast<double>(bytes);
  }
};

}  // namespace ronde
