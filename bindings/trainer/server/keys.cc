// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/server/keys.h"

#include <fcntl.h>
#include <sodium/crypto_hash_sha256.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer::server {

namespace {

constexpr std::size_t kFewestBytes = 16;
constexpr std::size_t kMostBytes = 4096;
constexpr const char* kAdvice =
    "make one and give it to every task: "
    "export RONDE_JOB_SECRET=$(head -c 32 /dev/urandom | base64)";

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

std::string read_secret(const std::string& path) {
  const std::string where = "RONDE_JOB_SECRET_FILE=" + path;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) throw TrainerError(where + " cannot be opened", kExitConfiguration);
  struct stat found {};
  std::string text(kMostBytes + 3, '\0');
  const bool safe = ::fstat(file, &found) == 0 && S_ISREG(found.st_mode) &&
                    (found.st_uid == ::geteuid() || found.st_uid == 0) &&
                    (found.st_mode & 077U) == 0;
  const auto size = safe ? ::read(file, text.data(), text.size()) : -1;
  ::close(file);
  if (!safe) {
    throw TrainerError(where +
                           " must be an ordinary file of this user that nobody else may read: "
                           "chmod 600 the file",
                       kExitConfiguration);
  }
  text.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  return text;
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
  if (text && path) {
    throw TrainerError("RONDE_JOB_SECRET and RONDE_JOB_SECRET_FILE are both set: unset one of them",
                       kExitConfiguration);
  }
  if (!text && !path) {
    const auto far = std::ranges::find_if_not(addresses, is_of_this_host);
    if (far == addresses.end()) return {};
    throw TrainerError(
        "the task at " + *far +
            " is on the network, where tasks need a secret to know each other: " + kAdvice,
        kExitConfiguration);
  }
  std::string secret = text ? *text : read_secret(*path);
  const std::size_t end = secret.find_last_not_of(" \t\r\n");
  secret.resize(end == std::string::npos ? 0 : end + 1);
  if (secret.size() < kFewestBytes || secret.size() > kMostBytes) {
    throw TrainerError("the job's secret has " + std::to_string(secret.size()) +
                           " bytes, and must have " + std::to_string(kFewestBytes) + " to " +
                           std::to_string(kMostBytes) + ": " + kAdvice,
                       kExitConfiguration);
  }
  return keys_of(secret);
}

}  // namespace ronde::trainer::server
