// SPDX-License-Identifier: Apache-2.0
// The communicators of this process, and what MPI has once in a process.
#include "bindings/mpi/communicators.h"

#include <cerrno>
#include <cstdlib>
#include <limits>
#include <utility>

// MPI's constants are casts through void.
// NOLINTBEGIN(bugprone-casting-through-void)
namespace ronde::mpi_allreduce {

namespace {

// In a line small calls take less time than MPI's; by name they take longer.
constexpr std::int64_t kDefaultThreshold = 1;
constexpr std::int64_t kDefaultWithoutLine = 65536;
constexpr const char* kThresholdVariable = "RONDE_MPI_ALLREDUCE_BYTES";

// A program that MPI would let wait for hours must not end because Ronde takes it for stalled, or
// for deadlocked, since it does not see the threads that have called MPI alone.
[[gnu::constructor]] void be_patient() {
  for (const char* const variable :
       {"RONDE_STALL_FAILURE_SECONDS", "RONDE_DEADLOCK_GRACE_SECONDS"}) {
    const char* const given = getenv(variable);
    if (given == nullptr || *given == '\0') setenv(variable, "864000", 1);
  }
}

// 0 where it names none.
std::int64_t threshold_of_environment() {
  const char* text = std::getenv(kThresholdVariable);
  if (text == nullptr || *text == '\0') return 0;
  char* end = nullptr;
  errno = 0;
  const std::int64_t bytes = std::strtoll(text, &end, 10);
  if (errno == 0 && *end == '\0' && bytes >= 1) return bytes;
  say(std::string(kThresholdVariable) + " is not a number of bytes: the default is used");
  return 0;
}

}  // namespace

Communicators::Communicators()
    : threshold_(threshold_of_environment()), threshold_without_line_(threshold_) {
  if (threshold_ > 0) return;
  threshold_ = kDefaultThreshold;
  threshold_without_line_ = kDefaultWithoutLine;
}

Communicators& Communicators::here() {
  static auto* const kHere = new Communicators();
  return *kHere;
}

void Communicators::agree() {
  // Two numbers where it was not given, which a number like one of them is not.
  const std::int64_t mine = threshold_ == threshold_without_line_ ? threshold_ : 0;
  if (smallest(mine, MPI_COMM_WORLD) == -smallest(-mine, MPI_COMM_WORLD)) return;
  threshold_ = threshold_without_line_ = std::numeric_limits<std::int64_t>::max();
  if (first_to_speak()) {
    say(std::string(kThresholdVariable) + " differs between ranks: all reductions are MPI's");
  }
}

int Communicators::keyval() {
  const int made_before = keyval_.load(std::memory_order_acquire);
  if (made_before != MPI_KEYVAL_INVALID) return made_before;
  const std::lock_guard lock(lock_);
  if (keyval_.load(std::memory_order_relaxed) == MPI_KEYVAL_INVALID) {
    int made = MPI_KEYVAL_INVALID;
    PMPI_Comm_create_keyval(on_copy, on_delete, &made, nullptr);
    // MPI_Finalize of Fortran does not come by here, but it frees what hangs on MPI_COMM_SELF
    // first.
    int of_end = MPI_KEYVAL_INVALID;
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_end, &of_end, nullptr);
    PMPI_Comm_set_attr(MPI_COMM_SELF, of_end, nullptr);
    keyval_.store(made, std::memory_order_release);
  }
  return keyval_.load(std::memory_order_relaxed);
}

bool Communicators::has_been_seen(MPI_Comm handle, Communicator*& communicator) {
  void* attribute = nullptr;
  int found = 0;
  PMPI_Comm_get_attr(handle, keyval(), static_cast<void*>(&attribute), &found);
  communicator = found != 0 ? static_cast<Communicator*>(attribute) : nullptr;
  if (communicator != nullptr) communicator->has_handle(handle);
  return found != 0;
}

Communicator* Communicators::known(MPI_Comm handle) {
  Communicator* there = nullptr;
  if (handle != MPI_COMM_NULL) has_been_seen(handle, there);
  return there;
}

Communicator* Communicators::of(MPI_Comm handle) {
  if (handle == MPI_COMM_NULL) return nullptr;
  Communicator* there = nullptr;
  if (has_been_seen(handle, there)) return there;
  int alike = MPI_UNEQUAL;
  if (PMPI_Comm_compare(handle, MPI_COMM_WORLD, &alike) != MPI_SUCCESS) return nullptr;
  if (alike != MPI_IDENT && alike != MPI_CONGRUENT) {
    PMPI_Comm_set_attr(handle, keyval(), nullptr);  // so that it is compared once
    return nullptr;
  }
  auto made = std::make_unique<Communicator>(handle);
  if (PMPI_Comm_set_attr(handle, keyval(), made.get()) != MPI_SUCCESS) return nullptr;
  return add(std::move(made));
}

Communicator* Communicators::add(std::unique_ptr<Communicator> made) {
  const std::lock_guard lock(lock_);
  return all_.emplace_back(std::move(made)).get();
}

Engine* Communicators::engine() {
  const std::lock_guard lock(lock_);
  return engine_.get();
}

bool Communicators::may_open() {
  const std::lock_guard lock(lock_);
  return engine_ == nullptr && !std::exchange(opening_, true);
}

Engine* Communicators::has_opened(std::unique_ptr<Engine> engine) {
  const std::lock_guard lock(lock_);
  opening_ = false;
  if (engine != nullptr) any_engine_.store(true, std::memory_order_relaxed);
  engine_ = std::move(engine);
  return engine_.get();
}

// MPI calls this where a communicator is duplicated. All ranks do that between the same two of its
// collectives, so that either all of them see an engine here or none does.
int Communicators::on_copy(MPI_Comm /*handle*/, int /*keyval*/, void* /*extra*/, void* attribute,
                           void* copy, int* copied) {
  auto* const original = static_cast<Communicator*>(attribute);
  Engine* const engine = original != nullptr ? original->engine() : nullptr;
  *copied = engine != nullptr ? 1 : 0;
  if (engine == nullptr) return MPI_SUCCESS;
  *static_cast<void**>(copy) = here().add(std::make_unique<Communicator>(engine));
  return MPI_SUCCESS;
}

int Communicators::on_delete(MPI_Comm /*handle*/, int /*keyval*/, void* attribute,
                             void* /*extra*/) {
  if (attribute != nullptr) here().forget(static_cast<Communicator*>(attribute));
  return MPI_SUCCESS;
}

int Communicators::on_end(MPI_Comm /*handle*/, int /*keyval*/, void* /*attribute*/,
                          void* /*extra*/) {
  here().close_all();
  return MPI_SUCCESS;
}

// Fortran frees communicators without MPI_Comm_free of this library; their numbers stay taken.
void Communicators::forget(Communicator* communicator) {
  communicator->stop_wanting();
  const std::lock_guard lock(lock_);
  std::erase_if(all_, [&](const auto& other) { return other.get() == communicator; });
}

void Communicators::leave(const MPI_Comm* handle) {
  Communicator* communicator = handle != nullptr ? known(*handle) : nullptr;
  if (communicator != nullptr) communicator->leave();
}

void Communicators::close_all() {
  Engine* const open = engine();
  if (open == nullptr || !open->is_open()) return;
  // Closing has a deadline, and ranks may come here hours apart.
  PMPI_Barrier(MPI_COMM_WORLD);
  {
    const std::lock_guard lock(lock_);
    for (const auto& communicator : all_) communicator->drop_line();
  }
  open->close();
}

}  // namespace ronde::mpi_allreduce
// NOLINTEND(bugprone-casting-through-void)
