// SPDX-License-Identifier: Apache-2.0
// Between hosts all that tasks say is encrypted (CURVE), with keys from the job's secret. A client
// must know the public key of a server to get as far as its first message, and that key, too, is
// made from the secret: so nobody without it is heard.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ronde::trainer::server {

// In ZeroMQ's text form (Z85).
struct Keys {
  std::string server_public;
  std::string server_secret;
  std::string client_public;
  std::string client_secret;
};

// The keys of a job's secret.
[[nodiscard]] Keys keys_of(const std::string& secret);

// The keys that the tasks at these addresses use: none if all are of this host (loopback, ipc)
// and no secret is given; those of RONDE_JOB_SECRET, or of the file that RONDE_JOB_SECRET_FILE
// names. Throws TrainerError where a secret is needed, too short or cannot be read.
[[nodiscard]] std::optional<Keys> keys_for(const std::vector<std::string>& addresses);

// SHA-256 (FIPS 180-4): the training core sees nothing of Ronde's inside, and ZeroMQ has no hash.
[[nodiscard]] std::array<std::byte, 32> sha256(std::string_view text);

}  // namespace ronde::trainer::server
