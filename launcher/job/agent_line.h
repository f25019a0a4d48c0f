// SPDX-License-Identifier: Apache-2.0
// ronderun's line to the agent of one host: how it is started, whether it is heard, and what it has
// said before it could say anything.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/process/file_descriptor.h"
#include "base/status.h"
#include "launcher/agent/channel.h"
#include "launcher/agent/messages.h"
#include "launcher/lines.h"
#include "launcher/output.h"
#include "launcher/signals.h"

namespace ronde::launcher {

// Owns the process that carries the line, which its destructor kills.
//
// Thread safety: none; for programs of one thread.
class AgentLine {
 public:
  // Forks the agent of this host. Before any other line is there: it would hold its ends open.
  static base::Result<AgentLine> here(const Signals& signals);
  // Starts one there: the words of a command, to which the program is added.
  static base::Result<AgentLine> there(const std::vector<std::string>& command,
                                       const std::string& host, const std::string& program,
                                       const Signals& signals);
  AgentLine(AgentLine&&) noexcept = default;
  AgentLine& operator=(AgentLine&&) = delete;
  AgentLine(const AgentLine&) = delete;
  AgentLine& operator=(const AgentLine&) = delete;
  ~AgentLine();

  void send(const AgentMessage& message) { channel_.send(encode(message)); }
  void add_to(std::vector<pollfd>& entries) const;
  // Reads and writes; what the command prints goes to `output`, as a line of its own.
  void serve(Output& output);
  // The next message that has arrived.
  base::Result<std::optional<AgentMessage>> next();

  [[nodiscard]] bool closed() const { return channel_.closed(); }
  // The last line that the command has printed.
  [[nodiscard]] const std::string& last_words() const { return words_.text(); }

 private:
  AgentLine(Channel channel, pid_t pid, base::FileDescriptor errors, bool marked)
      : channel_(std::move(channel)), pid_(pid), errors_(std::move(errors)), marked_(marked) {}

  // Moves with the line.
  struct Pid {
    explicit Pid(pid_t pid) : value(pid) {}
    Pid(Pid&& other) noexcept : value(std::exchange(other.value, 0)) {}
    pid_t value;
  };

  Channel channel_;
  Pid pid_;
  base::FileDescriptor errors_;  // of the command
  bool marked_;                  // what arrives is frames
  LastLine words_;
};

// The words that start an agent on a host.
[[nodiscard]] std::vector<std::string> command_for(const std::vector<std::string>& command,
                                                   const std::string& host,
                                                   const std::string& program);

}  // namespace ronde::launcher
