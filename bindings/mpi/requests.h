// SPDX-License-Identifier: Apache-2.0
// The requests of MPI_Iallreduce. Each is a generalized request of MPI, so that every call of MPI
// takes it; it is completed by the calls that test and wait, which have Ronde go on first.
#pragma once

#include <mpi.h>
#include <ronde/ronde.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>

#include "bindings/mpi/communicators.h"

namespace ronde::mpi_allreduce {

// Thread safety: any thread.
class Requests {
 public:
  // The one of this process, which is never destroyed.
  static Requests& here();

  // MPI_Iallreduce. Returns MPI's code.
  int start(Communicator& communicator, const void* send, void* receive, int count,
            const Reduction& reduction, MPI_Request* request);

  // Completes those of the requests that are this library's and done, and waits for the first that
  // is not for at most so many nanoseconds. Returns true when none of them is left.
  bool advance(std::span<const MPI_Request> requests, std::int64_t nanoseconds);

 private:
  using Shared = std::shared_ptr<InFlight>;

  static int on_query(void* extra, MPI_Status* status);
  static int on_free(void* extra);
  static int on_cancel(void* extra, int complete);
  static bool step(InFlight& operation, std::int64_t nanoseconds);
  Shared find(MPI_Request request);

  std::atomic<int> count_{0};
  std::mutex lock_;
  std::unordered_map<MPI_Request, Shared> all_;
};

}  // namespace ronde::mpi_allreduce
