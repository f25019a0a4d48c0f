// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/server/keys.h"

#include <sodium/crypto_hash_sha256.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/words/secret_file.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer::server {

namespace {

// As it was when this library was loaded: an engine takes it out of the environment.
// NOLINTNEXTLINE(bugprone-throwing-static-initialization): it catches all
const std::optional<std::string> kSecretAtStart = []() noexcept -> std::optional<std::string> {
  try {
    return variable("RONDE_JOB_SECRET");
  } catch (...) {
    return std::nullopt;  // no memory, of which others will hear
  }
}();

// ZeroMQ's text of a key that everybody makes who has the secret.
std::string key_of(const std::string& purpose, const std::string& secret) {
  const std::string text = purpose + "\n" + secret;
  std::array<std::uint8_t, crypto_hash_sha256_BYTES> key{};
  crypto_hash_sha256(key.data(), reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  std::array<char, 41> encoded{};
  zmq_z85_encode(encoded.data(), key.data(), key.size());
  return encoded.data();
}

std::string public_of(const std::string& secret) {
  std::array<char, 41> text{};
  if (zmq_curve_public(text.data(), secret.c_str()) != 0) {
    throw TrainerError("this ZeroMQ has no CURVE: install one that was built with it",
                       kExitConfiguration);
  }
  return text.data();
}

bool is_of_this_host(std::string_view address) {
  // Not "127.example.org:1", a name, for which all addresses of the host would be bound.
  const bool numeric = address.find_first_not_of("0123456789.:") == std::string_view::npos;
  return address.starts_with("ipc://") || (numeric && address.starts_with("127.")) ||
         address.starts_with("localhost:") || address.starts_with("[::1]:");
}

}  // namespace

Keys keys_of(const std::string& secret) {
  Keys keys;
  keys.server_secret = key_of("ronde parameter server, its key", secret);
  keys.client_secret = key_of("ronde parameter server, a client's key", secret);
  keys.server_public = public_of(keys.server_secret);
  keys.client_public = public_of(keys.client_secret);
  return keys;
}

std::optional<Keys> keys_for(const std::vector<std::string>& addresses) {
  const auto text = variable("RONDE_JOB_SECRET");
  const auto path = variable("RONDE_JOB_SECRET_FILE");
  const auto [secret, error] = base::secret_of(text || path ? text : kSecretAtStart, path);
  if (!error.empty()) throw TrainerError(error, kExitConfiguration);
  if (secret.empty()) {
    const auto far = std::ranges::find_if_not(addresses, is_of_this_host);
    if (far == addresses.end()) return {};
    throw TrainerError("the task at " + *far +
                           " is on the network, where tasks need a secret to know each other: " +
                           base::kSecretAdvice,
                       kExitConfiguration);
  }
  return keys_of(secret);
}

}  // namespace ronde::trainer::server
