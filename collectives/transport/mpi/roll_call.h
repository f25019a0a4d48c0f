// SPDX-License-Identifier: Apache-2.0
// The roll call of a start. A collective of MPI that hangs does not tell which rank it waits for.
// So a rank that has waited for a while calls rank 0, again and again, and at the deadline rank 0
// answers all ranks with the names of those that have not called. Until the ranks have a
// communicator of their own they call in the program's, with the largest tag, and not before half
// of the time is over: a start that goes well sends nothing there.
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

// It owns no communicator. Thread safety: used by one thread at a time; makes its MPI calls under
// the session's lock.
class MpiRollCall {
 public:
  // At first the ranks call in the program's communicator. `deadline` is that of the whole start.
  MpiRollCall(MPI_Comm communicator, const base::Clock& clock, base::Instant deadline)
      RONDE_REQUIRES(mpi_lock());
  // Calls in this communicator from now on, which has the same ranks. Returns how many calls this
  // rank has sent in the first one.
  std::int32_t move_to(MPI_Comm communicator);
  void set_hosts(const std::vector<std::string>& hosts) { roll_.set_hosts(hosts); }

  // Waits for a collective that all ranks take part in, in the same order. The error at the
  // deadline names the ranks that do not, and is the same on all ranks that rank 0 can reach; or it
  // is the trouble that a rank reports, `mine` or another's. After an error the request stays with
  // MPI, and the caller must keep its memory until the process ends.
  base::Status wait(MPI_Request* request, const std::string& activity, const StartTrouble& mine,
                    const base::Clock& clock, base::Instant deadline);

  // Receives, on rank 0 and for at most two beats, the calls that are left in the first
  // communicator, since it is the program's; `calls_sent` counts the calls of each rank. After that
  // no rank uses it, and the program may free it.
  void drain_first_communicator(const std::vector<std::int32_t>& calls_sent,
                                const base::Clock& clock, base::Instant deadline);

 private:
  // The message of a call or of an answer, small enough that MPI sends it without announcing it.
  struct Call {
    std::uint64_t magic;
    std::int32_t round;
    std::int32_t urgent;   // the sender's deadline is near
    std::int32_t culprit;  // the rank at fault, in a trouble or in an answer
    std::int32_t host_size;
    std::int32_t code;  // an answer's base::Code
    char host[72];      // text, ended by 0
    char text[920];     // the trouble or the answer, ended by 0
  };
  struct Outgoing {
    Call call;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  // The state of one wait().
  struct Wait {
    const StartTrouble& mine;
    base::Instant began;
    base::Instant time_up;  // from here on rank 0 answers, however the calls stand
    base::Instant next_call;
  };

  // Each returns a status when the wait has failed.
  std::optional<base::Status> step_of_rank_0(const Wait& wait, const base::Clock& clock);
  std::optional<base::Status> step_of_others(Wait& wait, const base::Clock& clock);
  [[nodiscard]] base::Status verdict(base::Instant now) const;
  void answer_all(const base::Status& verdict, const base::Clock& clock);
  void send_call(std::int32_t to, const Call& call, MPI_Comm communicator);
  std::optional<Call> next_from(std::int32_t source, MPI_Comm communicator);
  bool receive_call(base::Instant now);
  std::optional<Call> answer_of_rank_0();
  [[nodiscard]] Call call_of(const std::string& text, std::int32_t culprit, bool urgent) const;

  MPI_Comm first_;
  MPI_Comm communicator_;
  int rank_ = 0;
  int tag_ = 0;
  std::string host_;
  std::int32_t host_size_ = 0;
  base::Nanoseconds beat_;
  base::Instant first_calls_from_;  // no rank calls in the first communicator before
  Roll roll_;
  std::vector<StartTrouble> troubles_;  // of this round, by rank
  bool urgent_ = false;                 // a rank whose deadline is near has called
  std::int32_t source_ = -1;            // the sender of the message received last
  std::vector<MPI_Comm> called_in_;     // the communicator of a rank's last call, by rank
  std::int32_t calls_sent_ = 0;
  std::vector<std::int32_t> received_in_first_;  // calls received in the first one, by rank
};

}  // namespace ronde::collectives
