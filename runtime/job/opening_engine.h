// SPDX-License-Identifier: Apache-2.0
// Which engine of a process meets which engines of the others. Those of one place (a meeting point,
// the ranks that MPI has started) could be told apart only by the moment at which they are opened,
// so the ranks tell each other what they open: a name, or how many without one they have opened
// there before.
//
//   - A process joins one meeting of a place at a time; what it opens beside that waits its turn.
//   - What rank 0 opens is what the meeting is for. A rank that came with another engine leaves the
//     meeting to that one, which may come later, and joins again: named engines find each other in
//     any order.
//   - Engines without a name whose numbers differ are an error on all ranks. A process that was
//     started anew, or whose last start failed, knows no number, and takes that of the others.
//   - Two engines without a name are not opened at once: nothing would tell which one is meant.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/job/met.h"

namespace ronde::runtime {

// An engine that is being opened, until every rank has opened it.
//
// Thread safety: one thread uses it; any number of them may be opened at once.
class OpeningEngine {
 public:
  // name: empty if it has none. place: what engines that could be mistaken for one another share;
  // empty where the ranks meet over what is this engine's alone (a store, a communicator). Fails
  // (kInvalidArgument) beside another engine without a name.
  static base::Result<std::unique_ptr<OpeningEngine>> begin(std::string name,
                                                            const std::string& place);
  OpeningEngine(const OpeningEngine&) = delete;
  OpeningEngine& operator=(const OpeningEngine&) = delete;
  // One that was not opened does not count.
  ~OpeningEngine();

  // Returns a meeting with the ranks that open the same engine. `join` makes a meeting of this
  // place, and may be called again.
  base::Result<Met> meet(const std::function<base::Result<Met>()>& join, const base::Clock& clock,
                         base::Instant deadline);
  // An error of the start, with the ranks that came with other engines: they may be missing.
  [[nodiscard]] base::Status explained(const base::Status& why) const;
  // Fails (kInvalidArgument) once another engine without a name has been refused beside this one,
  // and where its number is not that of the other ranks.
  [[nodiscard]] base::Status alone() const;
  // Every rank has opened it.
  void opened();

 private:
  OpeningEngine(std::string name, std::string place)
      : name_(std::move(name)), place_(std::move(place)) {}
  // What the other ranks are told.
  [[nodiscard]] std::string word() const;
  // The engine of this rank for a meeting that another one has joined; or the turn to join one.
  base::Result<std::unique_ptr<Met>> wait_for_turn(const base::Clock& clock,
                                                   base::Instant deadline);

  const std::string name_;
  const std::string place_;
  std::string strayed_;       // "; rank 1 came with engine 'b', and rank 0 with engine 'a': ..."
  base::Status out_of_step_;  // with the ranks of a meeting that another engine has joined
  std::optional<std::int64_t> number_;  // of those without a name, as the ranks have it
  bool opened_ = false;
};

}  // namespace ronde::runtime
