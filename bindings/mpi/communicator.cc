// SPDX-License-Identifier: Apache-2.0
// A communicator comes to its engine here, and what goes wrong becomes an error of MPI.
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "bindings/mpi/communicators.h"

// MPI's constants are casts through void.
// NOLINTBEGIN(bugprone-casting-through-void)
namespace ronde::mpi_allreduce {

namespace {

// So many calls that fit are MPI's before a communicator has an engine. Opening one takes as long
// as some hundred of them.
constexpr int kCallsOfMpi = 8;
// So many reductions of MPI_Iallreduce may be in flight; one more waits for the first.
constexpr std::size_t kSlots = 1024;
// So often a rank looks whether the others are there before it lets them have its core.
constexpr int kSpins = 200;
// Instead of a number: another thread is about to open the engine, or this one does.
constexpr std::int64_t kLater = -1;
constexpr std::int64_t kOpens = -2;

}  // namespace

void let_mpi_progress() {
  int flag = 0;
  PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
}

void Communicator::open() {
  stop_wanting();
  if (tried_) return;
  tried_ = true;
  int size = 0;
  PMPI_Comm_size(handle_, &size);
  if (size < 2) return;
  // Ranks may come hours apart, as MPI lets them, and opening an engine has a deadline: they wait
  // for each other before.
  if (engine_ == nullptr) PMPI_Barrier(handle_);
  Communicators& all = Communicators::here();
  // Rank 0 decides for all, as other threads may be about to open it.
  std::array<std::int64_t, 2> offer{kLater, 0};
  if (rank() == 0) {
    Engine* const there = all.engine();
    if (there != nullptr) {
      offer = there->take_number();
    } else if (all.may_open()) {
      offer[0] = kOpens;
    }
  }
  PMPI_Bcast(offer.data(), 2, MPI_INT64_T, 0, handle_);
  if (offer[0] == kLater) return open_later();
  if (offer[0] != kOpens) {
    return join(static_cast<int>(offer[0]), static_cast<std::uint64_t>(offer[1]));
  }
  std::string reason;
  engine_ = all.has_opened(Engine::open(handle_, size, reason));
  if (engine_ != nullptr) {
    number_ = Engine::kFirstNumber;
    introduce();
  } else if (rank() == 0 && all.first_to_speak()) {
    say("MPI_Allreduce stays MPI's: " + reason);
  }
}

void Communicator::open_later() {
  tried_ = false;
  want();
}

void Communicator::join(int number, std::uint64_t calls) {
  if (engine_ == nullptr) {
    // On this rank another thread may be about to have it.
    Engine* const there = Communicators::here().engine();
    if (smallest(there != nullptr ? 1 : 0, handle_) != 1) {
      if (rank() == 0) there->give_back(number, static_cast<std::int64_t>(calls));
      return open_later();
    }
    engine_ = there;
  }
  number_ = number;
  calls_ = calls;
}

void Communicator::introduce() const {
  ronde_engine* engine = engine_->get();
  if (ronde_rank(engine) != 0 || !Communicators::here().first_to_speak()) return;
  say("MPI_Allreduce and MPI_Iallreduce of " + std::to_string(Communicators::here().threshold()) +
      " bytes and more over all " + std::to_string(ronde_size(engine)) +
      " ranks go through Ronde " + ronde_version() +
      "; sums may round otherwise than MPI's (libronde_mpi_allreduce.so is preloaded)");
}

int Communicator::rank() const {
  int rank = 0;
  PMPI_Comm_rank(handle_, &rank);
  return rank;
}

// The communicators of an engine have names of their own.
std::string Communicator::prefix() const {
  return number_ == Engine::kFirstNumber ? "" : "communicator " + std::to_string(number_) + ": ";
}

void Communicator::want() {
  if (tried_ || wanted_) return;
  wanted_ = true;
  Communicators::here().count_wanted(1);
}

void Communicator::stop_wanting() {
  if (wanted_) Communicators::here().count_wanted(-1);
  wanted_ = false;
}

void Communicator::count_call_of_mpi() {
  if (calls_of_mpi_ == kCallsOfMpi) return;
  ++calls_of_mpi_;
  if (calls_of_mpi_ == kCallsOfMpi) want();
}

void Communicator::leave() {
  stop_wanting();
  tried_ = true;
  if (number_ >= 0) {
    // The next one may have the number when no rank has an operation in flight.
    const bool idle = std::all_of(slots_.begin(), slots_.end(), [](const auto& slot) {
      if (slot == nullptr) return true;
      const std::lock_guard lock(slot->lock);
      return slot->done;
    });
    if (smallest(idle ? 1 : 0, handle_) == 1 && rank() == 0) {
      // MPI may have refused one more on all ranks, when they had met.
      engine_->give_back(number_, static_cast<std::int64_t>(calls_) + 1);
    }
  }
  number_ = -1;
  engine_ = nullptr;
}

ronde_status Communicator::start(const std::string& name, const Tensor& tensor,
                                 const Reduction& reduction, std::uint64_t flags, ronde_work** work,
                                 ronde_error** error) {
  ronde_request request;
  ronde_request_init(&request);
  request.name = name.c_str();
  request.input = tensor.send == MPI_IN_PLACE ? nullptr : tensor.send;
  request.output = tensor.receive;
  request.shape = tensor.shape.data();
  request.dimensions = static_cast<std::int32_t>(tensor.shape.size());
  request.dtype = reduction.dtype;
  request.op = reduction.op;
  request.flags = flags;
  return ronde_allreduce_async(engine_->get(), &request, work, error);
}

int Communicator::fail(ronde_status status, ronde_error* error, const char* call) {
  const bool lives = status == RONDE_INVALID_ARGUMENT || status == RONDE_MISMATCH;
  // The ranks learn of a failure at different times, and are no longer in step.
  if (!lives && engine_->calls() != nullptr) engine_->calls()->give_up();
  const int code = report(error, call);
  PMPI_Comm_call_errhandler(handle_, code);
  return code;
}

int Communicator::meet(int count, MPI_Datatype datatype, const Reduction* reduction) {
  CallTable* const all = calls();
  if (all == nullptr || count < 0 || datatype == MPI_DATATYPE_NULL) return MPI_SUCCESS;
  const std::uint64_t number = calls_ + 1;
  if (met_ == number) return MPI_SUCCESS;
  int element_bytes = 0;
  if (reduction == nullptr) PMPI_Type_size(datatype, &element_bytes);
  all->enter(number_, number,
             reduction != nullptr ? call_of(*reduction, count) : call_of_mpi(count, element_bytes));
  Meeting meeting = all->look(number_, number);
  for (int looks = 0; meeting == Meeting::kWaits; ++looks) {
    if (looks >= kSpins) {
      let_mpi_progress();
      sched_yield();
    }
    meeting = all->look(number_, number);
  }
  if (meeting == Meeting::kDiffers) return differ(count, element_bytes, reduction);
  met_ = number;
  return MPI_SUCCESS;
}

void Communicator::end_call_of_mpi(int code) {
  // One that MPI refuses on this rank alone is made again: the other ranks are in it.
  if (code == MPI_SUCCESS) ++calls_;
}

int Communicator::differ(int count, int element_bytes, const Reduction* reduction) {
  if (reduction != nullptr) {
    // The engine touches no memory where the ranks disagree, but it may count on it.
    const auto bytes = static_cast<std::size_t>(count * reduction->element_bytes);
    const std::unique_ptr<std::byte[]> memory(new std::byte[bytes + 1]);
    return allreduce(MPI_IN_PLACE, memory.get(), count, *reduction);
  }
  // In the engine nothing is like it: an empty shape with a dimension for each that differs.
  const std::array<std::int64_t, 3> shape{count, element_bytes, 0};
  say("MPI_Allreduce: rank " + std::to_string(rank()) + " has called it with " +
      std::to_string(count) + " elements of a type or with an operation that only MPI knows: [" +
      std::to_string(count) + ", " + std::to_string(element_bytes) + ", 0]");
  return reduce({nullptr, nullptr, shape}, {RONDE_U8, RONDE_SUM, 1},
                call_of_mpi(count, element_bytes));
}

int Communicator::reduce(const Tensor& tensor, const Reduction& reduction, std::uint64_t call) {
  const std::string name = prefix() + "MPI_Allreduce after " + history_.text();
  ronde_work* work = nullptr;
  ronde_error* error = nullptr;
  ronde_status status = start(name, tensor, reduction, RONDE_FLAG_WILL_WAIT, &work, &error);
  // One that is refused on this rank alone has met no other.
  if (status != RONDE_OK) return fail(status, error, "MPI_Allreduce");
  ++calls_;
  CallTable* const all = calls();
  if (all != nullptr && met_ != calls_) all->enter(number_, calls_, call);
  std::int32_t done = 0;
  while (true) {
    status = ronde_work_wait_for(work, kWaitNanoseconds, &done, &error);
    if (done != 0 || status != RONDE_OK) break;
    let_mpi_progress();
  }
  ronde_work_release(work);
  // A failure is one on all ranks, whose calls may have differed.
  history_.add(status == RONDE_OK ? call : 0);
  return status == RONDE_OK ? MPI_SUCCESS : fail(status, error, "MPI_Allreduce");
}

int Communicator::allreduce(const void* send, void* receive, int count,
                            const Reduction& reduction) {
  const std::int64_t shape = count;
  return reduce({send, receive, {&shape, 1}}, reduction, call_of(reduction, count));
}

std::shared_ptr<InFlight>& Communicator::next_slot() {
  slots_.resize(kSlots);
  return slots_[started_ % kSlots];
}

int Communicator::submit(const void* send, void* receive, int count, const Reduction& reduction,
                         InFlight& operation) {
  // Names come round: those that the ranks know cost less than new ones.
  const std::string name = prefix() + "MPI_Iallreduce of " + name_of(reduction, count) + " #" +
                           std::to_string(started_ % kSlots);
  ++started_;
  const std::int64_t shape = count;
  ronde_error* error = nullptr;
  const ronde_status status =
      start(name, {send, receive, {&shape, 1}}, reduction, 0, &operation.work, &error);
  return status == RONDE_OK ? MPI_SUCCESS : fail(status, error, "MPI_Iallreduce");
}

}  // namespace ronde::mpi_allreduce
// NOLINTEND(bugprone-casting-through-void)
