// SPDX-License-Identifier: Apache-2.0
// Who may speak to the tasks of a job. With a secret all that they say is encrypted (CURVE), with
// keys from it. A client must know the public key of a server to get as far as its first message,
// and that key, too, is made from the secret: so nobody without it is heard. On one host, without a
// secret, tasks meet at Unix sockets in a folder that no other user may enter.
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

// One of the two, where any task may connect.
struct Access {
  std::optional<Keys> keys;
  std::string folder;  // of Unix sockets, which are named by addresses
};

// How the tasks at these addresses meet: with the keys of RONDE_JOB_SECRET, or of the file that
// RONDE_JOB_SECRET_FILE names; without either in the folder, if all addresses are of this host
// (loopback, ipc). Throws TrainerError where a secret is needed, too short or cannot be read, and
// where this user can have no folder of its own.
[[nodiscard]] Access access_for(const std::vector<std::string>& addresses);

// The name of a task's socket in a folder.
[[nodiscard]] std::string socket_in(const std::string& folder, const std::string& address);

// Who listens at a socket in a folder, as long as this object lives: ZeroMQ would take its name
// from a process that listens there, and leaves it behind.
class SocketLock {
 public:
  SocketLock() = default;
  SocketLock(const SocketLock&) = delete;
  SocketLock& operator=(const SocketLock&) = delete;
  ~SocketLock();

  // False, with errno set: another process has it, or it cannot be had.
  bool take(const std::string& path);

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace ronde::trainer::server
