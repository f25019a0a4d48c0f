// SPDX-License-Identifier: Apache-2.0
// The floating-point mode that the order rule needs: rounding to nearest, subnormals kept, no
// traps. A thread of the user's that waits also computes, and the user may have changed its mode.
#pragma once

// This is the one place where the processor matters: SSE's control word is far cheaper to set than
// the whole environment.
#if defined(__SSE2__)
#include <immintrin.h>
#else
#include <cfenv>
#endif

namespace ronde::collectives {

// Sets the mode of this thread and restores the user's, flags included. Wrap calls of functions
// that compute, not the arithmetic itself: a compiler may move an addition across, but not a call.
//
// Thread safety: construct and destroy on one thread; affects that thread alone.
class ScopedFloatingPointMode {
 public:
  ScopedFloatingPointMode(const ScopedFloatingPointMode&) = delete;
  ScopedFloatingPointMode& operator=(const ScopedFloatingPointMode&) = delete;

#if defined(__SSE2__)
  ScopedFloatingPointMode() : users_(_mm_getcsr()) { _mm_setcsr(kDefaultMode); }
  ~ScopedFloatingPointMode() { _mm_setcsr(users_); }

 private:
  // The mode masks all exceptions and rounds to nearest, with neither flush-to-zero nor
  // denormals-are-zero.
  static constexpr unsigned kDefaultMode = 0x1f80;
  unsigned users_;
#else
  ScopedFloatingPointMode() {
    std::fegetenv(&users_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~ScopedFloatingPointMode() { std::fesetenv(&users_); }

 private:
  std::fenv_t users_;
#endif
};

}  // namespace ronde::collectives
