// SPDX-License-Identifier: Apache-2.0
// The meeting of ranks that MPI does not introduce: rank 0 listens at a meeting point, every other
// rank comes with its greeting and is sent everybody's. The connections stay until the start is
// over, and rank 0 listens as long as an engine of it is open there (lobby.h). Over hosts the ranks
// need a secret; on one host they meet at a Unix socket of their user.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/wire/tcp_socket.h"
#include "collectives/transport/meeting.h"
#include "collectives/transport/roll.h"
#include "runtime/meet/messages.h"
#include "runtime/meet/secret.h"
#include "runtime/start/point.h"

namespace ronde::runtime {

struct MeetingPlan {
  std::int32_t rank = 0;
  std::int32_t size = 1;
  MeetingPoint point;
  std::string launcher;    // who gave rank and size, for people
  std::string job;         // which job this is; ranks of another one are strangers
  MeetingSecret secret;    // needed unless all ranks are on one host
  std::string interfaces;  // RONDE_INTERFACE: where rank 0 listens
  base::Keepalive keepalive;
  base::Log log;
};

// Returns when every rank has come, or the deadline has passed. Every rank gets the error of one:
// a rank that does not come (kDeadline, with the rank), one that dies (kPeerFailed), comes twice or
// was told another size (kInvalidArgument). Rank 0 fails where it cannot listen, within a
// second; a rank whose secret is not rank 0's fails at once. Everything else that keeps a rank from
// rank 0 (it is not there yet, its name is not known yet) is tried again until the deadline.
base::Result<std::unique_ptr<collectives::Meeting>> meet(const MeetingPlan& plan,
                                                         const base::Clock& clock,
                                                         base::Instant deadline);

// ---- what its ends share ----

// "localhost:29500 (torchrun or one like it)".
[[nodiscard]] std::string text_of(const MeetingPlan& plan);
// How long a rank that has so much time left waits before it is told what is missing: short enough
// that the answer arrives in time.
[[nodiscard]] base::Nanoseconds patience_of(base::Nanoseconds left);

// A rank's end of a meeting: who takes part, and the round that they are in. Thread safety: that of
// collectives::Meeting.
class MeetingEnd : public collectives::Meeting {
 public:
  using Parts = std::vector<std::vector<std::byte>>;  // the bytes of each rank, by rank

  explicit MeetingEnd(MeetingPlan plan);
  ~MeetingEnd() override = default;
  [[nodiscard]] int rank() const override { return plan_.rank; }
  [[nodiscard]] int size() const override { return plan_.size; }
  [[nodiscard]] std::vector<int> ranks_on_this_host() const override;
  [[nodiscard]] std::string text() const override { return text_of(plan_); }
  [[nodiscard]] bool ends_with_process() const override { return true; }
  void started() override { leave(); }
  void abandon() override { leave(); }
  base::Status close() override;

 protected:
  // Keeps nothing open; it may be called again.
  virtual void leave() = 0;

  // The ranks begin a round, in which they are doing this.
  void begin_round(const std::string& activity);
  void record(std::int32_t rank, base::Instant now);
  [[nodiscard]] const MeetingHello& own_hello() const { return hello_of(plan_.rank); }
  [[nodiscard]] const MeetingHello& hello_of(std::int32_t rank) const;
  // Whether a hello is one of this job (kInvalidArgument).
  [[nodiscard]] base::Status check(const MeetingHello& hello) const;
  // Takes everybody's hellos, and checks that each is that of its rank.
  base::Status take_hellos(const Parts& parts);

  // ---- rank 0's side of a round ----
  // Begins with its own part.
  void open_round(MeetingPart mine, base::Instant now);
  // `since`: when the rank began to wait.
  void take_part(std::int32_t rank, MeetingPart part, base::Instant since, base::Instant now);
  [[nodiscard]] bool has_part(std::int32_t rank) const;
  [[nodiscard]] bool complete() const;
  // When the most impatient rank wants an answer, and what it is told then: the trouble behind the
  // others', or who is missing.
  [[nodiscard]] base::Instant answer_by() const { return answer_by_; }
  [[nodiscard]] base::Status too_late() const;
  // By rank; empty of those that have not come.
  [[nodiscard]] Parts take_parts();

  MeetingPlan plan_;
  std::vector<MeetingHello> hellos_;  // by rank; empty ones of those that have not come yet
  collectives::Roll roll_;
  std::uint32_t round_ = 0;
  std::string activity_;

 private:
  std::vector<std::optional<MeetingPart>> parts_;  // of this round, by rank
  base::Instant answer_by_{};
};

// "rank 3 (host node2, pid 4711)".
[[nodiscard]] std::string text_of_rank(const MeetingHello& hello);

// The two ends; meet() chooses.
base::Result<std::unique_ptr<collectives::Meeting>> meet_as_rank_0(const MeetingPlan& plan,
                                                                   const base::Clock& clock,
                                                                   base::Instant deadline);
base::Result<std::unique_ptr<collectives::Meeting>> meet_rank_0(const MeetingPlan& plan,
                                                                const base::Clock& clock,
                                                                base::Instant deadline);
// What another rank 0 that listens at the point of the plan answers to this one within a second, if
// it does.
std::optional<base::Status> ask_rank_0(const MeetingPlan& plan, const base::Clock& clock);

}  // namespace ronde::runtime
