// SPDX-License-Identifier: Apache-2.0
// Between hosts all that tasks say is encrypted (CURVE), with keys from the job's secret. A client
// must know the public key of a server to get as far as its first message, and that key, too, is
// made from the secret: so nobody without it is heard.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ronde::trainer::server {

// In ZeroMQ's text form (Z85).
struct Keys {
  std::string server_public;
  std::string server_secret;
  std::string client_public;
  std::string client_secret;
};

// The keys of a job's secret, by SHA-256 (libsodium's, which ZeroMQ encrypts with, too).
[[nodiscard]] Keys keys_of(const std::string& secret);

// The keys that the tasks at these addresses use: none if all are of this host (loopback, ipc)
// and no secret is given; those of RONDE_JOB_SECRET, or of the file that RONDE_JOB_SECRET_FILE
// names. Throws TrainerError where a secret is needed, too short or cannot be read.
[[nodiscard]] std::optional<Keys> keys_for(const std::vector<std::string>& addresses);

}  // namespace ronde::trainer::server
