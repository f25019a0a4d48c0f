// SPDX-License-Identifier: Apache-2.0
// The real environment of the role protocol: std::atomic, a mutex, futexes, an epoll and a thread.
#include "runtime/drive/agent_runner.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <ctime>
#include <span>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"
#include "base/numbers.h"
#include "base/process/file_descriptor.h"
#include "base/process/own_thread.h"
#include "runtime/drive/agent_role.h"
#include "runtime/drive/idle.h"

namespace ronde::runtime {

namespace {

static_assert(static_cast<int>(Completion::kPending) == RoleWords::kPending &&
              static_cast<int>(Completion::kAwaited) == RoleWords::kAwaited &&
              static_cast<int>(Completion::kDone) == RoleWords::kDone);

// How soon the next do_work() must follow while nothing will ring (an MPI request is outstanding).
constexpr base::Nanoseconds kPollInterval = std::chrono::milliseconds(1);

// The time between two deferred rings for which short sleeps pay.
constexpr base::Nanoseconds kOften = AgentRunner::kMostOwed / 4;
// How long they are counted, at least.
constexpr base::Nanoseconds kCountingTime = AgentRunner::kMostOwed / 2;

// Sleeps while `word` is `value`, at most `span`; may return early. A null span means no limit.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, const timespec* span) {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, span, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

// Waits as epoll_wait does, to the nanosecond where the kernel can (Linux 5.11), and otherwise to
// the millisecond; rounded up, because waking too early would only cost one more round.
int wait_for_events(int epoll, std::span<epoll_event> events, base::Instant until,
                    base::Instant now) {
  const int most = base::narrow<int>(events.size());
  const std::int64_t rest = until <= now ? 0 : (until - now).count();
  if (until == base::kNever) return ::epoll_wait(epoll, events.data(), most, -1);
  const timespec span{rest / 1'000'000'000, rest % 1'000'000'000};
  const int count = ::epoll_pwait2(epoll, events.data(), most, &span, nullptr);
  if (count >= 0 || errno != ENOSYS) return count;
  const auto milliseconds = std::min<std::int64_t>(base::ceil_div(rest, 1'000'000), INT_MAX);
  return ::epoll_wait(epoll, events.data(), most, static_cast<int>(milliseconds));
}

// The real environment of AgentRole.
//
// Thread safety: as AgentRole asks of each function; the list is guarded by the mutex.
class Environment : private RoleWords {
 public:
  using Time = base::Instant;
  using Completion = runtime::Completion;
  using Lock = base::MutexLock;
  static constexpr Time kNever = base::kNever;

  struct Words {
    std::atomic<std::uint32_t> role{kFree};
    std::atomic<std::uint64_t> posts{0};
    std::atomic<std::uint64_t> seen{0};
    std::atomic<base::Instant> sleep_until{base::kNever};
    std::atomic<std::uint32_t> owed{0};
  };

  // One thread inside wait(); lies on its stack. The mutex guards its place in the list.
  struct Node {
    Node(Environment&, Completion& completion) : target(&completion) {}
    [[nodiscard]] bool waits_for(const Completion& completion) const {
      return target == &completion;
    }
    std::atomic<std::uint32_t> state{kRunning};
    const Completion* target;
    Node* previous = nullptr;
    Node* next = nullptr;
  };

  // Counts the bystanders, so that the background thread leaves the role to a thread that waits.
  class Watch {
   public:
    Watch(Environment& env, Watcher who) : env_(env), who_(who), idle_(env.idle_of(who)) {
      if (who_ == Watcher::kBystander) env_.bystanders_.fetch_add(1, std::memory_order_relaxed);
    }
    ~Watch() {
      if (who_ == Watcher::kBystander) env_.bystanders_.fetch_sub(1, std::memory_order_relaxed);
    }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    bool again(bool busy) {
      const bool wanted =
          who_ == Watcher::kBackground && env_.bystanders_.load(std::memory_order_relaxed) != 0;
      if (wanted || (who_ != Watcher::kBystander && env_.agent_.awaits_descriptor())) return false;
      return idle_.again(busy || who_ != Watcher::kBackground);
    }

   private:
    Environment& env_;
    Watcher who_;
    Idle idle_;
  };

  Environment(Agent& agent, collectives::Doorbell bell, const base::Clock& clock,
              AgentRunner::Options options, SleepWords::Epoll epoll)
      : agent_(agent),
        bell_(bell),
        clock_(clock),
        options_(std::move(options)),
        sleep_state_(std::move(epoll)) {}

  Words& words() { return words_; }
  std::atomic<std::uint32_t>& state(Node& node) { return node.state; }
  std::atomic<std::uint32_t>& word(Completion& completion) { return completion.word(); }

  [[nodiscard]] std::uint64_t rings() const { return bell_.rings(); }
  [[nodiscard]] bool armed() const { return bell_.armed(); }
  void arm() { bell_.arm(); }
  void disarm() { bell_.disarm(); }
  void wake_background() { bell_.wake(); }

  [[nodiscard]] Agent& agent() const { return agent_; }
  SleepState& sleep_state() { return sleep_state_; }
  bool listens() { return agent_.busy() || agent_.has_descriptors(); }
  Time due() {
    const base::Instant timer = agent_.next_deadline();
    return agent_.needs_polling() ? std::min(timer, clock_.after(kPollInterval)) : timer;
  }

  // Short sleeps cost a wake-up each, so there must be a few deferred rings to pay for each. While
  // there are none yet, this thread is woken by every submission, and counts them just as well.
  Time rest() {
    const base::Instant now = clock_.now();
    if (const base::Nanoseconds gone = now - counted_at_; gone >= kCountingTime) {
      const std::uint64_t count = deferred.load(std::memory_order_relaxed);
      const auto news = static_cast<std::int64_t>(count - counted_);
      often_ = news > 0 && gone / news <= kOften;
      counted_ = count;
      counted_at_ = now;
    }
    return often_ ? now + AgentRunner::kMostOwed : kNever;
  }

  [[nodiscard]] bool expired(Time deadline) const {
    if (deadline == kNever || clock_.about_now() < deadline - base::Clock::kCoarse) return false;
    return clock_.now() >= deadline;
  }
  void sleep(Node& node, Time deadline) {
    sleeps.fetch_add(1, std::memory_order_relaxed);
    while (node.state.load(std::memory_order_seq_cst) == kParked) {
      if (deadline == kNever) {
        futex_wait(node.state, kParked, nullptr);
        continue;
      }
      const base::Nanoseconds rest = deadline - clock_.now();
      if (rest.count() <= 0) return;
      const timespec span{rest.count() / 1'000'000'000, rest.count() % 1'000'000'000};
      futex_wait(node.state, kParked, &span);
    }
  }
  void wake(Node& node) {
    if (node.state.load(std::memory_order_relaxed) == kGranted) {
      hand_overs.fetch_add(1, std::memory_order_relaxed);
    }
    futex_wake(node.state);
  }

  void enlist(Node& node) RONDE_REQUIRES(mutex) {
    node.previous = last_;
    node.next = nullptr;
    (last_ == nullptr ? first_ : last_->next) = &node;
    last_ = &node;
  }
  void remove(Node& node) RONDE_REQUIRES(mutex) {
    (node.previous == nullptr ? first_ : node.previous->next) = node.next;
    (node.next == nullptr ? last_ : node.next->previous) = node.previous;
  }
  Node* parked_after(Node* previous) RONDE_REQUIRES(mutex) {
    Node* node = previous == nullptr ? first_ : previous->next;
    while (node != nullptr && node->state.load(std::memory_order_relaxed) != kParked) {
      node = node->next;
    }
    return node;
  }

  void checkpoint(Place, int) {}

  base::Mutex mutex;
  std::atomic<std::uint64_t> sleeps{0};
  std::atomic<std::uint64_t> hand_overs{0};
  std::atomic<std::uint64_t> deferred{0};  // calls of defer()

 private:
  [[nodiscard]] Idle idle_of(Watcher who) const {
    switch (who) {
      case Watcher::kDriver:
        return {options_.spin, options_.waiter_yield, options_.oversubscribed};
      case Watcher::kBystander:
        // The thread that drives may need this very core.
        return {options_.spin, options_.waiter_yield, true};
      case Watcher::kBackground:
        break;
    }
    return {options_.background_watch, options_.yield, true};
  }

  Agent& agent_;
  const collectives::Doorbell bell_;
  const base::Clock& clock_;
  const AgentRunner::Options options_;
  Words words_;
  std::atomic<int> bystanders_{0};
  SleepState sleep_state_;
  // Only the background thread uses these: the rings that were deferred when it last counted them.
  std::uint64_t counted_ = 0;
  base::Instant counted_at_{};
  bool often_ = false;
  Node* first_ RONDE_GUARDED_BY(mutex) = nullptr;
  Node* last_ RONDE_GUARDED_BY(mutex) = nullptr;
};

}  // namespace

struct AgentRunner::State {
  State(Agent& its_agent, collectives::Doorbell its_bell, const base::Clock& its_clock,
        const Options& options)
      : agent(its_agent),
        bell(its_bell),
        clock(its_clock),
        thread_name(options.thread_name),
        caller_driven(options.caller_driven),
        environment(its_agent, its_bell, its_clock, options,
                    [this](int fd, bool watched) {
                      return add_to_epoll(fd, watched ? EPOLLIN | EPOLLONESHOT : EPOLLONESHOT);
                    }),
        epoll(::epoll_create1(EPOLL_CLOEXEC)),
        epoll_error(epoll.get() < 0 ? errno : 0) {}

  void run();
  void sleep(base::Instant until);
  bool wait_alone(Completion& completion, base::Instant deadline);
  base::Status add_to_epoll(int fd, std::uint32_t events);

  Agent& agent;
  const collectives::Doorbell bell;
  const base::Clock& clock;
  const std::string thread_name;
  const bool caller_driven;
  Environment environment;
  AgentRole<Environment> role{environment};
  base::FileDescriptor epoll;
  const int epoll_error;  // why there is none
  std::atomic<bool> stopping{false};
  std::atomic<std::uint64_t> wakeups{0};
  std::thread thread;
};

void AgentRunner::State::run() {
  ::pthread_setname_np(::pthread_self(), thread_name.substr(0, 15).c_str());
  while (!stopping.load(std::memory_order_acquire)) sleep(role.background_turn());
}

void AgentRunner::State::sleep(base::Instant until) {
  std::array<epoll_event, 16> events{};
  const int count = wait_for_events(epoll.get(), events, until, clock.now());
  wakeups.fetch_add(1, std::memory_order_relaxed);
  // An error is EINTR, as when a debugger attaches; the loop then only goes round once more.
  for (int i = 0; i < count; ++i) {
    const int fd = events.at(static_cast<std::size_t>(i)).data.fd;
    if (fd == bell.event_fd()) {
      bell.drain();
      continue;
    }
    if (!environment.sleep_state().on_event(fd)) agent.on_event(fd);
    // The thread that holds the role must look again, because this one may not get it.
    role.post();
  }
}

// Used without a background thread: no other thread polls the descriptors or wakes a sleeping
// driver, so the driver polls them itself, as often as it polls MPI.
bool AgentRunner::State::wait_alone(Completion& completion, base::Instant deadline) {
  while (true) {
    const base::Instant now = clock.now();
    if (role.wait(completion, std::min(deadline, now + kPollInterval))) return true;
    sleep(now);
    if (now >= deadline) return completion.done();
  }
}

base::Status AgentRunner::State::add_to_epoll(int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_MOD, fd, &event) == 0) return {};
  if (errno == ENOENT && ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return base::Status::system("could not watch descriptor " + std::to_string(fd), errno);
}

AgentRunner::AgentRunner(Agent& agent, collectives::Doorbell bell, const base::Clock& clock,
                         const Options& options)
    : state_(std::make_unique<State>(agent, bell, clock, options)) {}

AgentRunner::~AgentRunner() { stop(); }

base::Status AgentRunner::start() {
  base::check(!state_->thread.joinable(), "an agent runner is started once");
  if (state_->epoll_error != 0) return base::Status::system("epoll_create1", state_->epoll_error);
  RONDE_RETURN_IF_ERROR(state_->add_to_epoll(state_->bell.event_fd(), EPOLLIN));
  if (state_->caller_driven) return {};
  auto thread =
      base::start_thread("the background thread", [state = state_.get()] { state->run(); });
  RONDE_RETURN_IF_ERROR(thread.status());
  state_->thread = std::move(*thread);
  return {};
}

void AgentRunner::stop() {
  if (!state_->thread.joinable()) return;
  state_->stopping.store(true, std::memory_order_release);
  state_->bell.wake();
  state_->thread.join();
}

base::Status AgentRunner::watch(int fd) { return state_->add_to_epoll(fd, EPOLLIN | EPOLLONESHOT); }

void AgentRunner::will_wait() { state_->role.disarm(); }

void AgentRunner::defer() {
  state_->environment.deferred.fetch_add(1, std::memory_order_relaxed);
  state_->role.defer();
}

void AgentRunner::owe(base::Instant submitted) { state_->role.owe(submitted + kMostOwed); }

void AgentRunner::pay() { state_->role.pay(); }

void AgentRunner::notify(bool wake_background) {
  if (wake_background) {
    state_->bell.ring();
    state_->role.pay();
  } else {
    state_->role.post();
  }
}

void AgentRunner::help() { state_->role.help(); }

bool AgentRunner::wait(Completion& completion, base::Instant deadline) {
  if (state_->caller_driven) return state_->wait_alone(completion, deadline);
  return state_->role.wait(completion, deadline);
}

bool AgentRunner::poll(Completion& completion) {
  if (!state_->caller_driven || completion.done()) return completion.done();
  state_->sleep(state_->clock.now());  // for no time: what the descriptors have
  return state_->role.poll(completion);
}

void AgentRunner::complete(Completion& completion) { state_->role.complete(completion); }

AgentRunner::Counters AgentRunner::counters() const {
  return {state_->wakeups.load(std::memory_order_relaxed),
          state_->environment.sleeps.load(std::memory_order_relaxed),
          state_->environment.hand_overs.load(std::memory_order_relaxed)};
}

}  // namespace ronde::runtime
