// SPDX-License-Identifier: Apache-2.0
// The messages between servers, workers and the chief: kinds, fields, and the servers' counts.
// protocol.h describes how tasks answer them.
#pragma once

#include <array>
#include <charconv>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "bindings/trainer/server/floats.h"

namespace ronde::trainer::server {

// When servers apply the gradients of workers: protocol.h describes each mode.
enum class Mode : std::uint8_t { kSync, kAsync, kStale };

struct ModeOptions {
  Mode mode = Mode::kAsync;
  std::uint64_t bound = 0;           // k of stale
  std::uint32_t backup_workers = 0;  // of sync
  bool scale_by_staleness = false;   // the rate is divided by 1 + staleness
};

// "sync", "async" or "stale=k". Throws TrainerError.
[[nodiscard]] ModeOptions mode_of(const std::string& text);
[[nodiscard]] std::string text_of(const ModeOptions& mode);

enum class Role : std::uint8_t { kServer, kWorker, kChief, kEvaluator };

struct Address {
  Role role = Role::kWorker;
  std::uint32_t index = 0;
  std::uint64_t incarnation = 0;  // 0 only where a message is sent to a server

  friend auto operator<=>(const Address&, const Address&) = default;
};

// "worker 1".
[[nodiscard]] std::string text_of(const Address& address);

// The number that the text is; nothing for any other text.
template <typename Number>
[[nodiscard]] std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size()) return {};
  return number;
}

// Settings are lines of a name, a space and a value. Returns the first name to which two texts give
// different values, with both: "--mode sync" and "--mode async". A name that only one text has does
// not count: some tasks know fewer settings.
[[nodiscard]] std::optional<std::pair<std::string, std::string>> difference(std::string_view one,
                                                                            std::string_view other);

enum class Kind : std::uint8_t {
  // From workers and the chief, to the server that has the group.
  kHello,   // text: the job's settings, which must equal the server's, then the training's, which
            // must equal the chief's; sequence: the number of the request that follows
  kCreate,  // from the chief. text: VariableSpecs; floats: first values
  kPull,    // ids: see TableRows; weight: the round's squared norm; dropped: the sender takes no
            // part in rounds
  kPush,    // version, weight, rate; floats: gradients; ids: see TableRows
  kState,   // asks for all numbers, for a checkpoint
  kNorm,    // asks for the norm of the round of the sender's last push, where rounds are clipped
  kStop,    // version: how the training ends (see End), which only grows
  kStatus,  // asks for ServerCounts
  kBye,     // the worker is done
  kClose,   // from the chief: the job is over; a server passes it on. text: the error with which
            // the chief has ended, if any; version: its exit code
  kBeat,    // the sender lives; the chief's has its view
  // From servers.
  kWelcome,
  kCreated,
  kValues,    // version; floats; rate: the largest version that a kStop had
  kAck,       // version; dropped; rate: as in kValues
  kNormIs,    // weight: squared, of this group; version: the round
  kStates,    // version; floats
  kCounts,    // text: ServerCounts
  kRefused,   // text: one line that says why; the request must not be sent again
  kNotReady,  // the chief has not created the variables yet
  kUnknown,   // the sender must say hello first
  kBeatBack,  // the view; dropped: this server has lost its entries, and its standby has them;
              // version: the entries that it has of the server before it
  // Between servers, which also use kHello, kWelcome (entry as in kReplicated), kUnknown, kRefused.
  kGone,        // an entry: worker `sequence` is gone
  kReplicated,  // the standby has all entries up to `entry`
  // Between a coordinator and workers.
  kRun,     // text: a step's name and argument; sequence: the task's number
  kResult,  // text: what the step returned
  kFailed,  // text: the step's error
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

[[nodiscard]] Message make_message(Kind kind, std::uint32_t group = 0, std::string text = {});
// Throws TrainerError where a kClose says that the chief has ended with an error.
void require_no_error(const Message& closing, const Address& self);

// How the n-th training (from 0) ends: kStop carries 4 n plus one of these. After the first two no
// round ends any more.
enum End : std::uint64_t { kSaysEnded = 1, kSaysStopped = 2, kSaysAllDone = 3, kEnds = 4 };

// Staleness 0 to 62, and everything above.
using Histogram = std::array<std::uint64_t, 64>;

// The servers' counts.
struct ServerCounts {
  std::uint64_t global_step = 0;               // updates: one for each push or, in sync, round
  std::vector<std::uint64_t> steps_by_worker;  // pushes that count
  std::vector<std::uint64_t> dropped_by_worker;
  Histogram staleness{};
  std::uint32_t there = 0;          // workers that are at work
  std::uint32_t expected = 0;       // workers that have not come yet
  std::uint64_t most_ahead = 0;     // steps that a worker was ahead of the slowest, at most
  std::vector<std::string> lost{};  // workers that are gone without a goodbye, or never came
  bool chief_is_heard = true;
  bool closed = false;
  std::uint64_t end = 0;  // see ParameterServer::say_end()
  bool created = false;   // the server has variables

  // As JSON, and back.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] static ServerCounts of(const std::string& text);
  // "0:480,1:20".
  [[nodiscard]] std::string staleness_text() const;
};

}  // namespace ronde::trainer::server
