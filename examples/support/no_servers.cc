// SPDX-License-Identifier: Apache-2.0
// Stands in for ronde::parameter_server where ZeroMQ was missing at configure, and in the program
// of ./dev demo.
#include "bindings/trainer/server/strategy/settings.h"

namespace ronde::trainer::server {

void add_server_flags(FlagTable& /*table*/, ServerSettings& /*settings*/) {}

ServedMaker served_by(const ServerSettings& /*settings*/) {
  return [](int /*threads*/) -> std::unique_ptr<Strategy> {
    throw TrainerError(
        "--strategy server is not in this program: use that of ./dev build, in build/release/bin, "
        "which needs Debian's cppzmq-dev and libsodium-dev",
        kExitConfiguration);
  };
}

}  // namespace ronde::trainer::server
