// SPDX-License-Identifier: Apache-2.0
// What ronderun and the agent of a host say to each other. Plain values and pure functions; each
// message is a frame of a Channel.
//
//   ronderun                              agent
//                                    <-   the line kAgentMark (elsewhere), then hello
//   start                             ->  starts the ranks of its host
//                                    <-   started, of each
//   input: for rank 0's standard input->
//                                    <-   input taken
//                                    <-   output: what a rank has printed, as far as it has credit
//   credit                            ->
//   signal, end                       ->
//                                    <-   ended, of each: exit code or signal, and its last line
//                                    <-   rest: what they have left behind; none: the agent ends
//   relay                            <->  a connection to rank 0's meeting, from another host
//   beat                             <->  so that both know that the line is not cut
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"

namespace ronde::launcher {

// Before it an ssh may have printed anything.
inline constexpr const char* kAgentMark = "\nthis is an agent of ronderun\n";

struct AgentHello {
  std::string version;
  std::string host_name;
  std::string identity;  // the same for agents of one host, under whichever names
  std::int64_t cores = 0;
};

// The processes of one host. Those of a job of ronderun are its ranks; where mpirun starts the
// ranks, it is the only one.
struct StartRanks {
  std::string job;        // names the meeting of the ranks
  std::int32_t size = 0;  // of the whole job
  std::int32_t first = 0;
  std::int32_t count = 0;
  std::int32_t local_first = 0;  // among the ranks of the machine, which may have several names
  std::int32_t local_size = 0;
  bool mpirun = false;
  bool relays = false;  // the agent listens in rank 0's place, which is on another host
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // lines "NAME=value", added to the agent's own
  std::string folder;                    // where they work
  std::string output_dir;                // for files of their output; empty: it comes back
  std::string start_line;                // in these files, before what they print
  std::string binding = "none";          // "core", "numa", or "auto"
  std::int64_t link_timeout_ms = 0;      // who hears nothing for so long takes the other for dead
};
struct Input {
  std::string bytes;  // none: the end
};
struct InputTaken {};
struct Credit {
  std::int64_t bytes = 0;
};
struct SignalRanks {
  std::int32_t signal = 0;  // to the ranks alone
};
// Ends them, and what they have left behind.
struct EndRanks {
  bool now = false;  // without asking them first
};
struct Relay {
  enum class What : std::uint8_t { kOpen, kBytes, kClose };
  std::int64_t connection = 0;
  What what = What::kBytes;
  std::string bytes;
};
struct Heartbeat {};
struct Started {
  std::int32_t rank = 0;
  std::int64_t pid = 0;
};
// The agent gives up: nothing could be started, or what runs cannot go on.
struct AgentFailed {
  std::int32_t exit_code = 1;
  std::string text;
};
struct Printed {
  std::int32_t rank = 0;
  bool error = false;
  std::string bytes;
};
struct Ended {
  std::int32_t rank = 0;
  std::int32_t status = 0;  // as waitpid() has it
  std::string last_line;    // that it has printed on its standard error
};
// All have ended; of what they have started, so many are left.
struct Leftovers {
  std::int64_t processes = 0;
  std::string name;  // of one
};

using AgentMessage =
    std::variant<AgentHello, StartRanks, Input, InputTaken, Credit, SignalRanks, EndRanks, Relay,
                 Heartbeat, Started, AgentFailed, Printed, Ended, Leftovers>;

[[nodiscard]] std::vector<std::byte> encode(const AgentMessage& message);
base::Result<AgentMessage> decode_agent_message(std::span<const std::byte> bytes);

}  // namespace ronde::launcher
