// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/server/keys.h"

#include <fcntl.h>
#include <sodium/crypto_hash_sha256.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/words/secret_file.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer::server {

namespace {

// Read when this library is loaded, since an engine removes it from the environment.
// NOLINTNEXTLINE(bugprone-throwing-static-initialization): it catches all
const std::optional<std::string> kSecretAtStart = []() noexcept -> std::optional<std::string> {
  try {
    return variable("RONDE_JOB_SECRET");
  } catch (...) {
    return std::nullopt;  // no memory: the next allocation reports it
  }
}();

// A key made from the secret, as ZeroMQ's text.
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
  // "127.example.org:1" is a name, and a name binds all addresses of the host.
  const bool numeric = address.find_first_not_of("0123456789.:") == std::string_view::npos;
  return address.starts_with("ipc://") || (numeric && address.starts_with("127.")) ||
         address.starts_with("localhost:") || address.starts_with("[::1]:");
}

// The same folder for all processes of this user, with any environment. The session's folder, which
// only some processes know, is the second choice, if another user has made the first one.
std::string folder_of_this_user() {
  const std::string first = "/tmp/ronde-" + std::to_string(::geteuid());
  const auto session = variable("XDG_RUNTIME_DIR");
  for (const std::string& path : {first, session ? *session + "/ronde" : first}) {
    (void)::mkdir(path.c_str(), 0700);
    struct stat found {};
    if (::lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
        found.st_uid == ::geteuid() && (found.st_mode & 077U) == 0) {
      return path;
    }
  }
  throw TrainerError("tasks on one host meet at sockets in " + first +
                         ", which is no folder of this user alone: remove it, or set "
                         "XDG_RUNTIME_DIR to a folder of mode 0700 for all tasks",
                     kExitConfiguration);
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

std::string socket_in(const std::string& folder, const std::string& address) {
  constexpr std::string_view kName = "localhost:";
  std::string name =
      address.starts_with(kName) ? "127.0.0.1:" + address.substr(kName.size()) : address;
  std::ranges::replace(name, '/', '_');
  return folder + "/" + name;
}

SocketLock::~SocketLock() {
  if (file_ < 0) return;
  ::unlink(path_.c_str());
  ::unlink((path_ + ".lock").c_str());
  ::close(file_);
}

bool SocketLock::take(const std::string& path) {
  const std::string lock = path + ".lock";
  while (file_ < 0) {
    const int file = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return false;
    const bool taken = ::flock(file, LOCK_EX | LOCK_NB) == 0;
    const int error = errno == EWOULDBLOCK ? EADDRINUSE : errno;
    // The process that had it before may have removed the file since it was opened.
    struct stat held {};
    struct stat named {};
    if (taken && ::fstat(file, &held) == 0 && ::stat(lock.c_str(), &named) == 0 &&
        held.st_ino == named.st_ino) {
      path_ = path;
      file_ = file;
      break;
    }
    ::close(file);
    errno = error;
    if (!taken) return false;
  }
  return true;
}

Access access_for(const std::vector<std::string>& addresses) {
  const auto text = variable("RONDE_JOB_SECRET");
  const auto path = variable("RONDE_JOB_SECRET_FILE");
  const auto [secret, error] = base::secret_of(text || path ? text : kSecretAtStart, path);
  if (!error.empty()) throw TrainerError(error, kExitConfiguration);
  if (secret.empty()) {
    const auto far = std::ranges::find_if_not(addresses, is_of_this_host);
    if (far == addresses.end()) return {.keys = {}, .folder = folder_of_this_user()};
    throw TrainerError("the task at " + *far +
                           " is on the network, where tasks need a secret to know each other: " +
                           base::kSecretAdvice,
                       kExitConfiguration);
  }
  return {.keys = keys_of(secret), .folder = {}};
}

}  // namespace ronde::trainer::server
