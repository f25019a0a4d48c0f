// SPDX-License-Identifier: Apache-2.0
// libronde_mpi.so: the functions of plugin.h over the session and its ends. Nothing here calls
// MPI.
#include <chrono>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/numbers.h"
#include "collectives/transport/end_table.h"
#include "collectives/transport/mpi/end.h"
#include "collectives/transport/mpi/session.h"
#include "collectives/transport/plugin.h"

struct ronde_meeting_party {
  std::unique_ptr<ronde::collectives::MpiCommunicator> communicator;
};

namespace ronde::collectives {

namespace {

using base::Result;
using base::Status;

#define RONDE_TEXT_OF(x) #x
#define RONDE_TEXT(x) RONDE_TEXT_OF(x)
#if defined(OPEN_MPI)
constexpr const char* kLibrary = "Open MPI v" RONDE_TEXT(OMPI_MAJOR_VERSION) "." RONDE_TEXT(
    OMPI_MINOR_VERSION) "." RONDE_TEXT(OMPI_RELEASE_VERSION);
#else
constexpr const char* kLibrary = "MPICH " MPICH_VERSION;
#endif
#undef RONDE_TEXT
#undef RONDE_TEXT_OF

const base::Clock& machine_clock() {
  // Never destroyed: an engine that the program leaves open is closed after this plug-in's objects.
  static const auto* const kClock = new base::SteadyClock();
  return *kClock;
}

base::Instant deadline_of(std::int64_t patience_ns) {
  return machine_clock().after(std::chrono::nanoseconds(patience_ns));
}

// ---- the meeting: a party is a communicator ----

Status joined(const ronde_meeting_request& request, ronde_meeting_party** party,
              ronde_meeting_info& info) {
  const ProgramCommunicator program{static_cast<MpiFamily>(request.family), request.communicator};
  RONDE_ASSIGN_OR_RETURN(
      auto opened, MpiCommunicator::open(request.family == 0 ? nullptr : &program, machine_clock(),
                                         deadline_of(request.patience_ns)));
  const MpiCommunicator& communicator = *opened;
  info.rank = communicator.handle()->rank;
  info.size = communicator.handle()->size;
  info.ranks_here = base::narrow<std::int32_t>(communicator.ranks_on_this_host().size());
  info.any_thread = communicator.any_thread() ? 1 : 0;
  info.ends_with_process = communicator.ends_with_process() ? 1 : 0;
  const std::string threads = "the program started MPI with " + communicator.thread_level();
  std::strncpy(info.threads, threads.c_str(), sizeof info.threads - 1);
  *party = new ronde_meeting_party{std::move(opened)};
  return {};
}

ronde_transport_status join(const ronde_meeting_request* request, ronde_meeting_party** party,
                            ronde_meeting_info* info, ronde_transport_error* error) {
  return guarded(error, [&] { return answer_of(joined(*request, party, *info), error); });
}

void ranks_here(ronde_meeting_party* party, std::int32_t* ranks) {
  for (const int rank : party->communicator->ranks_on_this_host()) *ranks++ = rank;
}

ronde_transport_status allgather(ronde_meeting_party* party, const ronde_meeting_round* round,
                                 const void* mine, std::size_t length, ronde_meeting_take take,
                                 void* context, ronde_transport_error* error) {
  return guarded(error, [&] {
    MpiCommunicator& communicator = *party->communicator;
    const StartTrouble trouble{communicator.handle()->rank, round->trouble_rank, round->trouble};
    const auto all =
        communicator.allgather_bytes({static_cast<const std::byte*>(mine), length}, round->activity,
                                     trouble, machine_clock(), deadline_of(round->patience_ns));
    if (!all.ok()) return answer_of(all.status(), error);
    for (std::size_t rank = 0; rank < all->size(); ++rank) {
      take(context, base::narrow<std::int32_t>(rank), (*all)[rank].data(), (*all)[rank].size());
    }
    return RONDE_TRANSPORT_OK;
  });
}

void abandon_party(ronde_meeting_party* party) { party->communicator->abandon(); }

ronde_transport_status leave(ronde_meeting_party* party, ronde_transport_error* error) {
  return guarded(error, [&] { return answer_of(party->communicator->close(), error); });
}

void free_party(ronde_meeting_party* party) { delete party; }

// ---- an end ----

Result<std::unique_ptr<MpiEnd>> open(const ronde_transport_host& host, ronde_transport_info& info) {
  if (host.party == nullptr) {
    return Status::error(base::Code::kUnsupported,
                         "MPI carries bytes only between ranks that MPI has started: "
                         "start the program with mpirun, or use another transport");
  }
  MpiCommunicator& communicator = *host.party->communicator;
  info.fd = -1;
  info.writes_after_close = 1;
  info.largest_tag = communicator.handle()->largest_tag;
  info.largest_bytes = std::numeric_limits<int>::max();
  return std::make_unique<MpiEnd>(communicator.handle());
}

constexpr ronde_meeting kMeeting{.struct_size = sizeof(ronde_meeting),
                                 .join = join,
                                 .ranks_here = ranks_here,
                                 .allgather = allgather,
                                 .abandon = abandon_party,
                                 .leave = leave,
                                 .free = free_party};

// MPI has connected the ranks already. The party is what gives up: the ends that it was given to
// make no call of MPI afterwards.
constexpr ronde_transport kTable =
    table_of<MpiEnd, open>("mpi", kLibrary, static_cast<std::int32_t>(kMpiFamily), &kMeeting);

}  // namespace

}  // namespace ronde::collectives

extern "C" [[gnu::visibility("default")]] const ronde_transport* ronde_transport_entry() {
  return &ronde::collectives::kTable;
}
