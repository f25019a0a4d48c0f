// SPDX-License-Identifier: Apache-2.0
// How ranks reach rank 0's meeting on another host: their agent listens in its place, under the
// same name, and what it hears goes over ronderun to the agent of rank 0's host, which connects
// there.
#pragma once

#include <poll.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/process/file_descriptor.h"
#include "base/status.h"
#include "launcher/agent/channel.h"
#include "launcher/agent/messages.h"

namespace ronde::launcher {

// The name of the Unix socket at which rank 0 of a job listens, which nobody can guess.
[[nodiscard]] std::string meeting_of(const std::string& job);

// No function blocks. Thread safety: none; for programs of one thread.
class Relays {
 public:
  explicit Relays(const std::string& job) : name_(meeting_of(job)) {}
  // In rank 0's place, where it is elsewhere.
  base::Status listen();

  void add_to(std::vector<pollfd>& entries) const;
  void serve(const std::vector<pollfd>& entries, Channel& ronderun);
  void take(const Relay& message, Channel& ronderun, const base::Clock& clock);

 private:
  struct Line {
    base::FileDescriptor socket;
    std::string pending;
  };
  // False: the line has ended.
  static bool write(Line& line);
  bool read(std::int64_t id, Line& line, Channel& ronderun);
  void accept(Channel& ronderun);

  const std::string name_;
  base::FileDescriptor listener_;
  std::map<std::int64_t, Line> lines_;
  std::int64_t next_ = 0;
};

}  // namespace ronde::launcher
