// SPDX-License-Identifier: Apache-2.0
// Stands in for ronde::parameter_server where ZeroMQ was missing at configure.
#include "bindings/trainer/server/program/training.h"

namespace ronde::trainer::server {

void add_server_flags(FlagTable& /*table*/, ServerSettings& /*settings*/) {}

int train_on_servers(const ServerSettings& /*settings*/, const ServerTraining& /*training*/) {
  throw TrainerError(
      "--strategy server needs a build with ZeroMQ: install Debian's cppzmq-dev and libsodium-dev, "
      "and configure again",
      kExitConfiguration);
}

}  // namespace ronde::trainer::server
