// SPDX-License-Identifier: Apache-2.0
// Engines are opened and closed here, and what goes wrong becomes an error of MPI.
#include "bindings/mpi/communicators.h"

#include <ronde/mpi.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string_view>

// MPI's constants are casts through void.
// NOLINTBEGIN(bugprone-casting-through-void)
namespace ronde::mpi_allreduce {

namespace {

constexpr std::int64_t kDefaultThreshold = 65536;
// So many reductions of MPI_Iallreduce may be in flight; one more waits for the first.
constexpr std::size_t kSlots = 1024;
constexpr const char* kThresholdVariable = "RONDE_MPI_ALLREDUCE_BYTES";

// A program that MPI would let wait for hours must not end because Ronde takes it for stalled.
[[gnu::constructor]] void be_patient() { setenv("RONDE_STALL_FAILURE_SECONDS", "864000", 0); }

std::int64_t threshold_of_environment() {
  const char* text = std::getenv(kThresholdVariable);
  if (text == nullptr || *text == '\0') return kDefaultThreshold;
  char* end = nullptr;
  errno = 0;
  const std::int64_t bytes = std::strtoll(text, &end, 10);
  if (errno == 0 && *end == '\0' && bytes >= 1) return bytes;
  say(std::string(kThresholdVariable) + "=" + text + " is not valid: use a number of bytes; " +
      std::to_string(kDefaultThreshold) + " is used");
  return kDefaultThreshold;
}

// The smallest value of all ranks. As many ranks call it as wait for each other anyway.
std::int64_t smallest(std::int64_t mine, MPI_Comm communicator) {
  std::int64_t all = 0;
  if (PMPI_Allreduce(&mine, &all, 1, MPI_INT64_T, MPI_MIN, communicator) != MPI_SUCCESS) return 0;
  return all;
}

// Whether operations inside one host may call MPI, which they do where an algorithm is named.
bool algorithm_is_named() {
  const char* algorithm = std::getenv("RONDE_ALGORITHM");
  return algorithm != nullptr && *algorithm != '\0' && std::string_view(algorithm) != "auto";
}

}  // namespace

void say(const std::string& text) { std::fprintf(stderr, "ronde: %s\n", text.c_str()); }

void let_mpi_progress() {
  int flag = 0;
  PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
}

int report(ronde_error* error, const char* call) {
  say(std::string(call) + ": " + ronde_error_message(error));
  ronde_error_release(error);
  return MPI_ERR_OTHER;
}

// ---- one communicator ----

void Communicator::open() {
  if (wanted_) Communicators::here().count_wanted(-1);
  wanted_ = false;
  if (tried_) return;
  tried_ = true;
  int size = 0;
  PMPI_Comm_size(handle_, &size);
  if (size < 2) return;
  // Ranks may come hours apart, as MPI lets them, and opening an engine has a deadline: they wait
  // for each other before.
  PMPI_Barrier(handle_);
  ronde_engine_options options;
  ronde_engine_options_init(&options);
  ronde_engine_options_set_communicator(&options, handle_);
  ronde_error* error = nullptr;
  std::string reason = "Ronde cannot serve this job without threads in MPI";
  if (ronde_engine_open(&options, &engine_, &error) != RONDE_OK) {
    reason = ronde_error_message(error);
    ronde_error_release(error);
    engine_ = nullptr;
  } else if (ronde_size(engine_) != size) {
    reason = "RONDE_MPI=off";
  }
  if (smallest(usable() && ronde_size(engine_) == size ? 1 : 0, handle_) == 1) {
    introduce();
    return;
  }
  if (engine_ != nullptr) ronde_engine_close(engine_, nullptr);
  engine_ = nullptr;
  int rank = 0;
  PMPI_Comm_rank(handle_, &rank);
  if (rank == 0 && Communicators::here().first_to_speak()) {
    say("MPI_Allreduce stays MPI's: " + reason);
  }
}

bool Communicator::usable() const {
  if (engine_ == nullptr) return false;
  // Inside a host Ronde calls no MPI. Between hosts its thread does, beside the program's.
  if (ronde_local_size(engine_) == ronde_size(engine_) && !algorithm_is_named()) return true;
  int level = MPI_THREAD_SINGLE;
  PMPI_Query_thread(&level);
  return level == MPI_THREAD_MULTIPLE;
}

void Communicator::introduce() const {
  if (ronde_rank(engine_) != 0 || !Communicators::here().first_to_speak()) return;
  say("MPI_Allreduce and MPI_Iallreduce of " + std::to_string(Communicators::here().threshold()) +
      " bytes and more over all " + std::to_string(ronde_size(engine_)) +
      " ranks go through Ronde " + ronde_version() +
      "; sums may round otherwise than MPI's (libronde_mpi_allreduce.so is preloaded)");
}

void Communicator::want() {
  if (tried_ || wanted_) return;
  wanted_ = true;
  Communicators::here().count_wanted(1);
}

void Communicator::close() {
  if (wanted_) Communicators::here().count_wanted(-1);
  wanted_ = false;
  tried_ = true;
  if (engine_ == nullptr) return;
  ronde_error* error = nullptr;
  if (ronde_engine_close(engine_, &error) != RONDE_OK) report(error, "closing Ronde's engine");
  engine_ = nullptr;
}

ronde_status Communicator::start(const std::string& name, const void* send, void* receive,
                                 int count, const Reduction& reduction, std::uint64_t flags,
                                 ronde_work** work, ronde_error** error) {
  const std::int64_t shape = count;
  ronde_request request;
  ronde_request_init(&request);
  request.name = name.c_str();
  request.input = send == MPI_IN_PLACE ? nullptr : send;
  request.output = receive;
  request.shape = &shape;
  request.dimensions = 1;
  request.dtype = reduction.dtype;
  request.op = reduction.op;
  request.flags = flags;
  return ronde_allreduce_async(engine_, &request, work, error);
}

int Communicator::fail(ronde_error* error, const char* call) {
  const int code = report(error, call);
  PMPI_Comm_call_errhandler(handle_, code);
  return code;
}

int Communicator::allreduce(const void* send, void* receive, int count,
                            const Reduction& reduction) {
  const std::string name = "MPI_Allreduce of " + name_of(reduction, count);
  ronde_work* work = nullptr;
  ronde_error* error = nullptr;
  if (start(name, send, receive, count, reduction, RONDE_FLAG_WILL_WAIT, &work, &error) !=
      RONDE_OK) {
    return fail(error, "MPI_Allreduce");
  }
  std::int32_t done = 0;
  ronde_status status = RONDE_OK;
  while (done == 0 && status == RONDE_OK) {
    status = ronde_work_wait_for(work, kWaitNanoseconds, &done, &error);
    if (done == 0) let_mpi_progress();
  }
  ronde_work_release(work);
  return status == RONDE_OK ? MPI_SUCCESS : fail(error, "MPI_Allreduce");
}

std::shared_ptr<InFlight>& Communicator::next_slot() {
  slots_.resize(kSlots);
  return slots_[started_ % kSlots];
}

int Communicator::submit(const void* send, void* receive, int count, const Reduction& reduction,
                         InFlight& operation) {
  // Names come round: those that the ranks know cost less than new ones.
  const std::string name =
      "MPI_Iallreduce of " + name_of(reduction, count) + " #" + std::to_string(started_ % kSlots);
  ++started_;
  ronde_error* error = nullptr;
  if (start(name, send, receive, count, reduction, 0, &operation.work, &error) == RONDE_OK) {
    return MPI_SUCCESS;
  }
  return fail(error, "MPI_Iallreduce");
}

// ---- all communicators ----

Communicators::Communicators() : threshold_(threshold_of_environment()) {}

Communicators& Communicators::here() {
  static auto* const kHere = new Communicators();
  return *kHere;
}

void Communicators::agree() {
  if (smallest(threshold_, MPI_COMM_WORLD) == -smallest(-threshold_, MPI_COMM_WORLD)) return;
  threshold_ = std::numeric_limits<std::int64_t>::max();
  if (first_to_speak()) {
    say(std::string(kThresholdVariable) + " differs between ranks: all reductions are MPI's");
  }
}

int Communicators::keyval() {
  const std::lock_guard lock(lock_);
  if (keyval_ == MPI_KEYVAL_INVALID) {
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_delete, &keyval_, nullptr);
    // MPI_Finalize of Fortran does not come by here, but it frees what hangs on MPI_COMM_SELF
    // first.
    int of_end = MPI_KEYVAL_INVALID;
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_end, &of_end, nullptr);
    PMPI_Comm_set_attr(MPI_COMM_SELF, of_end, nullptr);
  }
  return keyval_;
}

Communicator* Communicators::known(MPI_Comm handle) {
  void* attribute = nullptr;
  int found = 0;
  if (handle == MPI_COMM_NULL) return nullptr;
  PMPI_Comm_get_attr(handle, keyval(), static_cast<void*>(&attribute), &found);
  return found != 0 ? static_cast<Communicator*>(attribute) : nullptr;
}

Communicator* Communicators::of(MPI_Comm handle) {
  if (handle == MPI_COMM_NULL) return nullptr;
  if (Communicator* there = known(handle)) return there;
  int alike = MPI_UNEQUAL;
  if (PMPI_Comm_compare(handle, MPI_COMM_WORLD, &alike) != MPI_SUCCESS) return nullptr;
  if (alike != MPI_IDENT && alike != MPI_CONGRUENT) return nullptr;
  auto made = std::make_unique<Communicator>(handle);
  if (PMPI_Comm_set_attr(handle, keyval(), made.get()) != MPI_SUCCESS) return nullptr;
  const std::lock_guard lock(lock_);
  return all_.emplace_back(std::move(made)).get();
}

int Communicators::on_delete(MPI_Comm /*handle*/, int /*keyval*/, void* attribute,
                             void* /*extra*/) {
  here().forget(static_cast<Communicator*>(attribute));
  return MPI_SUCCESS;
}

int Communicators::on_end(MPI_Comm /*handle*/, int /*keyval*/, void* /*attribute*/,
                          void* /*extra*/) {
  here().close_all();
  return MPI_SUCCESS;
}

// Fortran frees communicators without MPI_Comm_free of this library; their engines stay until MPI
// ends.
void Communicators::forget(Communicator* communicator) {
  const std::lock_guard lock(lock_);
  if (communicator->is_open()) return;
  std::erase_if(all_, [&](const auto& other) { return other.get() == communicator; });
}

void Communicators::close(const MPI_Comm* handle) {
  Communicator* communicator = handle != nullptr ? known(*handle) : nullptr;
  if (communicator == nullptr) return;
  // Closing has a deadline, and ranks may come here hours apart.
  if (communicator->is_open()) PMPI_Barrier(*handle);
  communicator->close();
}

void Communicators::close_all() {
  std::vector<Communicator*> open;
  {
    const std::lock_guard lock(lock_);
    for (const auto& communicator : all_) {
      if (communicator->is_open()) open.push_back(communicator.get());
    }
  }
  if (open.empty()) return;
  PMPI_Barrier(MPI_COMM_WORLD);
  for (Communicator* communicator : open) communicator->close();
}

}  // namespace ronde::mpi_allreduce
// NOLINTEND(bugprone-casting-through-void)
