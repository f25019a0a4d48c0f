// SPDX-License-Identifier: Apache-2.0
// What parameter servers and workers say to each other, and what each of them does about it. Pure:
// no socket, no clock, no thread; messages and the time go in, messages come out. A simulation
// drives it through thousands of schedules with kills, delays, losses and duplicates.
//
// Groups. Server i is the home of group i: the variables (or shards of them) that were placed on
// it. A push and a pull concern all of a group at once, so that each is one message, and whole.
//
// Sequence numbers. A worker has one request at a time under way to a group, and numbers them. A
// request that was not answered is sent again under its number; a server answers a push that it
// has counted with the same acknowledgement, and does not count it again. A worker that is started
// again is a new incarnation (a number drawn at its start), whose numbers begin anew; messages of
// earlier incarnations count for nothing from then on. Which is the later one a server knows by the
// order in which it has heard of them: no clock of one host is compared with another's.
//
// Versions. The version of a group counts its updates. A pull brings the version that it has read,
// a push says to which version its gradient belongs; the difference is its staleness.
//
// Modes. async: each push is an update. stale=k: likewise, but a pull waits until no worker that is
// there is more than k steps behind. sync: a push waits for those of all workers of its round (but
// for the b last ones, with backup workers); their average, by samples, in the order of the
// workers, is one update, and pulls of workers whose push waits are held until then. stale=0 is
// sync: nobody may be ahead. A push of an earlier round is dropped, and acknowledged as dropped.
// A clipped round is applied once a pull brings its norm over all groups, which kNorm asks for.
// A worker whose push was dropped by some groups pulls those last, once the others have answered:
// from its pull on a round waits for it, so it must not wait for the round of another group.
//
// Members. A worker that was never seen, or is silent for long, is gone: nobody waits for it any
// more. One that comes back takes the variables as they are, and at least the steps of the slowest.
//
// Standby. Each request of a group becomes an entry with a number. With a standby, the server sends
// each entry to the next server, which does the same with it, and answers only what the standby
// has: whatever a worker was told is there too, and a server that was taken over answers nothing,
// since its standby no longer confirms it. Who takes over is decided by the chief alone, in views
// with growing numbers: in a view a server is dead or not, and stays dead. So two servers never
// both have a group. Without the chief nothing is taken over until it is back, and then it hears
// from those who live how many entries each has of the server before it; where there are none
// nothing is taken over. A server that was started again has lost what it had, and is declared dead
// at once: the chief hears of the other start (from, in each answer), or the server of its standby
// (which has entries of another start), answers nobody, and says so. As a standby it lacks what was
// confirmed: the server before it hears of the other start, and goes on without a standby.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/trainer/server/floats.h"
#include "bindings/trainer/server/modes.h"

namespace ronde::trainer::server {

enum class Role : std::uint8_t { kServer, kWorker, kChief, kEvaluator };

struct Address {
  Role role = Role::kWorker;
  std::uint32_t index = 0;
  std::uint64_t incarnation = 0;  // of a server to which something is sent: 0; else never

  friend auto operator<=>(const Address&, const Address&) = default;
};

// Settings are lines of a name, a space and a value. The first name to which two texts have
// different values, with both: "--mode sync" and "--mode async". A name that one of them alone has
// is no difference: not every task knows all.
[[nodiscard]] std::optional<std::pair<std::string, std::string>> difference(std::string_view one,
                                                                            std::string_view other);

// "worker 1".
[[nodiscard]] std::string text_of(const Address& address);

enum class Kind : std::uint8_t {
  // From workers and the chief, to the server that has the group.
  kHello,   // text: the job's settings, which must be the server's, then those of the training,
            // which must be the chief's; sequence: of the request after
  kCreate,  // the chief: text: see VariableSpecs; floats: first values
  kPull,    // ids: see TableRows; weight: the round's squared norm; dropped: it only looks on
  kPush,    // version, weight, rate; floats: gradients; ids: see TableRows
  kState,   // all numbers, for a checkpoint
  kNorm,    // of the round that the sender's push was of, where rounds are clipped
  kStop,    // version: what is said of the end of a training, which only grows
  kStatus,  // counts as JSON
  kBye,     // the worker is done
  kClose,   // the chief: the job is over; a server: so said the chief
  kBeat,    // I am there; the chief's bring its view
  // From servers.
  kWelcome,
  kCreated,
  kValues,    // version; floats; rate: the largest that a kStop has said
  kAck,       // version; dropped; rate: likewise
  kNormIs,    // weight: squared, of this group; version: of the round
  kStates,    // version; floats; text: what they are
  kCounts,    // text
  kRefused,   // text: why, in one line; do not try again
  kNotReady,  // the chief has not created the variables (here) yet
  kUnknown,   // say hello first
  kBeatBack,  // the view; dropped: what I had is lost, and my standby has it; version: the entries
              // that I have of the server before me
  // Between servers; and a hello, its kWelcome (entry: as of kReplicated), kUnknown and kRefused.
  kGone,        // an entry alone: worker `sequence` is gone
  kReplicated,  // all entries up to `entry`
  // Between a coordinator and workers.
  kRun,     // text: a step's name and arguments; sequence: of the task
  kResult,  // text: what it returned
  kFailed,  // text: what it threw
};
inline constexpr auto kLastKind = Kind::kFailed;

struct Message {
  Kind kind = Kind::kBeat;
  Address from;
  Address to;
  std::uint32_t group = 0;
  bool dropped = false;
  std::uint64_t sequence = 0;
  std::uint64_t version = 0;
  double weight = 0.0;      // samples behind a push
  double rate = 0.0;        // learning rate of a push
  std::uint64_t view = 0;   // its number
  std::uint64_t dead = 0;   // bit i: server i is dead in this view
  std::uint64_t entry = 0;  // above 0: an entry of the group's log, which `origin` has asked for
  Address origin;
  std::string text;
  std::vector<std::int64_t> ids;
  Floats floats;
};
using Messages = std::vector<Message>;

// Most servers of a job: what a view can hold.
inline constexpr std::uint32_t kMostServers = 64;

// A kStop carries 4 n, for the n-th training from 0, plus one of these; the first two stop rounds.
enum End : std::uint64_t { kSaysEnded = 1, kSaysStopped = 2, kSaysAllDone = 3, kEnds = 4 };

// Staleness 0 to 62, and all above.
using Histogram = std::array<std::uint64_t, 64>;

class Variables;

struct ServerOptions {
  std::uint32_t index = 0;
  std::uint32_t servers = 1;
  std::uint32_t workers = 1;
  bool standby = false;
  bool has_chief = false;       // a task of its own; else worker 0 is it
  std::string job;              // settings that every hello must begin with
  double worker_timeout = 5.0;  // seconds of silence after which a worker is gone
  double start_timeout = 60.0;  // until a worker must have been seen
  double resend = 1.0;          // of entries to the standby
  std::uint64_t start = 1;      // another one each time that this server is started

  [[nodiscard]] bool is_chief(const Address& one) const {
    return one.role == (has_chief ? Role::kChief : Role::kWorker) && one.index == 0;
  }
};

// An answer, but for whom.
[[nodiscard]] Message answer_of(Kind kind, std::string text = {});

// A group on one server: its variables, its members and its log.
class Shard {
 public:
  Shard(const ServerOptions& options, std::uint32_t group, bool primary);
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;
  ~Shard();

  // A request, where this is the primary.
  void on_request(double now, const Message& message, Messages& out);
  // What the next server, or that before it, says to this one as its standby or to its standby.
  void on_server(const Message& message, Messages& out);
  // Whether this is the start of the one before or of the standby that has said hello, or welcome.
  [[nodiscard]] bool believes(const Address& server) const;
  void on_tick(double now, Messages& out);
  void heard(double now, const Address& from);
  // Whether it has said hello, and no later one has.
  [[nodiscard]] bool knows(const Address& from) const;
  void promote(double now);
  void drop_standby(Messages& out);

  [[nodiscard]] bool primary() const noexcept { return primary_; }
  // The standby has more than this start has made: it must take over.
  [[nodiscard]] bool lost() const noexcept { return lost_; }
  [[nodiscard]] std::uint64_t entries() const noexcept { return entries_; }
  [[nodiscard]] bool created() const noexcept { return variables_ != nullptr; }
  [[nodiscard]] bool closed() const noexcept { return closed_; }
  // Those who are done know that the job is closed.
  [[nodiscard]] bool all_told() const;
  [[nodiscard]] const Variables* variables() const noexcept { return variables_.get(); }
  [[nodiscard]] const Histogram& staleness() const noexcept { return staleness_; }
  // Pushes that were counted, by worker.
  [[nodiscard]] std::vector<std::uint64_t> steps() const;
  // Bytes of a message that this task has reason to send.
  [[nodiscard]] std::size_t most_bytes(const Address& from) const;
  // Messages that are kept: what bounds memory.
  [[nodiscard]] std::size_t kept() const;
  // The steps that the fastest of those who were let go on was ahead, ever.
  [[nodiscard]] std::uint64_t most_ahead() const noexcept { return most_ahead_; }
  [[nodiscard]] std::string counts() const;
  // Lines for whoever watches the server, since the last call.
  [[nodiscard]] std::vector<std::string> take_news() { return std::exchange(news_, {}); }

 private:
  enum class Life : std::uint8_t { kExpected, kThere, kGone };
  struct Member {
    Life life = Life::kExpected;
    std::uint64_t incarnation = 0;
    std::vector<std::uint64_t> starts;  // incarnations in the order in which they were heard of
    std::uint64_t clock = 0;            // steps; one who joins late takes those of the slowest
    std::uint64_t counted = 0;          // pushes
    std::uint64_t dropped = 0;
    // Its push was dropped: it may wait for another group now, so no round waits for it until its
    // next pull, which it sends once it waits for none.
    bool excused = false;
    std::uint64_t bye = 0;         // the number of its goodbye
    bool done = false;             // it has said goodbye, and not come back
    bool told = false;             // that the job is closed
    bool silent = false;           // as on_tick() has found it, also of one that is gone
    Message last;                  // the acknowledgement of the last push
    std::optional<Message> waits;  // a push that waits for its round
    std::optional<Message> held;   // a pull that waits
    Address address;               // of the one that is, or was, there
    std::string training;          // its settings
    std::string unlike;            // why it is no task of the training whose variables are here
    double heard = 0.0;            // not the same on the standby
    double contender_since = 0.0;  // a later incarnation says hello
    std::uint64_t contender = 0;
  };

  [[nodiscard]] const Member* member_of(const Address& address) const;
  Member* member_of(const Address& address) {
    return const_cast<Member*>(std::as_const(*this).member_of(address));
  }
  [[nodiscard]] std::string name_of(const Member& member) const;
  [[nodiscard]] std::string unlike(const Address& from, std::string_view training) const;
  [[nodiscard]] bool is_stranger(const Message& message, Messages& out);
  // What a hello says of the training, after the job.
  [[nodiscard]] std::string training_of(const std::string& hello) const;
  // Why a push or pull is refused; empty: it is not.
  std::string wrong_with(const Message& message);
  void on_hello(double now, const Message& message, Messages& out);
  static void heard_of(Member& member, std::uint64_t start);
  [[nodiscard]] static bool is_earlier(const Member& member, std::uint64_t start);
  void on_entry(const Message& entry, Messages& out);
  void on_standby(const Message& message, Messages& out);
  void on_replicated(const Message& message, Messages& out);
  [[nodiscard]] std::uint32_t next() const { return (options_.index + 1) % options_.servers; }
  [[nodiscard]] Message hello_to_standby() const;
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
  void reply(const Message& request, Message answer);
  void release(Messages& out);

  const ServerOptions& options_;
  const std::uint32_t group_;
  bool primary_;
  bool has_standby_;
  bool closed_ = false;
  std::uint64_t end_ = 0;  // that a kStop has said
  ModeOptions mode_;
  std::string training_;  // settings of the chief that has created the variables
  std::unique_ptr<Variables> variables_;
  std::vector<Member> members_;
  Histogram staleness_{};
  std::uint64_t most_ahead_ = 0;
  std::optional<double> pending_rate_;  // of a clipped round that is still to be applied
  double norm_ = 0.0;                   // of the last one, squared
  std::uint64_t entries_ = 0;           // made, or applied by the standby
  std::uint64_t confirmed_ = 0;         // by the standby
  bool lost_ = false;
  Address neighbour_;                // the standby, or the one whose standby this is
  std::set<std::uint64_t> earlier_;  // starts of it, and this one
  bool is_refused_ = false;          // by the standby
  std::deque<Message> unconfirmed_;
  double sent_ = 0.0;
  std::deque<Message> answers_;  // Message::entry: what the standby must have first
  double started_ = -1.0;
  std::vector<std::string> news_;
};

// All of a server process: its own group, and the one before as a standby.
class ServerState {
 public:
  explicit ServerState(ServerOptions options);

  Messages on_message(double now, const Message& message);
  Messages on_tick(double now);

  // The chief has closed the job.
  [[nodiscard]] bool closed() const;
  [[nodiscard]] bool all_told() const;
  [[nodiscard]] std::vector<std::string> take_news();
  // In the newest view this server is dead, and another has its group.
  [[nodiscard]] bool deposed() const { return ((dead_ >> options_.index) & 1U) != 0; }
  [[nodiscard]] std::size_t most_bytes(const Address& from) const;
  // When anybody was heard last.
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
  bool decides = false;  // the chief: it declares servers dead
  std::string job;
  std::string training{};       // settings
  double beat = 0.5;            // seconds between signs of life
  double resend = 1.0;          // until a request is sent again; twice as long each time
  double server_timeout = 3.0;  // of silence, after which the chief declares a server dead
};

// The side of a worker, or of the chief.
class WorkerState {
 public:
  explicit WorkerState(WorkerOptions options);

  // A request to a group, which must have none under way. Numbers it.
  void request(double now, Message message, Messages& out);
  [[nodiscard]] bool is_under_way(std::uint32_t group) const;
  // The answer to the last request, once it is there.
  std::optional<Message> take_answer(std::uint32_t group);
  // The chief has closed the job: nobody answers any more.
  [[nodiscard]] bool closed() const noexcept { return closed_; }
  // Gives a request up.
  void forget(std::uint32_t group) { groups_.at(group).request.reset(); }

  Messages on_message(double now, const Message& message);
  Messages on_tick(double now);

  // The server that has this group in this worker's view; none: all who had it are dead.
  [[nodiscard]] std::optional<std::uint32_t> home(std::uint32_t group) const;
  // The server has lost, or never had, the variables of this group.
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
  std::vector<std::set<std::uint64_t>> starts_;  // that were heard, of servers
  std::vector<std::uint64_t> held_;  // by server: the entries that it has of the one before it
  bool closed_ = false;
  double began_ = -1.0;
  double ticked_ = -1.0;
  double beat_ = -1e9;
  std::uint64_t view_ = 0;
  std::uint64_t dead_ = 0;
};

}  // namespace ronde::trainer::server
