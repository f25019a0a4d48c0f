// SPDX-License-Identifier: Apache-2.0
// The lobbies of this process, and what each answers.
#include "runtime/meet/lobby.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <new>
#include <utility>

#include "base/numbers.h"

namespace ronde::runtime {

using base::Clock;
using base::Code;
using base::MutexLock;
using base::Result;
using base::Status;

namespace {

struct Lobbies {
  base::Mutex lock;
  std::map<std::string, std::weak_ptr<Lobby>> places RONDE_GUARDED_BY(lock);
};

// Never destroyed: engines may end after the program's last statement.
Lobbies& lobbies() {
  static auto* const kLobbies = new Lobbies;
  return *kLobbies;
}

std::string text_of_job(const std::string& job) {
  return job.empty() ? "a job without a name" : "job '" + job + "'";
}

// How long the door is left alone where a descriptor could not be had.
constexpr std::int64_t kRestSeconds = 1;

}  // namespace

Result<std::shared_ptr<Lobby>> Lobby::enter(const MeetingPlan& plan, const MeetingHello& own) {
  // A forked child has no part in what its parent has opened.
  const std::string place = std::to_string(::getpid()) + " " + text_of(plan.point);
  const MutexLock all(lobbies().lock);
  std::erase_if(lobbies().places, [](const auto& one) { return one.second.expired(); });
  std::weak_ptr<Lobby>& known = lobbies().places[place];
  if (auto lobby = known.lock()) {
    const MutexLock lock(lobby->mutex_);
    if (lobby->door_ && (own.job != lobby->own_.job || own.size != lobby->own_.size)) {
      return Status::error(Code::kInvalidArgument,
                           "this process has an engine of " + text_of_job(lobby->own_.job) +
                               " with " + std::to_string(lobby->own_.size) + " ranks open at " +
                               text_of(plan.point) + ", and opens one of " + text_of_job(own.job) +
                               " with " + std::to_string(own.size) +
                               ": close it first, or give them a meeting point each")
          .with_rank(0);
    }
    lobby->engines_ += lobby->door_ ? 1 : 0;
    if (lobby->door_) return lobby;
  }
  // One that is closed was that of an engine which may have had another size, job or secret.
  auto lobby = std::shared_ptr<Lobby>(new Lobby(plan, own));
  const MutexLock lock(lobby->mutex_);
  RONDE_RETURN_IF_ERROR(lobby->open());
  known = lobby;
  return lobby;
}

Status Lobby::open() {
  epoll_ = base::FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
  timer_ = base::FileDescriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!epoll_.valid() || !timer_.valid()) {
    return Status::system("could not watch the meeting point " + text_of(plan_.point), errno);
  }
  RONDE_ASSIGN_OR_RETURN(listener_,
                         MeetingListener::open(plan_.point, plan_.interfaces, plan_.keepalive));
  door_.emplace(door_of(*listener_, plan_.point, plan_.secret, plan_.size));
  std::vector<pollfd> entries{{timer_.get(), POLLIN, 0}};
  door_->watch(entries);
  return watch(entries);
}

void Lobby::leave(const Clock& clock) {
  static_cast<void>(say_good_bye(clock));
  const MutexLock lock(mutex_);
  if (--engines_ > 0) return;
  waiting_.clear();
  ranks_.clear();
  door_.reset();
  listener_.reset();
}

// Those who wait for this process's next engine come again; without memory for it they hear that
// the connection has ended.
bool Lobby::say_good_bye(const Clock& clock) {
  try {
    answer(clock).ignore();
    report();
    const auto again = encode(MeetingVerdict());
    const MutexLock lock(mutex_);
    if (engines_ > 1) return true;
    for (Arrival& one : waiting_) one.socket.send(again).ignore();
    door_->send_to_proven(again);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// What is closed leaves the epoll by itself.
Status Lobby::watch(std::span<const pollfd> entries) {
  for (const pollfd& entry : entries) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = entry.fd;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, entry.fd, &event) == 0 || errno == EEXIST)
      continue;
    return Status::system("could not watch who comes to " + text_of(plan_.point), errno);
  }
  return {};
}

Status Lobby::answer(const Clock& clock) {
  const MutexLock lock(mutex_);
  if (!door_) return {};
  drop_those_who_left();
  std::vector<pollfd> entries;
  door_->watch(entries);
  if (::poll(entries.data(), entries.size(), 0) < 0) return {};
  std::vector<base::Guest> guests;
  Status stepped = door_->step(entries, clock.now(), guests);
  for (base::Guest& guest : guests) receive(std::move(guest), clock.now());
  entries.clear();
  door_->watch(entries);
  const bool strangers = entries.size() > listener_->sockets().size();
  for (const Arrival& one : waiting_) entries.push_back({one.socket.fd(), POLLIN, 0});
  if (stepped.ok()) {
    look_again_in(strangers ? base::Door::kTime.count() : 0);
    return watch(entries);
  }
  // Without descriptors the listeners stay readable: they are left alone for a while.
  for (const base::FileDescriptor& one : listener_->sockets()) {
    (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, one.get(), nullptr);
  }
  look_again_in(kRestSeconds);
  return stepped;
}

// 0: not at all.
void Lobby::look_again_in(std::int64_t seconds) const {
  const itimerspec silence{{}, {seconds, 0}};
  (void)::timerfd_settime(timer_.get(), 0, &silence, nullptr);
}

bool Lobby::attend(const Clock& clock) {
  try {
    const Status answered = answer(clock);
    const MutexLock lock(mutex_);
    if (!door_) return false;
    door_->report(plan_.log, base::Door::Report::kNewReasons);
    if (!answered.ok() && !std::exchange(troubled_, true)) {
      plan_.log.warning("whoever comes to " + text_of(plan_.point) +
                        " is not answered for now: " + answered.message());
    }
    return true;
  } catch (const std::bad_alloc&) {
    return false;  // the job may do without its door
  }
}

// A rank sends nothing before it is answered, so one that can be read has ended, or is none.
void Lobby::drop_those_who_left() {
  std::erase_if(waiting_, [](Arrival& one) {
    const auto frame = one.socket.receive();
    return !frame.ok() || frame->has_value() || one.socket.closed();
  });
}

void Lobby::receive(base::Guest guest, base::Instant now) {
  auto message = decode_meeting_message(guest.hello);
  auto* const hello = message.ok() ? std::get_if<MeetingHello>(&*message) : nullptr;
  if (hello == nullptr || hello->version != kMeetingVersion) {
    const Status why = Status::error(
        Code::kInvalidArgument, "another version of Ronde is rank 0 at " + text_of(plan_.point) +
                                    ": use the same libronde.so on every rank");
    (void)base::send_hello(guest.socket, encode(MeetingVerdict::of(why)));
    return door_->count(base::Door::kOtherVersion, guest.from);
  }
  Arrival arrival{std::move(*hello),
                  base::FrameSocket(base::LinkEnd{-1, guest.from, std::move(guest.socket)}), now};
  const MeetingHello& who = arrival.hello;
  const std::string came = text_of_rank(who);
  const std::string here = text_of_rank(own_) + " of " + text_of_job(own_.job);
  const std::string at = " at " + text_of(plan_.point);
  if (who.job != own_.job) {
    return tell(std::move(arrival),
                came + " is of " + text_of_job(who.job) + ", and came to " + here + at + ": " +
                    kApart + ", and all ranks of one the same RONDE_JOB",
                "it was a rank of another job (RONDE_JOB)");
  }
  if (who.rank == 0) {
    return tell(std::move(arrival),
                came + " is a second rank 0" + at + ", where " + here + " is: " + kApart +
                    ", and each process a rank of its own",
                "it was a second rank 0");
  }
  const auto rank = base::narrow<std::size_t>(std::max(who.rank, 0));
  const MeetingHello* const known = rank < ranks_.size() ? &ranks_[rank] : nullptr;
  const bool member = known != nullptr && known->pid == who.pid &&
                      known->host_identity == who.host_identity && who.rank > 0;
  if (ranks_.empty() || member) return waiting_.push_back(std::move(arrival));
  tell(std::move(arrival),
       came + " came to a job that is complete" + at + ": " + here + " has all " +
           std::to_string(ranks_.size()) + " ranks" +
           (known != nullptr ? ", among them " + text_of_rank(*known) : "") + ": " + kApart +
           ", or wait until that one has ended (that a rank on a host that is lost has died shows "
           "after RONDE_LINK_TIMEOUT_SECONDS)",
       "the job is complete");
}

void Lobby::tell(Arrival arrival, const std::string& text, const std::string& reason) {
  const Status why = Status::error(Code::kInvalidArgument, text);
  arrival.socket.send(encode(MeetingVerdict::of(why))).ignore();
  door_->count(reason, text_of_rank(arrival.hello));
}

std::vector<Arrival> Lobby::take() {
  const MutexLock lock(mutex_);
  for (const Arrival& one : waiting_) {
    (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, one.socket.fd(), nullptr);
  }
  return std::exchange(waiting_, {});
}

void Lobby::complete(std::span<const MeetingHello> ranks) {
  const MutexLock lock(mutex_);
  ranks_.assign(ranks.begin(), ranks.end());
}

void Lobby::report() {
  const MutexLock lock(mutex_);
  if (door_) door_->report(plan_.log);
}

std::string Lobby::turned_away() {
  const MutexLock lock(mutex_);
  return door_ ? door_->turned_away() : "";
}

}  // namespace ronde::runtime
