// SPDX-License-Identifier: Apache-2.0
// The fields of the messages.
#include "launcher/agent/messages.h"

#include "base/codec.h"

namespace ronde::launcher {

void fields(auto& f, base::Is<AgentHello> auto& m) {
  f(m.version, m.host_name, m.identity, m.cores);
}
void fields(auto& f, base::Is<StartRanks> auto& m) {
  f(m.job, m.size, m.first, m.count, m.local_first, m.local_size, m.mpirun, m.relays, m.argv,
    m.environment, m.folder, m.output_dir, m.start_line, m.binding, m.link_timeout_ms);
}
void fields(auto& f, base::Is<Input> auto& m) { f(m.bytes); }
void fields(auto& /*f*/, base::Is<InputTaken> auto& /*m*/) {}
void fields(auto& f, base::Is<Credit> auto& m) { f(m.bytes); }
void fields(auto& f, base::Is<SignalRanks> auto& m) { f(m.signal); }
void fields(auto& f, base::Is<EndRanks> auto& m) { f(m.now); }
void fields(auto& f, base::Is<Relay> auto& m) {
  f(m.connection);
  f.among(m.what, Relay::What::kOpen, Relay::What::kClose, "an unknown kind of relay");
  f(m.bytes);
}
void fields(auto& /*f*/, base::Is<Heartbeat> auto& /*m*/) {}
void fields(auto& f, base::Is<Started> auto& m) { f(m.rank, m.pid); }
void fields(auto& f, base::Is<AgentFailed> auto& m) { f(m.exit_code, m.text); }
void fields(auto& f, base::Is<Printed> auto& m) { f(m.rank, m.error, m.bytes); }
void fields(auto& f, base::Is<Ended> auto& m) { f(m.rank, m.status, m.last_line); }
void fields(auto& f, base::Is<Leftovers> auto& m) { f(m.processes, m.name); }
void fields(auto& f, base::Is<AgentMessage> auto& m) { f.one_of(m, 1, "an unknown kind"); }

std::vector<std::byte> encode(const AgentMessage& message) { return base::encoded(message); }

base::Result<AgentMessage> decode_agent_message(std::span<const std::byte> bytes) {
  auto message = base::decoded<AgentMessage>(bytes);
  if (message.ok()) return message;
  return base::Status::error(base::Code::kInvalidArgument,
                             "the agent of that host is of another version of Ronde: install the "
                             "same on every host",
                             message.status());
}

}  // namespace ronde::launcher
