// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/server/serve.h"

#include <cstdio>
#include <utility>

#include "bindings/trainer/loop/replica.h"
#include "bindings/trainer/server/post.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {

void serve(const ServeOptions& options) {
  const std::uint32_t index = options.state.index;
  const std::string name = "ps " + std::to_string(index);
  const Say say = options.say ? options.say : [](const std::string& line) {
    std::puts(line.c_str());
    std::fflush(stdout);
  };
  Post post({.self = {Role::kServer, index, 0}, .keys = options.keys, .say = say});
  post.listen(options.servers.at(index));
  if (options.state.standby && options.state.servers > 1) {
    const std::uint32_t next = (index + 1) % options.state.servers;
    post.connect({Role::kServer, next, 0}, options.servers.at(next));
  }
  ServerState state(options.state);
  say(name + " serves at " + options.servers[index]);
  const double start = steady_seconds();
  double tick = start;
  while (!state.closed()) {
    for (const Message& message : post.receive(0.1)) {
      for (const Message& one : state.on_message(steady_seconds(), message)) post.send(one);
    }
    const double now = steady_seconds();
    if (state.deposed()) {
      throw TrainerError(name +
                         " was silent for so long that another server has its variables: "
                         "it ends");
    }
    if (now - tick >= 0.1) {
      tick = now;
      for (const Message& one : state.on_tick(now)) post.send(one);
    }
    if (now - std::max(start, state.last_heard()) > options.idle_timeout) {
      throw TrainerError(name + " at " + options.servers[index] + " has heard nobody for " +
                         std::to_string(static_cast<long>(options.idle_timeout)) +
                         " s, and ends: start the workers, or it again");
    }
  }
  say(name + " ends: the chief has closed the job");
}

}  // namespace ronde::trainer::server
