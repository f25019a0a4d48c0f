// SPDX-License-Identifier: Apache-2.0
// Generalized requests. A thread of ours that completed them would need MPI_THREAD_MULTIPLE.
#include "bindings/mpi/requests.h"

#include <utility>

// MPI's constants are casts through void.
// NOLINTBEGIN(bugprone-casting-through-void)
namespace ronde::mpi_allreduce {

Requests& Requests::here() {
  static auto* const kHere = new Requests();
  return *kHere;
}

int Requests::start(Communicator& communicator, const void* send, void* receive, int count,
                    const Reduction& reduction, MPI_Request* request) {
  Shared& slot = communicator.next_slot();
  while (slot != nullptr && !step(*slot, kWaitNanoseconds)) let_mpi_progress();
  auto operation = std::make_shared<InFlight>();
  const int submitted = communicator.submit(send, receive, count, reduction, *operation);
  if (submitted != MPI_SUCCESS) return submitted;
  slot = operation;
  auto extra = std::make_unique<Shared>(operation);
  const int code = PMPI_Grequest_start(on_query, on_free, on_cancel, extra.get(), request);
  if (code != MPI_SUCCESS) return code;
  [[maybe_unused]] const Shared* mpi_has_it = extra.release();  // until on_free()
  operation->request = *request;
  const std::lock_guard lock(lock_);
  all_.emplace(*request, std::move(operation));
  count_.fetch_add(1);
  return MPI_SUCCESS;
}

bool Requests::advance(std::span<const MPI_Request> requests, std::int64_t nanoseconds) {
  if (count_.load() == 0) return true;
  bool all_done = true;
  for (MPI_Request request : requests) {
    if (request == MPI_REQUEST_NULL) continue;
    const Shared operation = find(request);
    if (operation == nullptr) continue;
    if (!step(*operation, all_done ? nanoseconds : 0)) all_done = false;
  }
  return all_done;
}

bool Requests::step(InFlight& operation, std::int64_t nanoseconds) {
  const std::lock_guard lock(operation.lock);
  if (operation.done) return true;
  std::int32_t done = 0;
  ronde_error* error = nullptr;
  if (ronde_work_wait_for(operation.work, nanoseconds, &done, &error) != RONDE_OK) {
    operation.code = report(error, "MPI_Iallreduce");
  } else if (done == 0) {
    return false;
  }
  ronde_work_release(operation.work);
  operation.work = nullptr;
  operation.done = true;
  PMPI_Grequest_complete(operation.request);
  return true;
}

Requests::Shared Requests::find(MPI_Request request) {
  const std::lock_guard lock(lock_);
  const auto found = all_.find(request);
  return found == all_.end() ? nullptr : found->second;
}

int Requests::on_query(void* extra, MPI_Status* status) {
  PMPI_Status_set_elements(status, MPI_BYTE, 0);
  PMPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return (*static_cast<Shared*>(extra))->code;
}

int Requests::on_free(void* extra) {
  const std::unique_ptr<Shared> operation(static_cast<Shared*>(extra));
  Requests& requests = here();
  const std::lock_guard lock(requests.lock_);
  if (requests.all_.erase((*operation)->request) != 0) requests.count_.fetch_sub(1);
  return MPI_SUCCESS;
}

// A collective cannot be cancelled.
int Requests::on_cancel(void* /*extra*/, int /*complete*/) { return MPI_SUCCESS; }

}  // namespace ronde::mpi_allreduce
// NOLINTEND(bugprone-casting-through-void)
