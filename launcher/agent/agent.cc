// SPDX-License-Identifier: Apache-2.0
// One loop over poll().
#include "launcher/agent/agent.h"

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/host_name.h"
#include "base/process/cores.h"
#include "base/wire/unix_socket.h"
#include "launcher/agent/messages.h"
#include "launcher/agent/ranks.h"
#include "launcher/agent/relays.h"
#include "launcher/job/outcome.h"

namespace ronde::launcher {

namespace {

using base::Instant;
using base::Nanoseconds;

constexpr std::size_t kPiece = std::size_t{64} << 10U;
// From SIGTERM to SIGKILL, where ranks are ended.
constexpr Nanoseconds kTidyTime = std::chrono::seconds(2);
// How often an agent that kills looks for what is left: processes become its children as their
// parents die.
constexpr Nanoseconds kKillPause = std::chrono::milliseconds(5);
constexpr Nanoseconds kKillTime = std::chrono::seconds(5);
constexpr Nanoseconds kPulse = std::chrono::seconds(1);

// Thread safety: none.
class Agent {
 public:
  Agent(Channel channel, bool far) : ronderun_(std::move(channel)), far_(far) {}

  int run() {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t waited;
    sigemptyset(&waited);
    for (const int one : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT}) sigaddset(&waited, one);
    sigprocmask(SIG_BLOCK, &waited, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGCHLD, SIG_DFL);
    signals_ = base::FileDescriptor(::signalfd(-1, &waited, SFD_CLOEXEC | SFD_NONBLOCK));
    heard_ = clock_.now();
    send(AgentHello{RONDE_VERSION_TEXT, base::host_name(), base::host_identity(),
                    base::cores_of_cgroups(std::ssize(base::allowed_processors()))});
    while (!done()) step();
    ronderun_.flush();
    return 0;
  }

 private:
  void send(const AgentMessage& message) { ronderun_.send(encode(message)); }

  [[nodiscard]] bool done() {
    if (phase_ != Phase::kOver) return false;
    return !ronderun_.backlogged() || ronderun_.closed() || clock_.now() >= until_;
  }

  void step() {
    std::vector<pollfd> entries{{signals_.get(), POLLIN, 0}};
    if (!ronderun_.closed()) {
      entries.push_back({ronderun_.in(), POLLIN, 0});
      if (ronderun_.backlogged()) entries.push_back({ronderun_.out(), POLLOUT, 0});
    }
    const bool may_send = credit_ > 0 && !ronderun_.backlogged();
    ranks_.add_to(entries, may_send);
    if (relays_) relays_->add_to(entries);
    if (reports_.valid()) entries.push_back({reports_.get(), POLLIN, 0});
    for (const Channel& one : reporters_) entries.push_back({one.in(), POLLIN, 0});
    if (::poll(entries.data(), entries.size(), base::poll_milliseconds(clock_, next_look())) < 0) {
      return;
    }
    if (ronderun_.flush() && phase_ == Phase::kOver) until_ = clock_.now() + kKillTime;
    if (!ronderun_.closed()) hear();
    for (const Printed& output : ranks_.read(entries, may_send ? kPiece : 0)) print(output);
    if (relays_) relays_->serve(entries, ronderun_);
    if (input_waits_ && ranks_.write_input()) {
      input_waits_ = false;
      send(InputTaken{});
    }
    listen_to_reports();
    take_signals();
    reap();
    look();
  }

  [[nodiscard]] Instant next_look() const {
    Instant next = clock_.now() + kPulse;
    if (phase_ != Phase::kRunning)
      next = std::min(next, std::max(until_, clock_.now() + kKillPause));
    if (phase_ == Phase::kKilling) next = clock_.now() + kKillPause;
    return next;
  }

  void print(const Printed& output) {
    credit_ -= std::ssize(output.bytes);
    send(output);
  }

  void hear() {
    ronderun_.read();
    for (;;) {
      const auto frame = ronderun_.next();
      if (!frame.ok()) return end(true);
      if (!frame->has_value()) break;
      auto message = decode_agent_message(**frame);
      if (!message.ok()) {
        send(AgentFailed{EXIT_FAILURE, message.status().message()});
        return end(true);
      }
      heard_ = clock_.now();
      obey(std::move(*message));
    }
    if (ronderun_.closed()) end(false);
  }

  void obey(AgentMessage message) {
    if (auto* const plan = std::get_if<StartRanks>(&message)) return start(std::move(*plan));
    if (auto* const input = std::get_if<Input>(&message)) {
      const bool last = input->bytes.empty();
      ranks_.feed(input->bytes, last);
      input_waits_ = true;
    } else if (const auto* const credit = std::get_if<Credit>(&message)) {
      credit_ += credit->bytes;
    } else if (const auto* const signal = std::get_if<SignalRanks>(&message)) {
      pass_on(signal->signal);
    } else if (const auto* const ending = std::get_if<EndRanks>(&message)) {
      end(ending->now);
    } else if (auto* const relay = std::get_if<Relay>(&message); relay != nullptr && relays_) {
      relays_->take(*relay, ronderun_, clock_);
    }
  }

  void start(StartRanks plan) {
    plan_ = std::move(plan);
    link_timeout_ = std::chrono::milliseconds(plan_.link_timeout_ms);
    if (!plan_.folder.empty() && ::chdir(plan_.folder.c_str()) != 0) {
      return fail({EXIT_FAILURE, "there is no folder " + plan_.folder +
                                     " there: start ronderun in one that all hosts have, or use "
                                     "--wdir"});
    }
    relays_.emplace(plan_.job);
    base::Status ready;
    if (plan_.mpirun) {
      auto listener = base::listen_abstract("mpi-" + plan_.job);
      ready = listener.status();
      if (ready.ok()) reports_ = std::move(*listener);
    } else if (plan_.relays) {
      ready = relays_->listen();
    }
    if (!ready.ok()) return fail({EXIT_FAILURE, ready.message()});
    const Ranks::Failure failure = ranks_.start(plan_);
    for (const Started& one : ranks_.started()) send(one);
    started_ = true;
    if (failure.exit_code != 0) fail(failure);
  }

  void fail(const Ranks::Failure& failure) {
    started_ = true;
    send(AgentFailed{failure.exit_code, failure.text});
    end(true);
  }

  // mpirun ends its ranks at SIGTERM, so they get it themselves, where any is here.
  void pass_on(int signal) {
    if (!plan_.mpirun || signal != SIGTERM) return ranks_.signal(signal);
    listen_to_reports();  // of ranks that have just started
    asked_ = true;
    if (mpi_ranks_.empty()) return ranks_.signal(SIGUSR2);
    for (const auto& [rank, pid] : mpi_ranks_) {
      if (pid > 1) ::kill(pid, SIGTERM);
    }
  }

  void end(bool now) {
    const bool first = phase_ == Phase::kRunning;
    if (phase_ == Phase::kOver || (!first && !now)) return;
    if (now) {
      if (phase_ != Phase::kKilling) until_ = clock_.now() + kKillTime;
      phase_ = Phase::kKilling;
      return;
    }
    if (!started_) return over();
    phase_ = Phase::kEnding;
    until_ = clock_.now() + kTidyTime;
    if (plan_.mpirun) pass_on(SIGTERM);
    ranks_.signal(SIGTERM);
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      // Somebody ends this host's part of the job; here that is ronderun's business.
      if (!far_ || info.ssi_signo == SIGCHLD || phase_ != Phase::kRunning) continue;
      const char* const name = sigabbrev_np(static_cast<int>(info.ssi_signo));
      send(AgentFailed{EXIT_FAILURE, std::string("its agent was told to end (SIG") + name + ")"});
      end(false);
    }
  }

  void reap() {
    std::vector<Printed> outputs;
    const std::vector<Ended> ended = ranks_.reap(outputs);
    for (const Printed& output : outputs) print(output);
    for (const Ended& one : ended) send(one);
    if (!started_ || ranks_.any_left()) return;
    const std::vector<pid_t> rest = children_of_this_process();
    const std::string name = rest.empty() ? "" : name_of(rest.front());
    if (rest.empty() && rest_ != 0) drain();
    if (std::ssize(rest) != rest_ || name != rest_name_) send(Leftovers{std::ssize(rest), name});
    rest_ = std::ssize(rest);
    rest_name_ = name;
    if (!rest.empty()) return;
    over();
  }

  void drain() {
    std::vector<Printed> outputs;
    ranks_.drain(outputs);
    for (const Printed& output : outputs) print(output);
  }

  void over() {
    if (phase_ == Phase::kOver) return;
    phase_ = Phase::kOver;
    until_ = clock_.now() + kKillTime;
  }

  void look() {
    const Instant now = clock_.now();
    if (now - pulse_ >= kPulse) {
      pulse_ = now;
      send(Heartbeat{});
      if (far_ && now - heard_ > link_timeout_) end(false);
      const bool looks = !plan_.mpirun && plan_.size > 1 && phase_ == Phase::kRunning;
      if (looks && ranks_.has_lonely_mpi()) {
        send(AgentFailed{kExitUsage,
                         "a rank's program has started MPI, which knows nothing of the other ranks "
                         "that ronderun has started: use --mpi"});
        end(true);
      }
    }
    if (phase_ == Phase::kEnding && now >= until_) end(true);
    if (phase_ != Phase::kKilling) return;
    ranks_.kill();
    if (!started_ || now >= until_) over();
  }

  // What stands between mpirun and its ranks on this host.
  void listen_to_reports() {
    for (;;) {
      base::Accepted guest;
      if (reports_.valid()) guest = base::accept_member(reports_);
      if (!guest.socket.valid()) break;
      if (guest.of_another_user) continue;
      reporters_.emplace_back(std::move(guest.socket), base::FileDescriptor());
    }
    for (Channel& one : reporters_) {
      one.read();
      for (auto frame = one.next(); frame.ok() && frame->has_value(); frame = one.next()) {
        const auto message = decode_agent_message(**frame);
        if (!message.ok()) continue;
        if (const auto* const began = std::get_if<Started>(&*message)) {
          const auto pid = static_cast<pid_t>(began->pid);
          mpi_ranks_[began->rank] = pid;
          if (asked_ && pid > 1) ::kill(pid, SIGTERM);
        } else if (const auto* const ended = std::get_if<Ended>(&*message)) {
          mpi_ranks_.erase(ended->rank);
        }
        if (message->index() >= AgentMessage(Started()).index()) send(*message);
      }
    }
    std::erase_if(reporters_, [](const Channel& one) { return one.closed(); });
  }

  enum class Phase : std::uint8_t {
    kRunning,
    kEnding,   // SIGTERM has been sent; SIGKILL follows at until_
    kKilling,  // until nothing is left, or until_
    kOver,
  };

  const base::SteadyClock clock_;
  Channel ronderun_;
  const bool far_;
  base::FileDescriptor signals_;
  StartRanks plan_;
  Ranks ranks_;
  std::optional<Relays> relays_;
  base::FileDescriptor reports_;
  std::vector<Channel> reporters_;
  std::map<std::int32_t, pid_t> mpi_ranks_;  // that run here
  bool started_ = false;
  bool asked_ = false;  // ranks of mpirun's, to end
  bool input_waits_ = false;
  std::int64_t credit_ = 0;
  std::int64_t rest_ = -1;
  std::string rest_name_;
  Nanoseconds link_timeout_ = std::chrono::seconds(60);  // until the plan says it
  Instant heard_{};
  Instant pulse_{};
  Phase phase_ = Phase::kRunning;
  Instant until_{};
};

}  // namespace

int run_agent(Channel channel, bool far) { return Agent(std::move(channel), far).run(); }

}  // namespace ronde::launcher
