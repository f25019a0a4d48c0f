// SPDX-License-Identifier: Apache-2.0
// The process's MPI: its start and its end, and the exchanges of a communicator while a job starts.
#include "collectives/transport/mpi/session.h"

#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/host_name.h"
#include "base/mutex.h"
#include "base/numbers.h"
#include "base/process/watchdog.h"
#include "base/text.h"

// MPI's constants are casts through void.
// NOLINTBEGIN(bugprone-casting-through-void)
namespace ronde::collectives {

namespace {

using base::Clock;
using base::Code;
using base::Instant;
using base::MutexLock;
using base::narrow;
using base::Result;
using base::Status;

// The state of the process's MPI, which is process-wide itself. Thread safety: as its members say.
struct Session {
  base::Mutex lock;
  // The process that opened the first communicator; a forked child of it is not part of the job.
  std::atomic<pid_t> owner{0};
  // Whether Ronde started MPI, and so has to finalise it.
  std::atomic<bool> started{false};
  // Communicators that are neither closed nor abandoned.
  std::atomic<int> open{0};
  // A failure was reported: peers may be dead, and MPI_Finalize would wait for them.
  std::atomic<bool> failed{false};
  // The program has left main(): whoever closes the last communicator finalises MPI, once.
  std::atomic<bool> exiting{false};
  std::atomic<bool> finalized{false};
};

// Never destroyed: it is used after everything else has been.
Session& session() {
  static auto* const kSession = new Session;
  return *kSession;
}

// Finalises MPI if the process exits, no communicator is open and nothing has failed. An exit
// without MPI_Finalize makes mpirun end the other ranks, which is right after a failure, or when
// the program leaves in mid-job.
void finalize_if_last() {
  Session& state = session();
  if (!state.exiting.load() || state.open.load() != 0 || state.failed.load()) return;
  if (state.finalized.exchange(true)) return;
  int finished = 0;
  MPI_Finalized(&finished);
  // It waits for all ranks, for as long as they take: one of them may have much to write down.
  if (finished == 0) MPI_Finalize();
}

// Registered with atexit() where Ronde starts MPI. Engines that are open now may be closed later:
// by destructors of the program's static objects, or by libronde.so after those.
void finalize_at_exit() {
  Session& state = session();
  if (!state.started.load() || state.owner.load() != ::getpid()) return;
  state.exiting.store(true);
  finalize_if_last();
}

const char* level_name(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    default:
      return "MPI_THREAD_MULTIPLE";
  }
}

// Open MPI loads components that look for the symbols of its libraries among those of the program.
// Where a plug-in has brought MPI along, only the plug-in sees them, so they are made global, as if
// the program were linked with MPI.
void make_mpi_global() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&MPI_Init_thread), &info) == 0) return;
  ::dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

// MPI_Init_thread waits for ever for a rank that ends, or goes on, without starting MPI. Only the
// end of the process ends that wait, so a watchdog ends it.
Status start_mpi(base::Nanoseconds patience) RONDE_REQUIRES(mpi_lock()) {
  int provided = MPI_THREAD_SINGLE;
  int error = MPI_SUCCESS;
  make_mpi_global();
  {
    const auto watchdog = base::Watchdog::start(
        patience,
        "MPI did not start in time (RONDE_START_TIMEOUT_SECONDS): a rank of the job has ended, or "
        "has not opened an engine; look at the output of all ranks. This process ends");
    RONDE_RETURN_IF_ERROR(watchdog.status());
    error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  }
  if (error != MPI_SUCCESS) return mpi_error(error, "starting MPI");
  session().started.store(true);
  if (std::atexit(finalize_at_exit) != 0) {
    return Status::error(Code::kSystem, "could not register the end of MPI (atexit)");
  }
  if (provided >= MPI_THREAD_SERIALIZED) return {};
  return Status::error(Code::kUnsupported, std::string("this MPI offers threads no more than ") +
                                               level_name(provided) +
                                               "; Ronde needs MPI_THREAD_SERIALIZED");
}

// The memory that MPI_Iallgatherv reads and writes. It is on the heap, so that it can be left to
// MPI after a failure.
struct Round {
  std::vector<std::byte> mine;
  std::vector<std::byte> all;
  std::vector<int> counts;
  std::vector<int> offsets;
  MPI_Request request = MPI_REQUEST_NULL;
};

// Fills in what MPI knows of the new communicator without asking another rank.
Status describe(MpiHandle& handle) RONDE_REQUIRES(mpi_lock()) {
  MPI_Comm_set_errhandler(handle.communicator, MPI_ERRORS_RETURN);
  int error = MPI_Comm_rank(handle.communicator, &handle.rank);
  if (error == MPI_SUCCESS) error = MPI_Comm_size(handle.communicator, &handle.size);
  if (error == MPI_SUCCESS) error = MPI_Query_thread(&handle.thread_level);
  if (error != MPI_SUCCESS) return mpi_error(error, "asking MPI for the ranks of the job");
  void* attribute = nullptr;
  int found = 0;
  // NOLINTNEXTLINE(bugprone-multi-level-implicit-pointer-conversion): so is the MPI call
  MPI_Comm_get_attr(handle.communicator, MPI_TAG_UB, static_cast<void*>(&attribute), &found);
  constexpr int kLeastOfStandard = 32767;
  handle.largest_tag = found != 0 ? *static_cast<int*>(attribute) : kLeastOfStandard;
  return {};
}

}  // namespace

base::Mutex& mpi_lock() { return session().lock; }

MpiCommunicator::MpiCommunicator(std::shared_ptr<MpiHandle> handle, MpiRollCall roll_call)
    : handle_(std::move(handle)), roll_call_(std::move(roll_call)) {
  session().open.fetch_add(1);
}

std::string MpiCommunicator::thread_level() const { return level_name(handle_->thread_level); }

bool MpiCommunicator::ends_with_process() const {
  return session().started.load() && handle_->owner.is_mine();
}

void MpiCommunicator::abandon() {
  session().failed.store(true);
  if (!handle_->abandoned.exchange(true)) session().open.fetch_sub(1);
}

Status MpiCommunicator::gather_round(std::span<const std::byte> mine, std::vector<int> counts,
                                     std::vector<std::vector<std::byte>>& parts,
                                     const Occasion& occasion) {
  RONDE_RETURN_IF_ERROR(handle_->usable());
  auto round = std::make_unique<Round>();
  round->mine.assign(mine.begin(), mine.end());
  round->counts = std::move(counts);
  int total = 0;
  for (const int count : round->counts) {
    round->offsets.push_back(total);
    total += count;
  }
  round->all.resize(narrow<std::size_t>(total));
  {
    const MutexLock lock(mpi_lock());
    const int error =
        MPI_Iallgatherv(round->mine.data(), narrow<int>(mine.size()), MPI_BYTE, round->all.data(),
                        round->counts.data(), round->offsets.data(), MPI_BYTE,
                        handle_->communicator, &round->request);
    if (error != MPI_SUCCESS) return mpi_error(error, occasion.activity);
  }
  Status status = roll_call_.wait(&round->request, occasion.activity, occasion.trouble,
                                  occasion.clock, occasion.deadline);
  if (!status.ok()) {
    abandon();
    [[maybe_unused]] const Round* left = round.release();  // MPI may still write there
    return status;
  }
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const auto begin = round->all.begin() + round->offsets[rank];
    parts[rank].insert(parts[rank].end(), begin, begin + round->counts[rank]);
  }
  return {};
}

Result<std::vector<std::int64_t>> MpiCommunicator::gather_lengths(std::int64_t mine,
                                                                  const Occasion& occasion) {
  const auto ranks = narrow<std::size_t>(handle_->size);
  std::vector<std::vector<std::byte>> parts(ranks);
  std::array<std::byte, sizeof(std::int64_t)> bytes;
  std::memcpy(bytes.data(), &mine, sizeof mine);
  RONDE_RETURN_IF_ERROR(
      gather_round(bytes, std::vector<int>(ranks, narrow<int>(bytes.size())), parts, occasion));
  std::vector<std::int64_t> lengths(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::memcpy(&lengths[rank], parts[rank].data(), sizeof(std::int64_t));
  }
  return lengths;
}

Result<std::vector<std::vector<std::byte>>> MpiCommunicator::allgather_bytes(
    std::span<const std::byte> mine, const std::string& activity, const StartTrouble& trouble,
    const Clock& clock, Instant deadline) {
  const Occasion occasion{activity, trouble, clock, deadline};
  RONDE_ASSIGN_OR_RETURN(const auto lengths,
                         gather_lengths(narrow<std::int64_t>(mine.size()), occasion));
  // Counts and offsets of MPI are ints, so that what all ranks send in a round must fit one. Much
  // less is as fast and needs less memory.
  constexpr std::int64_t kRoundBytes = std::int64_t{1} << 20;
  static_assert(kRoundBytes < std::numeric_limits<int>::max());
  const std::int64_t share = std::max<std::int64_t>(1, kRoundBytes / handle_->size);
  const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::vector<std::vector<std::byte>> parts(lengths.size());
  for (std::int64_t begin = 0; begin < longest; begin += share) {
    std::vector<int> counts;
    for (const std::int64_t length : lengths) {
      counts.push_back(narrow<int>(std::clamp<std::int64_t>(length - begin, 0, share)));
    }
    const auto own = narrow<std::size_t>(counts[narrow<std::size_t>(handle_->rank)]);
    const auto from = std::min(narrow<std::size_t>(begin), mine.size());
    RONDE_RETURN_IF_ERROR(
        gather_round(mine.subspan(from, own), std::move(counts), parts, occasion));
  }
  return parts;
}

Status MpiCommunicator::find_hosts(const Clock& clock, Instant deadline) {
  const std::int32_t calls_sent = roll_call_.move_to(handle_->communicator);
  const std::string mine = std::to_string(calls_sent) + " " + base::host_identity();
  RONDE_ASSIGN_OR_RETURN(
      const auto all, allgather_bytes(std::as_bytes(std::span(mine)), "telling where the ranks run",
                                      {}, clock, deadline));
  std::vector<std::string> identities;
  std::vector<std::string> names;
  std::vector<std::int32_t> calls;
  for (const auto& bytes : all) {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::size_t end = std::min(text.find(' '), text.size());
    calls.push_back(base::parse_number<std::int32_t>(text.substr(0, end)).value_or(0));
    identities.emplace_back(text.substr(std::min(end + 1, text.size())));
    names.push_back(identities.back().substr(0, identities.back().find(' ')));
  }
  roll_call_.set_hosts(names);
  roll_call_.drain_first_communicator(calls, clock, deadline);
  for (std::size_t rank = 0; rank < identities.size(); ++rank) {
    if (identities[rank] == identities[narrow<std::size_t>(handle_->rank)]) {
      ranks_on_host_.push_back(narrow<int>(rank));
    }
  }
  return {};
}

Status MpiCommunicator::close() {
  RONDE_RETURN_IF_ERROR(handle_->usable());
  handle_->abandoned.store(true);
  Status status;
  {
    const MutexLock lock(mpi_lock());
    const int error = MPI_Comm_free(&handle_->communicator);
    if (error != MPI_SUCCESS) status = mpi_error(error, "freeing Ronde's communicator");
  }
  session().open.fetch_sub(1);
  finalize_if_last();
  return status;
}

Result<std::unique_ptr<MpiCommunicator>> MpiCommunicator::open(
    const ProgramCommunicator* communicator, const Clock& clock, Instant deadline) {
  auto handle = std::make_unique<MpiHandle>();
  MPI_Comm source = MPI_COMM_NULL;
  std::optional<MpiRollCall> roll_call;
  auto request = std::make_unique<MPI_Request>(MPI_REQUEST_NULL);
  {
    const MutexLock lock(mpi_lock());
    RONDE_ASSIGN_OR_RETURN(const auto started, mpi_running());
    pid_t nobody = 0;
    if (!session().owner.compare_exchange_strong(nobody, ::getpid()) && nobody != ::getpid()) {
      return forked_child();
    }
    if (!started) RONDE_RETURN_IF_ERROR(start_mpi(deadline - clock.now()));
    RONDE_ASSIGN_OR_RETURN(source, handle_of(communicator));
    roll_call.emplace(source, clock, deadline);
    // MPI_Comm_dup would wait for ever for a rank that creates no engine.
    const int error = MPI_Comm_idup(source, &handle->communicator, request.get());
    if (error != MPI_SUCCESS) return mpi_error(error, "duplicating the communicator");
  }
  const Status together =
      roll_call->wait(request.get(), "joining the job (opening an engine)", {}, clock, deadline);
  if (!together.ok()) {
    // MPI may still write into both.
    [[maybe_unused]] const MpiHandle* left_handle = handle.release();
    [[maybe_unused]] const MPI_Request* left_request = request.release();
    session().failed.store(true);
    return together;
  }
  std::shared_ptr<MpiHandle> shared = std::move(handle);
  {
    const MutexLock lock(mpi_lock());
    RONDE_RETURN_IF_ERROR(describe(*shared));
  }
  std::unique_ptr<MpiCommunicator> joined(
      new MpiCommunicator(std::move(shared), std::move(*roll_call)));
  RONDE_RETURN_IF_ERROR(joined->find_hosts(clock, deadline));
  return joined;
}

}  // namespace ronde::collectives
// NOLINTEND(bugprone-casting-through-void)
