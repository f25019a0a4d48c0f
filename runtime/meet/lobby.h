// SPDX-License-Identifier: Apache-2.0
// Rank 0's door at a meeting point. The first engine that meets there opens it, further ones of the
// process meet at the same, and it is closed with the last of them: so whoever comes to a job that
// is complete, and a second rank 0, are told so at once.
//
//   who comes                         while an engine meets     before and after
//   another job's rank, a rank 0      told, and the job goes on
//   a rank of this job                goes to the meeting       waits for the next meeting
//   another process in its place      told, once all have come  told
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/process/file_descriptor.h"
#include "base/status.h"
#include "base/wire/door.h"
#include "base/wire/frame_socket.h"
#include "runtime/meet/meet.h"
#include "runtime/meet/place.h"

namespace ronde::runtime {

// A rank that has come, and is to be answered.
struct Arrival {
  MeetingHello hello;
  base::FrameSocket socket;
  base::Instant since{};
};

// What two jobs that meet at one point are to do.
inline constexpr const char* kApart =
    "give each job a meeting point of its own (RONDE_MEET, MASTER_PORT, or TF_CONFIG's first "
    "worker)";

// Thread safety: any thread; no function blocks.
class Lobby {
 public:
  // That of this process at the point of the plan, which is rank 0's. Fails where it cannot listen.
  // It is open until as many leave() as have come here.
  static base::Result<std::shared_ptr<Lobby>> enter(const MeetingPlan& plan,
                                                    const MeetingHello& own);
  void leave(const base::Clock& clock);

  // Readable once somebody is at the door; valid as long as this object.
  [[nodiscard]] int fd() const { return epoll_.get(); }
  // Answers those who have come, as far as it can without an engine that meets.
  base::Status answer(const base::Clock& clock);
  // The same beside a job that goes on: logs each reason at its first time. False: nobody is to be
  // answered any more.
  bool attend(const base::Clock& clock);
  // For the engine that meets; there is one at a time (opening_engine.h).
  [[nodiscard]] std::vector<Arrival> take();
  // All have come: from now on ranks of this job are these processes, and no others.
  void complete(std::span<const MeetingHello> ranks);

  // Logs who was turned away since the last call.
  void report();
  // For an error that says who did not come: Door::turned_away().
  [[nodiscard]] std::string turned_away();

 private:
  Lobby(const MeetingPlan& plan, MeetingHello own) : plan_(plan), own_(std::move(own)) {}
  base::Status open() RONDE_REQUIRES(mutex_);
  // Has the epoll watch everybody who is here.
  base::Status watch(std::span<const pollfd> entries) RONDE_REQUIRES(mutex_);
  void receive(base::Guest guest, base::Instant now) RONDE_REQUIRES(mutex_);
  void tell(Arrival arrival, const std::string& text, const std::string& reason)
      RONDE_REQUIRES(mutex_);
  bool say_good_bye(const base::Clock& clock);
  void drop_those_who_left() RONDE_REQUIRES(mutex_);
  void look_again_in(std::int64_t seconds) const;

  const MeetingPlan plan_;
  const MeetingHello own_;
  base::FileDescriptor epoll_;
  base::FileDescriptor timer_;  // when silence at the door has lasted too long
  base::Mutex mutex_;
  int engines_ RONDE_GUARDED_BY(mutex_) = 1;  // that have not left
  std::optional<MeetingListener> listener_ RONDE_GUARDED_BY(mutex_);
  std::optional<base::Door> door_ RONDE_GUARDED_BY(mutex_);
  std::vector<MeetingHello> ranks_ RONDE_GUARDED_BY(mutex_);  // by rank; empty until all have come
  std::vector<Arrival> waiting_ RONDE_GUARDED_BY(mutex_);
  bool troubled_ RONDE_GUARDED_BY(mutex_) = false;  // a warning said so
};

}  // namespace ronde::runtime
