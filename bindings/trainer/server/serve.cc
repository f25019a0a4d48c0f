// SPDX-License-Identifier: Apache-2.0
// The loop of a parameter server's process.
#include <algorithm>
#include <optional>
#include <utility>

#include "bindings/trainer/fit/own_time.h"
#include "bindings/trainer/keep/stop_signals.h"
#include "bindings/trainer/server/keys.h"
#include "bindings/trainer/server/message_socket.h"
#include "bindings/trainer/server/parameter_server.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {

namespace {

// Seconds that a server stays after the job is closed, and at most while some task does not know
// it.
constexpr double kStays = 0.3;
constexpr double kStaysAtMost = 5.0;

ServerOptions server_options(const Tasks& tasks, const ParameterServerOptions& options) {
  return {.index = tasks.index,
          .servers = static_cast<std::uint32_t>(tasks.servers.size()),
          .workers = static_cast<std::uint32_t>(tasks.workers.size()),
          .standby = options.standby,
          .has_chief = !tasks.chief.empty(),
          .job = options.job_of(tasks),
          .worker_timeout = options.worker_timeout,
          .start_timeout = options.deadline,
          .start = Tasks{}.self().incarnation,
          .rules = options.rules};
}

}  // namespace

void serve(const Tasks& tasks, const ParameterServerOptions& options) {
  const ServerOptions how = server_options(tasks, options);
  const std::uint32_t index = how.index;
  const std::string name = "ps " + std::to_string(index);
  const PrintLine say = or_stdout(options.say);
  ServerState state(how);
  MessageSocket socket(
      {.self = {Role::kServer, index, how.start},
       .access = access_for(tasks.all()),
       .say = say,
       .most_bytes = [&state](const Address& from) { return state.most_bytes(from); }});
  socket.listen(tasks.servers.at(index));
  if (how.standby && how.servers > 1) {
    const std::uint32_t next = (index + 1) % how.servers;
    socket.connect({Role::kServer, next, 0}, tasks.servers.at(next));
  }
  // A launcher sends SIGTERM to all processes of a job: the chief saves this server's values.
  const StopSignals signals;
  bool said_stop = false;
  say(name + " serves at " + tasks.servers[index]);
  OwnTime time;
  const double start = time.now();
  double tick = start;
  std::optional<double> closed;
  // Unread answers are lost with the connection, so the server stays for a moment.
  while (!closed || time.now() - *closed < (state.all_told() ? kStays : kStaysAtMost)) {
    if (!closed && state.closed()) closed = time.now();
    const auto messages = socket.receive(0.1);
    const double now = time.listened();
    for (const Message& message : messages) {
      for (const Message& one : state.on_message(now, message)) socket.send(one);
    }
    if (signals.stop_asked() && !std::exchange(said_stop, true)) {
      say(name +
          " is to stop: it serves until the chief has closed the job; a second SIGTERM ends it");
    }
    if (state.deposed()) {
      throw TrainerError(name +
                         " was silent for so long that another server has its variables: "
                         "it ends");
    }
    if (now - tick >= 0.1) {
      tick = now;
      for (const Message& one : state.on_tick(now)) socket.send(one);
      for (const std::string& line : state.take_news()) say(name + ": " + line);
    }
    if (now - std::max(start, state.last_heard()) > options.deadline) {
      throw TrainerError(name + " at " + tasks.servers[index] + " has received no message for " +
                         std::to_string(static_cast<long>(options.deadline)) +
                         " s, and ends: start the workers, or it again");
    }
  }
  state.require_no_error();
  say(name + " ends: the chief has closed the job");
}

}  // namespace ronde::trainer::server
