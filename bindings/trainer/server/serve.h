// SPDX-License-Identifier: Apache-2.0
// A parameter server's process.
#pragma once

#include <string>
#include <vector>

#include "bindings/trainer/loop/callbacks.h"
#include "bindings/trainer/server/keys.h"
#include "bindings/trainer/server/protocol.h"

namespace ronde::trainer::server {

struct ServeOptions {
  ServerOptions state;
  std::vector<std::string> servers;  // all addresses
  std::optional<Keys> keys;
  double idle_timeout = 300.0;  // seconds without a word from anyone
  Say say;                      // empty: on standard output
};

// Serves until the chief closes the job. Throws TrainerError where the port is taken, where nobody
// has said anything for idle_timeout, and where another server has taken over.
void serve(const ServeOptions& options);

}  // namespace ronde::trainer::server
