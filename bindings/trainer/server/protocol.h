// SPDX-License-Identifier: Apache-2.0
// How parameter servers and workers answer each other's messages. Pure: no socket, no clock, no
// thread; messages and the time go in, messages come out. A simulation drives it through thousands
// of schedules with kills, delays, losses and duplicates.
//
// Groups. Server i is the home of group i: the variables (or parts of them) that were placed on
// it. A push and a pull concern the whole group, so that each is one message and is applied whole.
//
// Sequence numbers. A worker has at most one request under way to each group, and numbers its
// requests. It sends an unanswered request again under the same number; a server answers a push
// that it has counted with the same acknowledgement, and does not count it again. A worker that is
// started again is a new incarnation (a random number), whose numbers begin anew; from then on
// messages of earlier incarnations are ignored. A server orders incarnations by their arrival: it
// never compares the clocks of two hosts.
//
// Versions. The version of a group counts its updates. A pull returns the version that it has read,
// a push names the version that its gradient belongs to; the difference is the push's staleness.
//
// Modes. async: each push is an update. stale=k: the same, but a pull waits until no worker that is
// there is more than k steps behind. sync: a push waits for the pushes of all workers of its round
// (except the last b, with backup workers); their average, by samples, in the order of the workers,
// is one update, and the pulls of workers whose push waits are held until then. stale=0 is sync. A
// push of an earlier round is dropped, and acknowledged as dropped. A clipped round is applied once
// a pull brings its norm over all groups, which the worker has asked for with kNorm. A worker whose
// push was dropped by some groups pulls those last, after the others have answered: from its pull
// on a round waits for it, so it must not wait for the round of another group.
//
// Members. A worker that has never come, or has been silent for long, is gone: no round waits for
// it. One that comes back takes the variables as they are, and at least the steps of the slowest.
//
// Standby. Each request to a group becomes an entry with a number. With a standby, the server sends
// each entry to the next server, which applies it too, and answers only what the standby has: so
// the standby has everything that a worker was told, and a server that was taken over answers
// nothing, since its standby no longer confirms it. Only the chief decides on takeovers, in views
// with growing numbers: in a view a server is dead or not, and stays dead. So two servers never
// both have a group. Without the chief there is no takeover; when it is back, the living servers
// report how many entries each has of the server before it, and without entries there is no
// takeover. A server that was started again has lost its entries, and is declared dead at once: the
// chief sees another start in its answers, or the server finds that its standby has entries of
// another start, answers no request, and reports that. As a standby it lacks the confirmed entries:
// the server before it sees the other start, and goes on without a standby.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/trainer/server/messages.h"

namespace ronde::trainer::server {

// Servers of a job at most: the bits of a view.
inline constexpr std::uint32_t kMostServers = 64;

class Variables;

// How a row of a table takes what is pushed to it, in place of the optimiser: a function of the
// program, under a name that all tasks know. A standby calls it with the same numbers, and must
// come to the same row. It must not throw.
using RowRule =
    std::function<void(std::span<float> row, std::span<const float> pushed, double rate)>;
using RowRules = std::map<std::string, RowRule>;

struct ServerOptions {
  std::uint32_t index = 0;
  std::uint32_t servers = 1;
  std::uint32_t workers = 1;
  bool standby = false;
  bool has_chief = false;       // a task of its own; otherwise worker 0 is the chief
  std::string job;              // settings that every hello must begin with
  double worker_timeout = 5.0;  // seconds of silence after which a worker is gone
  double start_timeout = 60.0;  // until a worker must have been seen
  double resend = 1.0;          // seconds until an entry is sent to the standby again
  std::uint64_t start = 1;      // a new number each time that this server is started
  RowRules rules{};

  [[nodiscard]] bool is_chief(const Address& one) const {
    return one.role == (has_chief ? Role::kChief : Role::kWorker) && one.index == 0;
  }
};

// A group on one server: its variables, its members and its log.
class Shard {
 public:
  Shard(const ServerOptions& options, std::uint32_t group, bool primary);
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;
  ~Shard();

  // A request of a worker or the chief; only the primary handles it.
  void on_request(double now, const Message& message, Messages& out);
  // A message of this group's standby or, on the standby, of its primary.
  void on_server(const Message& message, Messages& out);
  // Whether this start of a neighbour has said hello, or welcome.
  [[nodiscard]] bool believes(const Address& server) const;
  void on_tick(double now, Messages& out);
  void heard(double now, const Address& from);
  // Whether this task has said hello, and no later start of it has.
  [[nodiscard]] bool knows(const Address& from) const;
  void promote(double now);
  void drop_standby(Messages& out);

  [[nodiscard]] bool primary() const noexcept { return primary_; }
  // The standby has entries that this start has not made: the standby must take over.
  [[nodiscard]] bool lost() const noexcept { return lost_; }
  [[nodiscard]] std::uint64_t entries() const noexcept { return entries_; }
  [[nodiscard]] bool created() const noexcept { return variables_ != nullptr; }
  [[nodiscard]] bool closed() const noexcept { return closing_.has_value(); }
  // The chief's message; none: the job is not closed.
  [[nodiscard]] const std::optional<Message>& closing() const noexcept { return closing_; }
  // All tasks that are done know that the job is closed; after an error of the chief, all tasks
  // that had not come yet know it.
  [[nodiscard]] bool all_told() const;
  [[nodiscard]] const Variables* variables() const noexcept { return variables_.get(); }
  // The most bytes that a message of this task may have.
  [[nodiscard]] std::size_t most_bytes(const Address& from) const;
  // How many messages are kept, which bounds memory.
  [[nodiscard]] std::size_t kept() const;
  [[nodiscard]] std::uint64_t most_ahead() const noexcept { return most_ahead_; }
  [[nodiscard]] ServerCounts counts() const;
  // Lines for the server's output, since the last call.
  [[nodiscard]] std::vector<std::string> take_news() { return std::exchange(news_, {}); }

 private:
  enum class Life : std::uint8_t { kExpected, kThere, kGone };
  struct Member {
    Life life = Life::kExpected;
    std::uint64_t incarnation = 0;
    std::vector<std::uint64_t> starts;  // incarnations, in the order of their arrival
    std::uint64_t clock = 0;            // steps; a worker that joins late takes the slowest's
    std::uint64_t counted = 0;          // pushes
    std::uint64_t dropped = 0;
    // Its push was dropped. It may wait for another group now, so no round waits for it until its
    // next pull, which it sends once it waits for no group.
    bool excused = false;
    std::uint64_t bye = 0;         // the number of its goodbye
    bool done = false;             // it has said goodbye, and not come back
    bool told = false;             // it knows that the job is closed
    bool silent = false;           // at the last tick; also of a member that is gone
    Message last;                  // the acknowledgement of its last push
    std::optional<Message> waits;  // a push that waits for its round
    std::optional<Message> held;   // a pull that waits
    Address address;               // of its last start
    std::string training;          // its settings
    std::string unlike;            // why it does not belong to the training of these variables
    double heard = -1e9;           // when; differs on the standby
    double contender_since = 0.0;  // when a later incarnation has said hello,
    std::uint64_t contender = 0;   // and which one
  };

  [[nodiscard]] const Member* member_of(const Address& address) const;
  Member* member_of(const Address& address) {
    return const_cast<Member*>(std::as_const(*this).member_of(address));
  }
  [[nodiscard]] std::string name_of(const Member& member) const;
  [[nodiscard]] std::string unlike(const Address& from, std::string_view training) const;
  [[nodiscard]] bool is_stranger(const Message& message, Messages& out);
  // The training's settings in a hello: all after the job's.
  [[nodiscard]] std::string training_of(const std::string& hello) const;
  // Why a push or pull is refused; empty: it is accepted.
  std::string wrong_with(const Message& message);
  void on_hello(double now, const Message& message, Messages& out);
  static void heard_of(Member& member, std::uint64_t start);
  [[nodiscard]] static bool is_earlier(const Member& member, std::uint64_t start);
  void on_entry(const Message& entry, Messages& out);
  void on_standby(const Message& message, Messages& out);
  void on_replicated(const Message& message, Messages& out);
  [[nodiscard]] std::uint32_t next() const { return (options_.index + 1) % options_.servers; }
  [[nodiscard]] Message hello_to_standby() const;
  [[nodiscard]] Message closing_to(const Address& to) const;
  [[nodiscard]] Message answer_to(const Message& message, Kind kind, std::string text = {}) const;
  void log(const Message& request, Messages& out);
  void apply(const Message& entry);
  void create(const Member& member, const Message& entry);
  void join(const Message& entry);
  void take_push(const Message& entry);
  void end_round(const std::vector<const Message*>& pushes);
  void hear_end(std::uint64_t end);
  [[nodiscard]] bool has_stopped() const;
  void leave(Member& member);
  void advance();
  [[nodiscard]] std::uint64_t slowest() const;
  [[nodiscard]] bool may_go_on(const Member& member) const;
  Message reply(const Message& request, Message answer);
  void release(Messages& out);

  const ServerOptions& options_;
  const std::uint32_t group_;
  bool primary_;
  bool has_standby_;
  std::optional<Message> closing_;
  std::uint64_t end_ = 0;  // the largest version that a kStop had
  ModeOptions mode_;
  std::string training_;  // settings of the chief that has created the variables
  std::unique_ptr<Variables> variables_;
  std::vector<Member> members_;
  Histogram staleness_{};
  std::uint64_t most_ahead_ = 0;
  std::optional<double> pending_rate_;  // of a clipped round that is still to be applied
  double norm_ = 0.0;                   // of the last clipped round, squared
  std::uint64_t entries_ = 0;           // made, or applied by the standby
  std::uint64_t confirmed_ = 0;         // by the standby
  bool lost_ = false;
  Address neighbour_;                // the standby or, on the standby, the primary
  std::set<std::uint64_t> earlier_;  // all starts of the neighbour so far
  bool is_refused_ = false;          // by the standby
  std::deque<Message> unconfirmed_;
  double sent_ = 0.0;
  std::deque<Message> answers_;  // Message::entry: the entry that the standby must have first
  double started_ = -1.0;
  std::vector<std::string> news_;
};

// A server process: its own group, and that of the server before it as its standby.
class ServerState {
 public:
  explicit ServerState(ServerOptions options);

  Messages on_message(double now, const Message& message);
  Messages on_tick(double now);

  // The chief has closed the job, or has ended with an error.
  [[nodiscard]] bool closed() const;
  // Throws TrainerError where the chief has ended with an error.
  void require_no_error() const;
  [[nodiscard]] bool all_told() const;
  [[nodiscard]] std::vector<std::string> take_news();
  // In the newest view this server is dead, and another one has its group.
  [[nodiscard]] bool deposed() const { return ((dead_ >> options_.index) & 1U) != 0; }
  [[nodiscard]] std::size_t most_bytes(const Address& from) const;
  // When the last message came.
  [[nodiscard]] double last_heard() const noexcept { return last_heard_; }
  [[nodiscard]] const Shard* shard(std::uint32_t group) const;
  [[nodiscard]] const ServerOptions& options() const noexcept { return options_; }

 private:
  void take_view(double now, const Message& message, Messages& out);
  void sign(Messages& out) const;

  const ServerOptions options_;
  std::map<std::uint32_t, std::unique_ptr<Shard>> shards_;
  std::uint64_t view_ = 0;
  std::uint64_t dead_ = 0;
  double last_heard_ = 0.0;
};

struct WorkerOptions {
  Address self;
  std::uint32_t servers = 1;
  bool standby = false;
  bool decides = false;  // this is the chief, which declares servers dead
  std::string job;
  std::string training{};       // settings
  double beat = 0.5;            // seconds between signs of life
  double resend = 1.0;          // seconds until a request is sent again; doubled each time
  double server_timeout = 3.0;  // of silence, after which the chief declares a server dead
};

// A worker's, the chief's or an evaluator's requests.
class WorkerState {
 public:
  explicit WorkerState(WorkerOptions options);

  // Numbers and sends a request to a group, which must have none under way.
  void request(double now, Message message, Messages& out);
  [[nodiscard]] bool is_under_way(std::uint32_t group) const;
  // The answer to the last request, once it has come.
  std::optional<Message> take_answer(std::uint32_t group);
  // The chief has closed the job: no server answers any more. Throws TrainerError where the chief
  // has ended with an error.
  [[nodiscard]] bool closed() const;
  // Gives up a request.
  void forget(std::uint32_t group) { groups_.at(group).request.reset(); }

  Messages on_message(double now, const Message& message);
  Messages on_tick(double now);

  // The server that has this group in this worker's view; none: it is dead, and so is its standby.
  [[nodiscard]] std::optional<std::uint32_t> home(std::uint32_t group) const;
  // The server does not have the variables of this group.
  [[nodiscard]] bool is_empty(std::uint32_t group) const { return groups_.at(group).empty; }
  [[nodiscard]] double heard(std::uint32_t server) const { return heard_.at(server); }
  [[nodiscard]] std::uint64_t dead() const noexcept { return dead_; }

 private:
  struct Group {
    bool welcome = false;
    bool empty = false;
    std::uint64_t requests = 0;
    std::optional<Message> request;
    std::optional<Message> answer;
    double sent = 0.0;
    double said_hello = -1e9;
    double patience = 0.0;
    std::size_t bytes = 0;  // of the largest message to or from it
  };

  void send(double now, std::uint32_t group, Messages& out);
  void say_hello(double now, std::uint32_t group, Messages& out);
  [[nodiscard]] bool may_declare_dead(std::uint32_t server) const;
  void declare_dead(std::uint32_t server);

  const WorkerOptions options_;
  std::vector<Group> groups_;
  std::vector<double> heard_;
  std::vector<std::set<std::uint64_t>> starts_;  // by server: all so far
  std::vector<std::uint64_t> held_;  // by server: the entries that it has of the server before it
  std::optional<Message> closing_;
  double began_ = -1.0;
  double beat_ = -1e9;
  std::uint64_t view_ = 0;
  std::uint64_t dead_ = 0;
};

}  // namespace ronde::trainer::server
