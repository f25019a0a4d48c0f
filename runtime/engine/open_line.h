// SPDX-License-Identifier: Apache-2.0
// A line of open calls (open_calls.h) for whoever wants one, as an MPI communicator does.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/in_host/lines.h"
#include "runtime/lines/open_calls.h"

namespace ronde::runtime {

class Engine;

// Keeps the engine. The memory of a call is touched inside start() and wait() alone.
//
// Thread safety: one thread at a time.
class OpenLine {
 public:
  using Call = OpenCall;
  enum class Met : std::uint8_t { kNotYet, kEqual, kDiffers };

  // Collective. nullptr where there is no room, or there are several hosts.
  static base::Result<std::unique_ptr<OpenLine>> make(std::shared_ptr<Engine> engine,
                                                      const std::string& name);
  ~OpenLine();
  OpenLine(const OpenLine&) = delete;
  OpenLine& operator=(const OpenLine&) = delete;

  // Begins a call, for which it reads the input. An error that a call has by itself is this rank's
  // alone, which may make another call instead.
  base::Status start(const Call& call);
  // Waits until all ranks are in their calls, for so long at most. Where these are equal it has
  // written the output, otherwise nothing, on any rank.
  base::Result<Met> wait(base::Nanoseconds patience);

 private:
  OpenLine(std::shared_ptr<Engine> engine, LineHost host, const collectives::Lines& lines,
           const std::string& name);

  const std::shared_ptr<Engine> engine_;
  std::unique_ptr<OpenCalls> calls_;
  bool started_ = false;
  bool waits_ = false;
};

}  // namespace ronde::runtime
