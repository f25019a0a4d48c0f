// SPDX-License-Identifier: Apache-2.0
// How the tasks of a job keep strangers out. With a secret all messages are encrypted (CURVE), with
// keys made from the secret. A client needs the server's public key to send its first message, and
// that key is made from the secret, too: so a server reads no message of a process without it. On
// one host, without a secret, tasks meet at Unix sockets in a folder of this user.
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

// The keys of a job's secret, by the SHA-256 of libsodium, which ZeroMQ encrypts with.
[[nodiscard]] Keys keys_of(const std::string& secret);

// One of the two is set.
struct Access {
  std::optional<Keys> keys;
  std::string folder;  // of the Unix sockets, which are named by addresses
};

// How the tasks at these addresses meet: with the keys of RONDE_JOB_SECRET, or of the file that
// RONDE_JOB_SECRET_FILE names; without either in the folder, if all addresses are of this host
// (loopback, ipc). Throws TrainerError if a secret is needed, too short or cannot be read, and if
// this user cannot have a folder of its own.
[[nodiscard]] Access access_for(const std::vector<std::string>& addresses);

// The name of a task's socket in a folder.
[[nodiscard]] std::string socket_in(const std::string& folder, const std::string& address);

// Holds the name of a Unix socket as long as this object lives. ZeroMQ alone would take the name
// from another process that listens there, and leaves the file behind.
class SocketLock {
 public:
  SocketLock() = default;
  SocketLock(const SocketLock&) = delete;
  SocketLock& operator=(const SocketLock&) = delete;
  ~SocketLock();

  // Returns false, with errno set, if another process has the name, or the file cannot be made.
  bool take(const std::string& path);

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace ronde::trainer::server
