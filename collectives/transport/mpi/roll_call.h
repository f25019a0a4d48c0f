// SPDX-License-Identifier: Apache-2.0
// The waits of a start. A collective of MPI that does not end does not tell whom it waits for; so a
// rank that has waited for a while says to rank 0 that it is there, again and again, and when the
// time is up rank 0 tells everybody who was not. Until the ranks have a communicator of their own
// they speak in the program's, with the largest tag, and not before half of the time is over: a
// start that goes well leaves it alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/transport/mpi/handle.h"
#include "collectives/transport/roll.h"

namespace ronde::collectives {

// Thread safety: used by one thread at a time; makes its MPI calls under the session's lock.
class MpiRollCall {
 public:
  // At first the ranks know each other by the program's communicator. `deadline`: of the start.
  MpiRollCall(MPI_Comm communicator, const base::Clock& clock, base::Instant deadline)
      RONDE_REQUIRES(mpi_lock());
  // From now on they speak in this one, which has the same ranks. Returns how often this rank has
  // spoken in the first one.
  std::int32_t move_to(MPI_Comm communicator);
  void know_hosts(const std::vector<std::string>& hosts) { roll_.know_hosts(hosts); }

  // Waits for a collective that all ranks take part in, in the same order. An error at the deadline
  // names those who do not, and is the same on all ranks that rank 0 can reach; or it is the
  // trouble that a rank is in, `mine` or another's. The request stays with MPI after an error: the
  // caller keeps its memory for ever.
  base::Status wait(MPI_Request* request, const std::string& doing, const StartTrouble& mine,
                    const base::Clock& clock, base::Instant deadline);

  // On rank 0: takes what the ranks have said before they moved and nobody has heard, by rank: the
  // first communicator is the program's. For two beats at most. Then every rank forgets it: all
  // have moved, and the program may free it.
  void hear_out(const std::vector<std::int32_t>& spoken, const base::Clock& clock,
                base::Instant deadline);

 private:
  // What is sent. Small enough that MPI sends it without asking.
  struct Call {
    std::uint64_t magic;
    std::int32_t round;
    std::int32_t urgent;   // the sender has no time left
    std::int32_t culprit;  // of the trouble, or of the answer
    std::int32_t host_size;
    std::int32_t code;  // of an answer
    char host[72];      // text, ended by 0
    char text[920];
  };
  struct Letter {
    Call call;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  // What a wait knows.
  struct Wait {
    const StartTrouble& mine;
    base::Instant began;
    base::Instant time_up;  // from here on somebody has to say how it ends
    base::Instant next_call;
  };

  std::optional<base::Status> lead(const Wait& wait, const base::Clock& clock);
  std::optional<base::Status> follow(Wait& wait, const base::Clock& clock);
  [[nodiscard]] base::Status verdict(base::Instant now) const;
  void answer_all(const base::Status& verdict, const base::Clock& clock);
  void say(std::int32_t to, const Call& call, MPI_Comm communicator);
  std::optional<Call> next_from(std::int32_t source, MPI_Comm communicator);
  bool hear_next(base::Instant now);
  std::optional<Call> answer_of_rank_0();
  [[nodiscard]] Call call_of(const std::string& text, std::int32_t culprit, bool urgent) const;

  MPI_Comm first_;
  MPI_Comm communicator_;
  int rank_ = 0;
  int tag_ = 0;
  std::string host_;
  std::int32_t host_size_ = 0;
  base::Nanoseconds beat_;
  base::Instant first_calls_from_;  // in the first communicator
  Roll roll_;
  std::vector<StartTrouble> troubles_;  // of this round, by rank
  bool hurried_ = false;                // somebody has no time left
  std::int32_t source_ = -1;            // of the call heard last
  std::vector<MPI_Comm> heard_in_;      // where the last call of a rank came, by rank
  std::int32_t spoken_ = 0;
  std::vector<std::int32_t> heard_;  // calls in the first communicator, by rank
};

}  // namespace ronde::collectives
