// SPDX-License-Identifier: Apache-2.0
// The file of a job's secret, and who else may read it there. Headers alone, so that programs that
// see no other part of Ronde may include it.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <string>
#include <system_error>

namespace ronde::base {

struct SecretOrError {
  std::string secret;
  std::string error;  // one line that names the variable; empty: none
};

// Shorter secrets could be guessed by whoever has listened to one meeting.
inline constexpr std::size_t kFewestSecretBytes = 16;
inline constexpr std::size_t kMostSecretBytes = 4096;

// What to type to get a secret: the end of an error text.
inline constexpr const char* kSecretAdvice =
    "make one and give it to every rank: "
    "export RONDE_JOB_SECRET=$(head -c 32 /dev/urandom | base64), or "
    "(umask 077; head -c 32 /dev/urandom | base64 > job.secret) and "
    "RONDE_JOB_SECRET_FILE=job.secret";

namespace secret_file {

// The file belongs to this user or to root, and nobody else may read it (mode 0600 or less); or it
// is one that Kubernetes has made for a group: root's, of mode 0440.
inline std::string check(int file, const std::string& where) {
  struct stat found {};
  if (::fstat(file, &found) != 0)
    return where + " could not be read: " + std::generic_category().message(errno);
  if (!S_ISREG(found.st_mode)) return where + " is no ordinary file";
  if (found.st_uid != ::geteuid() && found.st_uid != 0) {
    return where + " belongs to user " + std::to_string(found.st_uid) +
           ", who knows the secret then: use a file of this user (" + std::to_string(::geteuid()) +
           ") or of root";
  }
  const unsigned mode = found.st_mode & 0777U;
  if ((mode & 077U) == 0 || (found.st_uid == 0 && mode == 0440U)) return "";
  std::string text = "0";
  for (const unsigned shift : {6U, 3U, 0U}) text += char('0' + ((mode >> shift) & 7U));
  return where + " has mode " + text +
         ", so others can read the secret: chmod 600 the file (of root's files 0440 will do, too)";
}

inline SecretOrError read(const std::string& path, const std::string& where) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0)
    return {"", where + " could not be opened: " + std::generic_category().message(errno)};
  SecretOrError content{std::string(kMostSecretBytes + 3, '\0'), check(file, where)};
  std::size_t size = 0;
  while (content.error.empty() && size < content.secret.size()) {
    const ssize_t got = ::read(file, content.secret.data() + size, content.secret.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      content.error = where + " could not be read: " + std::generic_category().message(errno);
    if (got <= 0) break;
    size += static_cast<std::size_t>(got);
  }
  ::close(file);
  content.secret.resize(content.error.empty() ? size : 0);
  return content;
}

}  // namespace secret_file

// The secret of a job: the text of RONDE_JOB_SECRET, or that in the file that RONDE_JOB_SECRET_FILE
// names, without blanks and line ends behind it; neither text nor error where neither is set.
inline SecretOrError secret_of(const std::optional<std::string>& text,
                               const std::optional<std::string>& path) {
  if (text && path) {
    return {"", "RONDE_JOB_SECRET and RONDE_JOB_SECRET_FILE are both set: unset one of them"};
  }
  if (!text && !path) return {};
  const std::string where = text ? "RONDE_JOB_SECRET" : "RONDE_JOB_SECRET_FILE=" + *path;
  SecretOrError given = text ? SecretOrError{*text, ""} : secret_file::read(*path, where);
  if (!given.error.empty()) return given;
  const std::size_t end = given.secret.find_last_not_of(" \t\r\n");
  given.secret.resize(end == std::string::npos ? 0 : end + 1);
  if (given.secret.size() < kFewestSecretBytes) {
    return {"", where + " holds a secret of " + std::to_string(given.secret.size()) +
                    " bytes, which could be guessed: use at least " +
                    std::to_string(kFewestSecretBytes) + "; " + kSecretAdvice};
  }
  if (given.secret.size() > kMostSecretBytes) {
    return {"", where + " holds more than " + std::to_string(kMostSecretBytes) +
                    " bytes: it should hold the secret alone"};
  }
  return given;
}

}  // namespace ronde::base
