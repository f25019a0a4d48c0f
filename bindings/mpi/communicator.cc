// SPDX-License-Identifier: Apache-2.0
// A communicator comes to its engine here, and what goes wrong becomes an error of MPI.
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
// Instead of a number: another thread is about to open the engine, or this one does.
constexpr int kLater = -1;
constexpr int kOpens = -2;

// What the errors are about.
constexpr const char* kAllreduce = "MPI_Allreduce";
constexpr const char* kBroadcast = "MPI_Bcast";

// A call that shows its form, and moves nothing.
ronde_line_call call_of(std::uint64_t form) {
  ronde_line_call call{};
  call.struct_size = sizeof call;
  call.form = form;
  call.operation = RONDE_BARRIER;
  return call;
}

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
  // Ranks may come hours apart, as MPI lets them, and opening an engine or a line has a deadline,
  // and lets nothing of MPI's go on: they wait for each other before.
  PMPI_Barrier(handle_);
  Communicators& all = Communicators::here();
  // Rank 0 decides for all, as other threads may be about to open it.
  int offer = kLater;
  if (rank() == 0) {
    Engine* const there = all.engine();
    if (there != nullptr) {
      offer = there->take_number();
    } else if (all.may_open()) {
      offer = kOpens;
    }
  }
  PMPI_Bcast(&offer, 1, MPI_INT, 0, handle_);
  if (offer == kLater) return open_later();
  if (offer != kOpens) return join(offer);
  std::string reason;
  engine_ = all.has_opened(Engine::open(handle_, size, reason));
  if (engine_ != nullptr) {
    number_ = Engine::kFirstNumber;
    take_line();
    introduce();
  } else if (rank() == 0 && all.first_to_speak()) {
    say("MPI_Allreduce stays MPI's: " + reason);
  }
}

void Communicator::open_later() {
  tried_ = false;
  want();
}

void Communicator::join(int number) {
  if (engine_ == nullptr) {
    // On this rank another thread may be about to have it.
    Engine* const there = Communicators::here().engine();
    if (smallest(there != nullptr ? 1 : 0, handle_) != 1) {
      if (rank() == 0) there->give_back(number);
      return open_later();
    }
    engine_ = there;
  }
  number_ = number;
  take_line();
}

// Where this fails the engine has, and the next call says so.
void Communicator::take_line() {
  ronde_error* error = nullptr;
  const std::string name = "MPI communicator " + std::to_string(number_);
  if (ronde_line_open(engine_->get(), name.c_str(), &line_, &error) != RONDE_OK) {
    report(error, "a line of MPI's calls");
  }
}

void Communicator::drop_line() { ronde_line_release(std::exchange(line_, nullptr)); }

void Communicator::introduce() const {
  ronde_engine* engine = engine_->get();
  if (ronde_rank(engine) != 0 || !Communicators::here().first_to_speak()) return;
  const Communicators& all = Communicators::here();
  say("MPI_Allreduce of " + std::to_string(all.threshold(has_line())) +
      " bytes and more, MPI_Iallreduce of " + std::to_string(all.threshold(false)) +
      (has_line() ? ", and MPI_Bcast and MPI_Barrier" : "") + " over all " +
      std::to_string(ronde_size(engine)) + " ranks go through Ronde " + ronde_version() +
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
  drop_line();
  tried_ = true;
  if (number_ >= 0) {
    // The next one may have the number when no rank has an operation in flight.
    const bool idle = std::all_of(slots_.begin(), slots_.end(), [](const auto& slot) {
      if (slot == nullptr) return true;
      const std::lock_guard lock(slot->lock);
      return slot->done;
    });
    if (smallest(idle ? 1 : 0, handle_) == 1 && rank() == 0) {
      engine_->give_back(number_);
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

int Communicator::fail(ronde_error* error, const char* call) {
  const int code = report(error, call);
  PMPI_Comm_call_errhandler(handle_, code);
  return code;
}

// ---- calls that meet in the line ----

int Communicator::meet(const ronde_line_call& call, const char* name, bool& equal) {
  ronde_error* error = nullptr;
  std::int32_t met = 0;
  if (ronde_line_start(line_, &call, &error) != RONDE_OK) return fail(error, name);
  while (ronde_line_wait_for(line_, kWaitNanoseconds, &met, &error) == RONDE_OK) {
    if (met == 0) {
      let_mpi_progress();
      continue;
    }
    equal = met == 1;
    return MPI_SUCCESS;
  }
  return fail(error, name);
}

int Communicator::meet(int count, MPI_Datatype datatype, const Reduction* reduction) {
  if (!has_line() || met_ || count < 0 || datatype == MPI_DATATYPE_NULL) return MPI_SUCCESS;
  int element_bytes = 0;
  if (reduction == nullptr) PMPI_Type_size(datatype, &element_bytes);
  const std::uint64_t form =
      reduction != nullptr ? form_of(*reduction, count) : form_of_mpi(count, element_bytes);
  const int code = meet(call_of(form), kAllreduce, met_);
  if (code != MPI_SUCCESS || met_) return code;
  return reduction != nullptr ? differ(count, *reduction) : differ_in_mpi(count, element_bytes);
}

void Communicator::end_call_of_mpi(int code) {
  // One that MPI refuses on this rank alone is made again: the other ranks are in it.
  if (code == MPI_SUCCESS) met_ = false;
}

int Communicator::allreduce(const void* send, void* receive, int count,
                            const Reduction& reduction) {
  if (has_line() && !met_) {
    const std::uint64_t form = form_of(reduction, count);
    ronde_line_call call = call_of(form);
    const bool small = count * reduction.element_bytes <= RONDE_LINE_BYTES;
    if (small) {
      call.operation = RONDE_ALLREDUCE;
      call.dtype = reduction.dtype;
      call.op = reduction.op;
      call.elements = count;
      call.input = send == MPI_IN_PLACE ? receive : send;
      call.output = receive;
    }
    bool equal = false;
    const int code = meet(call, kAllreduce, equal);
    if (code != MPI_SUCCESS) return code;
    if (!equal) return differ(count, reduction);
    if (small) return MPI_SUCCESS;
    met_ = true;
  }
  const std::int64_t shape = count;
  return reduce({send, receive, {&shape, 1}}, reduction, form_of(reduction, count));
}

int Communicator::broadcast(void* buffer, int count, MPI_Datatype datatype, int root) {
  int element_bytes = static_cast<int>(bytes_of_basic(datatype));
  const bool basic = element_bytes > 0;
  // What MPI refuses it refuses on this rank alone.
  const bool possible = count >= 0 && root >= 0 && root < ronde_size(engine_->get()) &&
                        datatype != MPI_DATATYPE_NULL &&
                        (basic || PMPI_Type_size(datatype, &element_bytes) == MPI_SUCCESS);
  if (!possible || met_) return broadcast_of_mpi(buffer, count, datatype, root);
  const std::int64_t bytes = std::int64_t{count} * element_bytes;
  ronde_line_call call = call_of(form_of_broadcast(bytes, root));
  const bool small =
      bytes <= RONDE_LINE_BYTES && (bytes == 0 || bytes >= Communicators::here().threshold(true));
  std::array<std::byte, RONDE_LINE_BYTES> packed;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  int packed_bytes = 0;
  const bool gives = ronde_rank(engine_->get()) == root;
  if (small) {
    call.operation = RONDE_BROADCAST;
    call.root = root;
    call.elements = bytes;
    call.output = basic ? buffer : packed.data();
    call.input = call.output;
    if (!basic && gives) {
      PMPI_Pack(buffer, count, datatype, packed.data(), RONDE_LINE_BYTES, &packed_bytes, handle_);
    }
  }
  bool equal = false;
  const int code = meet(call, kBroadcast, equal);
  if (code != MPI_SUCCESS) return code;
  if (!equal) {
    const std::string what = std::to_string(bytes) + ", " + std::to_string(root);
    const std::array<std::int64_t, 4> form{bytes, root, 0, 0};
    return differ(form, "MPI_Bcast with " + std::to_string(bytes) + " bytes of rank " +
                            std::to_string(root) + ": [" + what + ", 0, 0]");
  }
  if (!small) {
    met_ = true;
    return broadcast_of_mpi(buffer, count, datatype, root);
  }
  if (basic || gives) return MPI_SUCCESS;
  return PMPI_Unpack(packed.data(), static_cast<int>(bytes), &packed_bytes, buffer, count, datatype,
                     handle_);
}

int Communicator::broadcast_of_mpi(void* buffer, int count, MPI_Datatype datatype, int root) {
  const int code = PMPI_Bcast(buffer, count, datatype, root, handle_);
  end_call_of_mpi(code);
  return code;
}

int Communicator::barrier() {
  bool equal = false;
  const int code = meet(call_of(form_of_barrier()), "MPI_Barrier", equal);
  if (code != MPI_SUCCESS || equal) return code;
  const std::array<std::int64_t, 5> form{};
  return differ(form, "MPI_Barrier: [0, 0, 0, 0, 0]");
}

// ---- calls that differ ----

int Communicator::differ(int count, const Reduction& reduction) {
  // The engine touches no memory where the ranks disagree, but it may count on it.
  const auto bytes = static_cast<std::size_t>(count * reduction.element_bytes);
  const std::unique_ptr<std::byte[]> memory(new std::byte[bytes + 1]);
  const std::int64_t shape = count;
  return reduce({MPI_IN_PLACE, memory.get(), {&shape, 1}}, reduction, form_of(reduction, count));
}

// In the engine nothing is like it: an empty shape with a dimension for each number that differs.
int Communicator::differ(std::span<const std::int64_t> form, const std::string& what) {
  say("rank " + std::to_string(rank()) + " has called " + what);
  return reduce({nullptr, nullptr, form}, {RONDE_U8, RONDE_SUM, 1}, 0);
}

int Communicator::differ_in_mpi(int count, int element_bytes) {
  const std::string numbers = std::to_string(count) + ", " + std::to_string(element_bytes);
  const std::array<std::int64_t, 3> form{count, element_bytes, 0};
  return differ(form, "MPI_Allreduce with " + std::to_string(count) +
                          " elements of a type or with an operation that only MPI knows: [" +
                          numbers + ", 0]");
}

// ---- calls by name ----

int Communicator::reduce(const Tensor& tensor, const Reduction& reduction, std::uint64_t form) {
  const std::string name = prefix() + "MPI_Allreduce after " + history_.text();
  ronde_work* work = nullptr;
  ronde_error* error = nullptr;
  ronde_status status = start(name, tensor, reduction, RONDE_FLAG_WILL_WAIT, &work, &error);
  // One that is refused on this rank alone has met no other.
  if (status != RONDE_OK) return fail(error, kAllreduce);
  std::int32_t done = 0;
  while (true) {
    status = ronde_work_wait_for(work, kWaitNanoseconds, &done, &error);
    if (done != 0 || status != RONDE_OK) break;
    let_mpi_progress();
  }
  ronde_work_release(work);
  met_ = false;
  // A failure is one on all ranks, whose calls may have differed.
  history_.add(status == RONDE_OK ? form : 0);
  return status == RONDE_OK ? MPI_SUCCESS : fail(error, kAllreduce);
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
  return status == RONDE_OK ? MPI_SUCCESS : fail(error, "MPI_Iallreduce");
}

}  // namespace ronde::mpi_allreduce
// NOLINTEND(bugprone-casting-through-void)
