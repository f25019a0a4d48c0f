// SPDX-License-Identifier: Apache-2.0
// Communicators come to their engines here, and what goes wrong becomes an error of MPI.
#include "bindings/mpi/communicators.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <utility>

// MPI's constants are casts through void.
// NOLINTBEGIN(bugprone-casting-through-void)
namespace ronde::mpi_allreduce {

namespace {

constexpr std::int64_t kDefaultThreshold = 65536;
// So many calls that fit are MPI's before a communicator has an engine. Opening one takes as long
// as some hundred of them.
constexpr int kCallsOfMpi = 8;
// So many reductions of MPI_Iallreduce may be in flight; one more waits for the first.
constexpr std::size_t kSlots = 1024;
// So long a rank waits before it looks at what the others do.
constexpr std::chrono::milliseconds kPatience{300};
constexpr const char* kThresholdVariable = "RONDE_MPI_ALLREDUCE_BYTES";

// A program that MPI would let wait for hours must not end because Ronde takes it for stalled.
[[gnu::constructor]] void be_patient() {
  constexpr const char* kVariable = "RONDE_STALL_FAILURE_SECONDS";
  const char* const given = getenv(kVariable);
  if (given == nullptr || *given == '\0') setenv(kVariable, "864000", 1);
}

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

}  // namespace

void let_mpi_progress() {
  int flag = 0;
  PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
}

// ---- one communicator ----

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
  join();
  if (engine_ != nullptr) return;
  Communicators& all = Communicators::here();
  std::int64_t id = rank() == 0 ? all.next_engine_id() : 0;
  PMPI_Bcast(&id, 1, MPI_INT64_T, 0, handle_);
  std::string reason;
  if (auto engine = Engine::open(handle_, size, id, reason)) {
    number_ = Engine::kFirstNumber;
    engine_ = all.add_engine(std::move(engine));
    introduce();
  } else if (rank() == 0 && all.first_to_speak()) {
    say("MPI_Allreduce stays MPI's: " + reason);
  }
}

// Rank 0 says which engine this communicator joins, as which number.
void Communicator::join() {
  Communicators& all = Communicators::here();
  const bool chooses = rank() == 0;
  Engine* chosen = engine_ != nullptr ? engine_ : all.oldest_engine();
  std::array<std::int64_t, 2> offer{-1, -1};
  if (chooses && chosen != nullptr) offer = {chosen->id(), chosen->take_number()};
  PMPI_Bcast(offer.data(), 2, MPI_INT64_T, 0, handle_);
  if (engine_ == nullptr) {
    if (offer[0] < 0) return;
    // Another thread may be about to add it.
    chosen = all.find_engine(offer[0]);
    if (smallest(chosen != nullptr ? 1 : 0, handle_) != 1) {
      if (chooses) chosen->give_back(static_cast<int>(offer[1]));
      return;
    }
    engine_ = chosen;
  }
  number_ = static_cast<int>(offer[1]);
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
    if (smallest(idle ? 1 : 0, handle_) == 1 && rank() == 0) engine_->give_back(number_);
  }
  number_ = -1;
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
  return ronde_allreduce_async(engine_->get(), &request, work, error);
}

int Communicator::fail(ronde_error* error, const char* call) {
  const int code = report(error, call);
  PMPI_Comm_call_errhandler(handle_, code);
  return code;
}

void Communicator::begin_call(const Reduction* reduction, int count) {
  if (Words* words = engine_->words()) words->begin(number_, calls_ + 1, call_of(reduction, count));
}

void Communicator::end_call(int code) {
  if (Words* words = engine_->words()) words->end(number_, calls_ + 1);
  // One that was refused on this rank alone has met no other.
  if (code == MPI_SUCCESS) ++calls_;
}

bool Communicator::gives_up(std::chrono::steady_clock::time_point begun, ronde_work* work) const {
  const Words* words = engine_->words();
  if (words == nullptr || std::chrono::steady_clock::now() - begun < kPatience) return false;
  const std::string difference = words->difference(number_, calls_ + 1);
  if (difference.empty()) return false;
  say("MPI_Allreduce: the ranks disagree: " + difference + ". Make the calls agree");
  // The handler that ends the job comes first, so that no rank speaks of what follows.
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  PMPI_Comm_get_errhandler(handle_, &handler);
  if (handler == MPI_ERRORS_ARE_FATAL) PMPI_Comm_call_errhandler(handle_, MPI_ERR_OTHER);
  PMPI_Errhandler_free(&handler);
  // The memory is the caller's again when this returns, and the engine has failed on all ranks.
  ronde_work_settle(work, 0);
  return true;
}

int Communicator::allreduce(const void* send, void* receive, int count,
                            const Reduction& reduction) {
  const std::string name = prefix() + "MPI_Allreduce after " + history_.text();
  ronde_work* work = nullptr;
  ronde_error* error = nullptr;
  if (start(name, send, receive, count, reduction, RONDE_FLAG_WILL_WAIT, &work, &error) !=
      RONDE_OK) {
    return fail(error, "MPI_Allreduce");
  }
  std::int32_t done = 0;
  ronde_status status = ronde_work_wait_for(work, kWaitNanoseconds, &done, &error);
  const auto begun =
      done != 0 ? std::chrono::steady_clock::time_point{} : std::chrono::steady_clock::now();
  while (done == 0 && status == RONDE_OK) {
    let_mpi_progress();
    if (gives_up(begun, work)) {
      PMPI_Comm_call_errhandler(handle_, MPI_ERR_OTHER);
      return MPI_ERR_OTHER;
    }
    status = ronde_work_wait_for(work, kWaitNanoseconds, &done, &error);
  }
  ronde_work_release(work);
  // A failure is one on all ranks, whose calls may have differed.
  history_.add(status == RONDE_OK ? call_of(&reduction, count) : 0);
  return status == RONDE_OK ? MPI_SUCCESS : fail(error, "MPI_Allreduce");
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

Communicator* Communicators::known(MPI_Comm handle) {
  void* attribute = nullptr;
  int found = 0;
  if (handle == MPI_COMM_NULL) return nullptr;
  PMPI_Comm_get_attr(handle, keyval(), static_cast<void*>(&attribute), &found);
  if (found == 0) return nullptr;
  auto* const communicator = static_cast<Communicator*>(attribute);
  communicator->has_handle(handle);
  return communicator;
}

Communicator* Communicators::of(MPI_Comm handle) {
  if (handle == MPI_COMM_NULL) return nullptr;
  if (Communicator* there = known(handle)) return there;
  int alike = MPI_UNEQUAL;
  if (PMPI_Comm_compare(handle, MPI_COMM_WORLD, &alike) != MPI_SUCCESS) return nullptr;
  if (alike != MPI_IDENT && alike != MPI_CONGRUENT) return nullptr;
  auto made = std::make_unique<Communicator>(handle);
  if (PMPI_Comm_set_attr(handle, keyval(), made.get()) != MPI_SUCCESS) return nullptr;
  return add(std::move(made));
}

Communicator* Communicators::add(std::unique_ptr<Communicator> made) {
  const std::lock_guard lock(lock_);
  return all_.emplace_back(std::move(made)).get();
}

Engine* Communicators::oldest_engine() {
  const std::lock_guard lock(lock_);
  return engines_.empty() ? nullptr : engines_.front().get();
}

Engine* Communicators::find_engine(std::int64_t id) {
  const std::lock_guard lock(lock_);
  for (const auto& engine : engines_) {
    if (engine->id() == id) return engine.get();
  }
  return nullptr;
}

Engine* Communicators::add_engine(std::unique_ptr<Engine> engine) {
  any_engine_.store(true, std::memory_order_relaxed);
  const std::lock_guard lock(lock_);
  return engines_.emplace_back(std::move(engine)).get();
}

// Of MPI_Comm_dup and its kin, which all ranks call between the same two collectives: they see the
// same engine.
int Communicators::on_copy(MPI_Comm /*handle*/, int /*keyval*/, void* /*extra*/, void* attribute,
                           void* copy, int* copied) {
  Engine* const engine = static_cast<Communicator*>(attribute)->engine();
  *copied = engine != nullptr ? 1 : 0;
  if (engine == nullptr) return MPI_SUCCESS;
  *static_cast<void**>(copy) = here().add(std::make_unique<Communicator>(engine));
  return MPI_SUCCESS;
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
  std::vector<Engine*> open;
  {
    const std::lock_guard lock(lock_);
    for (const auto& engine : engines_) {
      if (engine->is_open()) open.push_back(engine.get());
    }
  }
  if (open.empty()) return;
  // Closing has a deadline, and ranks may come here hours apart.
  PMPI_Barrier(MPI_COMM_WORLD);
  std::sort(open.begin(), open.end(),
            [](const Engine* a, const Engine* b) { return a->id() < b->id(); });
  for (Engine* engine : open) engine->close();
}

}  // namespace ronde::mpi_allreduce
// NOLINTEND(bugprone-casting-through-void)
