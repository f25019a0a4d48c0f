// SPDX-License-Identifier: Apache-2.0
// The roll call over MPI messages: rank 0 collects calls and answers, and the others call. The
// verdict itself is made by the class Roll, without MPI.
#include "collectives/transport/mpi/roll_call.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "base/host_name.h"
#include "base/numbers.h"
#include "base/text.h"

// MPI's constants are casts through void.
// NOLINTBEGIN(bugprone-casting-through-void)
namespace ronde::collectives {

using base::Clock;
using base::Code;
using base::Instant;
using base::MutexLock;
using base::narrow;
using base::Status;

namespace {

constexpr std::uint64_t kMagic = 0x6c6c6f5265646e52;  // "RndeRoll"
constexpr base::Nanoseconds kLongestBeat = std::chrono::seconds(1);
// A rank that has not called for so many halves of a beat counts as missing.
constexpr int kSilentHalves = 5;

// Returns how many ranks of the job the launcher has put on this host, or 0 where it does not tell
// or the communicator is not the whole job.
std::int32_t ranks_here(int size) RONDE_REQUIRES(mpi_lock()) {
  int all = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &all);
  if (all != size) return 0;
  for (const char* variable : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
    if (const char* const text = std::getenv(variable); text != nullptr && *text != '\0') {
      return std::max(0, base::parse_number<std::int32_t>(text).value_or(0));
    }
  }
  return 0;
}

int size_of(MPI_Comm communicator) RONDE_REQUIRES(mpi_lock()) {
  int size = 1;
  MPI_Comm_size(communicator, &size);
  return size;
}

template <std::size_t kSize>
void put(char (&to)[kSize], const std::string& text) {
  const std::size_t length = std::min(text.size(), kSize - 1);
  std::copy_n(text.begin(), length, to);
  to[length] = '\0';
}

// Gives up the lock and the processor for a moment between two looks at a request.
class Pause {
 public:
  void operator()() {
    if (++looks_ < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

 private:
  static constexpr int kYields = 1000;
  int looks_ = 0;
};

}  // namespace

MpiRollCall::MpiRollCall(MPI_Comm communicator, const Clock& clock, Instant deadline)
    : first_(communicator),
      communicator_(communicator),
      host_(base::host_name()),
      beat_(std::clamp<base::Nanoseconds>((deadline - clock.now()) / 8,
                                          std::chrono::milliseconds(20), kLongestBeat)),
      first_calls_from_(clock.now() + (deadline - clock.now()) / 2),
      roll_(size_of(communicator)) {
  const int size = size_of(communicator);
  MPI_Comm_rank(communicator, &rank_);
  host_size_ = ranks_here(size);
  received_in_first_.resize(narrow<std::size_t>(size));
  called_in_.resize(narrow<std::size_t>(size), communicator);
  void* attribute = nullptr;
  int found = 0;
  // NOLINTNEXTLINE(bugprone-multi-level-implicit-pointer-conversion): so is the MPI call
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&attribute), &found);
  constexpr int kLeastOfStandard = 32767;
  // A program is unlikely to use the largest tag.
  tag_ = found != 0 ? *static_cast<int*>(attribute) : kLeastOfStandard;
}

std::int32_t MpiRollCall::move_to(MPI_Comm communicator) {
  communicator_ = communicator;
  return std::exchange(calls_sent_, 0);
}

Status MpiRollCall::wait(MPI_Request* request, const std::string& activity,
                         const StartTrouble& mine, const Clock& clock, Instant deadline) {
  roll_.begin_round(activity);
  troubles_.assign(received_in_first_.size(), {});
  urgent_ = false;
  const Instant began = clock.now();
  Wait wait{mine, began, std::max(deadline - 2 * beat_, began + 2 * beat_),
            mine.text.empty() ? began + beat_ : began};
  if (communicator_ == first_) wait.next_call = std::max(wait.next_call, first_calls_from_);
  Pause pause;
  for (;;) {
    int done = 0;
    {
      const MutexLock lock(mpi_lock());
      const int error = MPI_Test(request, &done, MPI_STATUS_IGNORE);
      if (error != MPI_SUCCESS) return mpi_error(error, activity);
    }
    if (done != 0) return {};
    auto ended = rank_ == 0 ? step_of_rank_0(wait, clock) : step_of_others(wait, clock);
    if (ended) return *ended;
    pause();
  }
}

// Rank 0 receives calls from the first beat on, since most starts finish before and have none.
std::optional<Status> MpiRollCall::step_of_rank_0(const Wait& wait, const Clock& clock) {
  const Instant now = clock.now();
  if (now < wait.began + beat_) return std::nullopt;
  roll_.record(0, host_, host_size_, now);
  troubles_[0] = wait.mine;
  while (receive_call(now)) {
  }
  // A trouble tells more than a missing call, so rank 0 does not wait for the rank at fault.
  const StartTrouble* cause = root_cause(troubles_);
  bool all_here = cause != nullptr;
  if (all_here) {
    for (const std::int32_t rank : roll_.missing(Instant{})) {
      all_here = all_here && rank == cause->culprit;
    }
  }
  const bool listened = now >= wait.began + 2 * beat_;
  if (now < wait.time_up && !(listened && (urgent_ || all_here))) return std::nullopt;
  Status status = verdict(now);
  answer_all(status, clock);
  return status;
}

Status MpiRollCall::verdict(Instant now) const {
  if (const StartTrouble* cause = root_cause(troubles_)) return cause->status();
  const auto missing = roll_.missing(now - kSilentHalves * beat_ / 2);
  if (!missing.empty()) return roll_.absent(missing);
  return Status::error(Code::kDeadline,
                       "all ranks are there, but what they sent each other through MPI did not "
                       "arrive in time (RONDE_START_TIMEOUT_SECONDS raises the limit)");
}

// Answers the ranks that have called, and for two beats also those that call late.
void MpiRollCall::answer_all(const Status& verdict, const Clock& clock) {
  Call call = call_of(verdict.message(), verdict.rank().value_or(-1), false);
  call.code = static_cast<std::int32_t>(verdict.code());
  std::vector<bool> answered(received_in_first_.size(), false);
  const Instant end = clock.now() + 2 * beat_;
  const auto missing = roll_.missing(Instant{});
  for (std::int32_t rank = 1; std::cmp_less(rank, received_in_first_.size()); ++rank) {
    const auto index = narrow<std::size_t>(rank);
    if (std::binary_search(missing.begin(), missing.end(), rank)) continue;
    answered[index] = true;
    send_call(rank, call, called_in_[index]);
  }
  while (clock.now() < end) {
    while (receive_call(clock.now())) {
      const auto index = narrow<std::size_t>(source_);
      if (!answered[index]) send_call(source_, call, called_in_[index]);
      answered[index] = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// The other ranks call, and take the answer of rank 0.
std::optional<Status> MpiRollCall::step_of_others(Wait& wait, const Clock& clock) {
  const Instant now = clock.now();
  const bool urgent = now >= wait.time_up;
  if (now >= wait.next_call) {
    send_call(0, call_of(wait.mine.text, wait.mine.culprit, urgent), communicator_);
    wait.next_call = now + beat_;
  }
  // Rank 0 answers only the ranks that have called.
  if (calls_sent_ == 0) return std::nullopt;
  // An answer counts whatever its round is: rank 0 has given up, even if its collective has
  // finished on this rank.
  if (const auto answer = answer_of_rank_0()) {
    return Status::error(static_cast<Code>(answer->code), answer->text).with_rank(answer->culprit);
  }
  if (now < wait.time_up + 3 * beat_) return std::nullopt;
  roll_.record(rank_, host_, host_size_, now);  // absent() names hosts by what the roll has
  return roll_.absent({0});
}

// Rank 0 may have answered before the ranks moved, so both communicators are looked at.
std::optional<MpiRollCall::Call> MpiRollCall::answer_of_rank_0() {
  auto answer = next_from(0, communicator_);
  if (!answer && communicator_ != first_) answer = next_from(0, first_);
  return answer;
}

void MpiRollCall::drain_first_communicator(const std::vector<std::int32_t>& calls_sent,
                                           const Clock& clock, Instant deadline) {
  const Instant end = std::min(deadline, clock.now() + 2 * beat_);
  for (std::size_t rank = 1; rank_ == 0 && rank < calls_sent.size(); ++rank) {
    Pause pause;
    while (received_in_first_[rank] < calls_sent[rank] && clock.now() < end) {
      if (next_from(narrow<std::int32_t>(rank), first_)) {
        ++received_in_first_[rank];
      } else {
        pause();
      }
    }
  }
  first_ = communicator_;
}

MpiRollCall::Call MpiRollCall::call_of(const std::string& text, std::int32_t culprit,
                                       bool urgent) const {
  Call call{};
  call.magic = kMagic;
  call.round = roll_.round();
  call.urgent = urgent ? 1 : 0;
  call.culprit = culprit;
  call.host_size = host_size_;
  put(call.host, host_);
  put(call.text, text);
  return call;
}

// A message that MPI has not sent at once is left to MPI, as is every request of a start that
// fails.
void MpiRollCall::send_call(std::int32_t to, const Call& call, MPI_Comm communicator) {
  auto outgoing = std::make_unique<Outgoing>(Outgoing{call, MPI_REQUEST_NULL});
  const MutexLock lock(mpi_lock());
  int done = 0;
  if (MPI_Isend(&outgoing->call, narrow<int>(sizeof(Call)), MPI_BYTE, to, tag_, communicator,
                &outgoing->request) != MPI_SUCCESS) {
    return;
  }
  ++calls_sent_;
  MPI_Test(&outgoing->request, &done, MPI_STATUS_IGNORE);
  if (done == 0) [[maybe_unused]]
    const Outgoing* left = outgoing.release();
}

// Returns the next call, if one has arrived; `source` may be MPI_ANY_SOURCE. A matched probe and
// receive is used, so that no other thread of the program can receive it in between.
std::optional<MpiRollCall::Call> MpiRollCall::next_from(std::int32_t source,
                                                        MPI_Comm communicator) {
  const MutexLock lock(mpi_lock());
  int found = 0;
  int bytes = 0;
  MPI_Status status;
  if (MPI_Iprobe(source, tag_, communicator, &found, &status) != MPI_SUCCESS || found == 0) {
    return std::nullopt;
  }
  // A message of another length is the program's.
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  if (std::cmp_not_equal(bytes, sizeof(Call))) return std::nullopt;
  MPI_Message message = MPI_MESSAGE_NULL;
  if (MPI_Improbe(status.MPI_SOURCE, tag_, communicator, &found, &message, &status) !=
          MPI_SUCCESS ||
      found == 0) {
    return std::nullopt;
  }
  source_ = status.MPI_SOURCE;
  Call call{};
  if (MPI_Mrecv(&call, narrow<int>(sizeof call), MPI_BYTE, &message, MPI_STATUS_IGNORE) !=
          MPI_SUCCESS ||
      call.magic != kMagic) {
    return std::nullopt;
  }
  call.host[sizeof call.host - 1] = '\0';
  call.text[sizeof call.text - 1] = '\0';
  return call;
}

// Receives one call on rank 0 and records it; returns false if there is none. A rank that calls is
// there, even if it waits for a collective that has finished on rank 0.
bool MpiRollCall::receive_call(Instant now) {
  MPI_Comm called_in = communicator_;
  auto call = next_from(MPI_ANY_SOURCE, communicator_);
  if (!call && communicator_ != first_) {
    called_in = first_;
    call = next_from(MPI_ANY_SOURCE, first_);
  }
  if (!call) return false;
  const auto index = narrow<std::size_t>(source_);
  if (called_in == first_) ++received_in_first_[index];
  called_in_[index] = called_in;
  roll_.record(source_, call->host, call->host_size, now);
  urgent_ = urgent_ || call->urgent != 0;
  if (call->round == roll_.round() && call->text[0] != '\0') {
    troubles_[index] = {source_, call->culprit, call->text};
  }
  return true;
}

}  // namespace ronde::collectives
// NOLINTEND(bugprone-casting-through-void)
