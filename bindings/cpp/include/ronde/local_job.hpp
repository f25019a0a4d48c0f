// SPDX-License-Identifier: Apache-2.0
// Jobs whose ranks are engines of one process. Included by ronde.hpp.
#pragma once

#include <ronde/ronde.h>

#include <memory>
#include <ronde/types.hpp>

namespace ronde {
namespace detail {

struct LocalJobDeleter {
  void operator()(ronde_local_job* job) const { ronde_local_job_release(job); }
};

}  // namespace detail

// A job whose ranks are engines in this process: for tests of a trainer. It may go while its
// engines live.
//
//   ronde::LocalJob job(2);
//   std::jthread other([&job] { ronde::Engine engine(job, 1); ... });
//   ronde::Engine engine(job, 0);
//
// Thread safety: the engines of one job may be opened from any threads at once, one in each; the
// object itself is moved and destroyed by one thread, while no engine opens.
class LocalJob {
 public:
  // A job of `size` ranks, 1 to 64. Throws Error: those of ronde_local_job_create.
  explicit LocalJob(int size) {
    detail::ErrorSlot error;
    ronde_local_job* job = nullptr;
    error.throw_if(ronde_local_job_create(size, &job, &error));
    job_.reset(job);
  }
  // The handle of the C ABI; this object keeps it.
  [[nodiscard]] ronde_local_job* get() const noexcept { return job_.get(); }

 private:
  std::unique_ptr<ronde_local_job, detail::LocalJobDeleter> job_;
};

// Throws Error where this process is not alone by what has started it: ronde_require_alone. Any
// thread.
inline void require_alone() {
  detail::ErrorSlot error;
  error.throw_if(ronde_require_alone(&error));
}

}  // namespace ronde
