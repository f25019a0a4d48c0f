// SPDX-License-Identifier: Apache-2.0
// A host that makes no more threads.
#pragma once

#include <pthread.h>

#include <cstddef>

namespace ronde::trainer {

// While one lives a thread gets a stack that no address space holds, and so none is made. It counts
// for the whole process. A limit of the system would not stop root.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    constexpr std::size_t kNoAddressSpace = std::size_t{1} << 56;
    pthread_attr_t none{};
    pthread_getattr_default_np(&before_);
    pthread_getattr_default_np(&none);
    pthread_attr_setstacksize(&none, kNoAddressSpace);
    pthread_setattr_default_np(&none);
    pthread_attr_destroy(&none);
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;
  ~NoMoreThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_{};
};

}  // namespace ronde::trainer
