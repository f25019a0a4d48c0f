// SPDX-License-Identifier: Apache-2.0
// Handlers that only set flags, which the training loop reads between steps.
#include "bindings/trainer/keep/stop_signals.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <mutex>

namespace ronde::trainer {

namespace {

constexpr std::array kSignals{SIGTERM, SIGUSR2, SIGUSR1};

// A signal to a process group may arrive twice: directly, and forwarded by the launcher.
constexpr std::int64_t kSameRequestNs = 1'000'000'000;

// A signal handler takes no argument of ours, so its flags are static.
struct Notes {
  std::atomic<pid_t> process{0};               // that installed the handlers
  std::atomic<std::int64_t> first_stop_ns{0};  // 0: no stop was requested
  std::atomic<unsigned> saves{0};
};
static_assert(std::atomic<std::int64_t>::is_always_lock_free &&
                  std::atomic<unsigned>::is_always_lock_free,
              "a handler may not wait for a lock");

Notes& notes() noexcept {
  static constinit Notes all;
  return all;
}

std::int64_t now_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// The default action of the signal.
void do_default(int number) noexcept {
  static_cast<void>(std::signal(number, SIG_DFL));
  static_cast<void>(std::raise(number));
}

extern "C" void ronde_trainer_note_signal(int number) {
  if (getpid() != notes().process.load(std::memory_order_relaxed)) {
    do_default(number);
  } else if (number == SIGUSR1) {
    notes().saves.fetch_add(1, std::memory_order_relaxed);
  } else {
    const std::int64_t now = now_ns();
    std::int64_t first = 0;
    if (notes().first_stop_ns.compare_exchange_strong(first, now)) return;
    // A second SIGTERM means: do not wait.
    if (number == SIGTERM && now - first > kSameRequestNs) do_default(number);
  }
}

// The handlers are the process's: the first object installs them, the last one removes them.
class Handlers {
 public:
  void take() {
    const std::lock_guard lock(mutex_);
    if (users_++ != 0) return;
    notes().process = getpid();
    notes().first_stop_ns = 0;
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      struct sigaction action {};
      action.sa_handler = ronde_trainer_note_signal;
      action.sa_flags = SA_RESTART | SA_NODEFER;  // do_default() raises it once more
      sigemptyset(&action.sa_mask);
      sigaction(kSignals[i], &action, &before_[i]);
    }
  }
  void give_back() noexcept {
    const std::lock_guard lock(mutex_);
    if (--users_ != 0) return;
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      sigaction(kSignals[i], &before_[i], nullptr);
    }
  }

 private:
  std::mutex mutex_;
  int users_ = 0;
  std::array<struct sigaction, kSignals.size()> before_{};
};

Handlers& handlers() {
  static Handlers all;
  return all;
}

}  // namespace

StopSignals::StopSignals() {
  handlers().take();
  saves_seen_ = notes().saves;
}

StopSignals::~StopSignals() { handlers().give_back(); }

bool StopSignals::stop_asked() const noexcept {
  return notes().first_stop_ns.load(std::memory_order_relaxed) != 0;
}

bool StopSignals::take_save_asked() noexcept {
  const unsigned saves = notes().saves.load(std::memory_order_relaxed);
  const bool asked = saves != saves_seen_;
  saves_seen_ = saves;
  return asked;
}

}  // namespace ronde::trainer
