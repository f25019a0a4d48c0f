// SPDX-License-Identifier: Apache-2.0
// A parameter server's process.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "bindings/trainer/fit/replica.h"
#include "bindings/trainer/keep/stop_signals.h"
#include "bindings/trainer/server/keys.h"
#include "bindings/trainer/server/parameter_server.h"
#include "bindings/trainer/server/post.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {

namespace {

// Seconds that a server stays after the job is closed, and at most for those who ask whether it is.
constexpr double kLastWords = 0.3;
constexpr double kLastQuestions = 5.0;

ServerOptions server_options(const Tasks& tasks, const ParameterServerOptions& options) {
  ServerOptions state;
  state.index = tasks.index;
  state.servers = static_cast<std::uint32_t>(tasks.servers.size());
  state.workers = static_cast<std::uint32_t>(tasks.workers.size());
  state.standby = options.standby;
  state.has_chief = !tasks.chief.empty();
  state.job = options.job_of(tasks);
  state.worker_timeout = options.worker_timeout;
  state.start_timeout = options.deadline;
  state.start = Tasks{}.self().incarnation;
  return state;
}

}  // namespace

void serve(const Tasks& tasks, const ParameterServerOptions& options) {
  const ServerOptions how = server_options(tasks, options);
  const std::uint32_t index = how.index;
  const std::string name = "ps " + std::to_string(index);
  const Say say = options.say ? options.say : [](const std::string& line) {
    std::puts(line.c_str());
    std::fflush(stdout);
  };
  ServerState state(how);
  Post post({.self = {Role::kServer, index, how.start},
             .access = access_for(tasks.all()),
             .say = say,
             .most_bytes = [&state](const Address& from) { return state.most_bytes(from); }});
  post.listen(tasks.servers.at(index));
  if (how.standby && how.servers > 1) {
    const std::uint32_t next = (index + 1) % how.servers;
    post.connect({Role::kServer, next, 0}, tasks.servers.at(next));
  }
  // A launcher that ends a job tells all of its processes: the others save what this one has.
  const StopSignals signals;
  bool said_stop = false;
  say(name + " serves at " + tasks.servers[index]);
  const double start = steady_seconds();
  double tick = start;
  std::optional<double> closed;
  // Answers that have not been read are lost with the connection, so it stays for a moment.
  while (!closed || steady_seconds() - *closed < (state.all_told() ? kLastWords : kLastQuestions)) {
    if (!closed && state.closed()) closed = steady_seconds();
    for (const Message& message : post.receive(0.1)) {
      for (const Message& one : state.on_message(steady_seconds(), message)) post.send(one);
    }
    const double now = steady_seconds();
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
      for (const Message& one : state.on_tick(now)) post.send(one);
      for (const std::string& line : state.take_news()) say(name + ": " + line);
    }
    if (now - std::max(start, state.last_heard()) > options.deadline) {
      throw TrainerError(name + " at " + tasks.servers[index] + " has heard nobody for " +
                         std::to_string(static_cast<long>(options.deadline)) +
                         " s, and ends: start the workers, or it again");
    }
  }
  say(name + " ends: the chief has closed the job");
}

}  // namespace ronde::trainer::server
