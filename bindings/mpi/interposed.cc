// SPDX-License-Identifier: Apache-2.0
// The functions of MPI that the preloaded library defines before MPI does. Each does its own part
// and leaves the rest, or all of it, to MPI, by MPI's other names (PMPI_...).
#include <mpi.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>

#include "bindings/mpi/communicators.h"
#include "bindings/mpi/fitting.h"
#include "bindings/mpi/requests.h"

#define RONDE_INTERPOSED extern "C" __attribute__((visibility("default")))

// MPI's constants are casts through void.
// NOLINTBEGIN(bugprone-casting-through-void)
namespace ronde::mpi_allreduce {

namespace {

// A reduction of a communicator that has an engine.
struct Taken {
  Communicator* communicator = nullptr;  // nullptr where it has none
  std::optional<Reduction> reduction{};  // nothing where Ronde has no such reduction
  bool fits = false;                     // else it is MPI's
};

// Whether a call is Ronde's. Its arguments, which all ranks share, decide alone, together with the
// calls before it. `waits`: the call may wait for the other ranks.
Taken taken(int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm handle, bool waits) {
  Communicators& all = Communicators::here();
  const auto reduction = reduction_of(datatype, op);
  const auto fits_with = [&](bool line) {
    return reduction.has_value() && count > 0 &&
           count * reduction->element_bytes >= all.threshold(line);
  };
  const bool fits = fits_with(waits);
  if (!fits && !(waits && (all.any_wanted() || all.any_engine()))) return {};
  Communicator* communicator = fits ? all.of(handle) : all.known(handle);
  if (communicator == nullptr) return {};
  if (waits && communicator->is_wanted()) communicator->open();
  if (communicator->is_open()) {
    return {communicator, reduction, fits_with(waits && communicator->has_line())};
  }
  if (fits) communicator->count_call_of_mpi();
  return {};
}

// The communicator of a call that may wait for all ranks, where they meet in a line.
Communicator* with_line(MPI_Comm handle) {
  Communicators& all = Communicators::here();
  if (!all.any_wanted() && !all.any_engine()) return nullptr;
  Communicator* const communicator = all.known(handle);
  if (communicator == nullptr) return nullptr;
  if (communicator->is_wanted()) communicator->open();
  return communicator->has_line() ? communicator : nullptr;
}

// Ronde's threads call MPI where ranks are on several hosts.
int level_for(int wanted) {
  const char* here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  const char* all = std::getenv("OMPI_COMM_WORLD_SIZE");
  const bool one_host = here != nullptr && all != nullptr && std::strcmp(here, all) == 0;
  return one_host ? wanted : MPI_THREAD_MULTIPLE;
}

std::span<const MPI_Request> span_of(int count, const MPI_Request* requests) {
  if (count <= 0 || requests == nullptr) return {};
  return {requests, static_cast<std::size_t>(count)};
}

void wait_for(std::span<const MPI_Request> requests) {
  while (!Requests::here().advance(requests, kWaitNanoseconds)) let_mpi_progress();
}

// Calls `test`, which tells whether it has found what the caller waits for, until it has, or until
// MPI can wait for the rest alone. Returns false in the second case.
template <typename Test>
bool test_until(std::span<const MPI_Request> requests, const Test& test) {
  while (!Requests::here().advance(requests, 0)) {
    if (test()) return true;
    Requests::here().advance(requests, kWaitNanoseconds);
  }
  return false;
}

}  // namespace

}  // namespace ronde::mpi_allreduce

namespace ours = ronde::mpi_allreduce;

// ---- the reductions ----

RONDE_INTERPOSED int MPI_Allreduce(const void* sendbuf, void* recvbuf, int count,
                                   MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  const auto call = ours::taken(count, datatype, op, comm, true);
  if (call.communicator == nullptr) {
    return PMPI_Allreduce(sendbuf, recvbuf, count, datatype, op, comm);
  }
  if (call.fits) return call.communicator->allreduce(sendbuf, recvbuf, count, *call.reduction);
  const int met =
      call.communicator->meet(count, datatype, call.reduction ? &*call.reduction : nullptr);
  if (met != MPI_SUCCESS) return met;
  const int code = PMPI_Allreduce(sendbuf, recvbuf, count, datatype, op, comm);
  call.communicator->end_call_of_mpi(code);
  return code;
}

RONDE_INTERPOSED int MPI_Iallreduce(const void* sendbuf, void* recvbuf, int count,
                                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                                    MPI_Request* request) {
  const auto call = ours::taken(count, datatype, op, comm, false);
  if (!call.fits) {
    return PMPI_Iallreduce(sendbuf, recvbuf, count, datatype, op, comm, request);
  }
  return ours::Requests::here().start(*call.communicator, sendbuf, recvbuf, count, *call.reduction,
                                      request);
}

// ---- what may wait for all ranks: an engine that is wanted is opened here too ----

RONDE_INTERPOSED int MPI_Barrier(MPI_Comm comm) {
  auto* const communicator = ours::with_line(comm);
  return communicator != nullptr ? communicator->barrier() : PMPI_Barrier(comm);
}

RONDE_INTERPOSED int MPI_Bcast(void* buffer, int count, MPI_Datatype datatype, int root,
                               MPI_Comm comm) {
  auto* const communicator = ours::with_line(comm);
  return communicator != nullptr ? communicator->broadcast(buffer, count, datatype, root)
                                 : PMPI_Bcast(buffer, count, datatype, root, comm);
}

// ---- beginning and end ----

RONDE_INTERPOSED int MPI_Init(int* argc, char*** argv) {
  const int level = ours::level_for(MPI_THREAD_SINGLE);
  int provided = 0;
  const int code = level == MPI_THREAD_SINGLE ? PMPI_Init(argc, argv)
                                              : PMPI_Init_thread(argc, argv, level, &provided);
  if (code == MPI_SUCCESS) ours::Communicators::here().agree();
  return code;
}

RONDE_INTERPOSED int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const int code = PMPI_Init_thread(argc, argv, ours::level_for(required), provided);
  if (code == MPI_SUCCESS) ours::Communicators::here().agree();
  return code;
}

RONDE_INTERPOSED int MPI_Finalize() {
  ours::Communicators::here().close_all();
  return PMPI_Finalize();
}

RONDE_INTERPOSED int MPI_Comm_free(MPI_Comm* comm) {
  ours::Communicators::here().leave(comm);
  return PMPI_Comm_free(comm);
}

RONDE_INTERPOSED int MPI_Comm_disconnect(MPI_Comm* comm) {
  ours::Communicators::here().leave(comm);
  return PMPI_Comm_disconnect(comm);
}

// ---- requests ----

RONDE_INTERPOSED int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  ours::wait_for(ours::span_of(1, request));
  return PMPI_Wait(request, status);
}

RONDE_INTERPOSED int MPI_Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  ours::wait_for(ours::span_of(count, requests));
  return PMPI_Waitall(count, requests, statuses);
}

RONDE_INTERPOSED int MPI_Waitany(int count, MPI_Request* requests, int* index, MPI_Status* status) {
  int code = MPI_SUCCESS;
  int found = 0;
  const auto test = [&] {
    code = PMPI_Testany(count, requests, index, &found, status);
    return code != MPI_SUCCESS || found != 0;
  };
  if (ours::test_until(ours::span_of(count, requests), test)) {
    return code;
  }
  return PMPI_Waitany(count, requests, index, status);
}

RONDE_INTERPOSED int MPI_Waitsome(int incount, MPI_Request* requests, int* outcount, int* indices,
                                  MPI_Status* statuses) {
  int code = MPI_SUCCESS;
  const auto test = [&] {
    code = PMPI_Testsome(incount, requests, outcount, indices, statuses);
    return code != MPI_SUCCESS || *outcount != 0;
  };
  if (ours::test_until(ours::span_of(incount, requests), test)) {
    return code;
  }
  return PMPI_Waitsome(incount, requests, outcount, indices, statuses);
}

RONDE_INTERPOSED int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  ours::Requests::here().advance(ours::span_of(1, request), 0);
  return PMPI_Test(request, flag, status);
}

RONDE_INTERPOSED int MPI_Testall(int count, MPI_Request* requests, int* flag,
                                 MPI_Status* statuses) {
  ours::Requests::here().advance(ours::span_of(count, requests), 0);
  return PMPI_Testall(count, requests, flag, statuses);
}

RONDE_INTERPOSED int MPI_Testany(int count, MPI_Request* requests, int* index, int* flag,
                                 MPI_Status* status) {
  ours::Requests::here().advance(ours::span_of(count, requests), 0);
  return PMPI_Testany(count, requests, index, flag, status);
}

RONDE_INTERPOSED int MPI_Testsome(int incount, MPI_Request* requests, int* outcount, int* indices,
                                  MPI_Status* statuses) {
  ours::Requests::here().advance(ours::span_of(incount, requests), 0);
  return PMPI_Testsome(incount, requests, outcount, indices, statuses);
}

RONDE_INTERPOSED int MPI_Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
  ours::Requests::here().advance(ours::span_of(1, &request), 0);
  return PMPI_Request_get_status(request, flag, status);
}
// NOLINTEND(bugprone-casting-through-void)
