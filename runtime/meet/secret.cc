// SPDX-License-Identifier: Apache-2.0
// Where the secret of a job is read, and who else may read it there.
#include "runtime/meet/secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "base/numbers.h"
#include "base/process/file_descriptor.h"
#include "runtime/meet/variables.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr const char* kText = "RONDE_JOB_SECRET";
constexpr const char* kFile = "RONDE_JOB_SECRET_FILE";

Status refused_secret(const std::string& text) {
  return Status::error(Code::kInvalidArgument, text);
}

// `where`: the variable, and the file if it is one.
Result<MeetingSecret> checked(std::string_view text, const std::string& where) {
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  text = text.substr(0, end == std::string_view::npos ? 0 : end + 1);
  if (text.size() < MeetingSecret::kFewestBytes) {
    return refused_secret(where + " holds a secret of " + std::to_string(text.size()) +
                          " bytes, which could be guessed: use at least " +
                          std::to_string(MeetingSecret::kFewestBytes) + "; " + kSecretAdvice);
  }
  if (text.size() > MeetingSecret::kMostBytes) {
    return refused_secret(where + " holds more than " + std::to_string(MeetingSecret::kMostBytes) +
                          " bytes: it should hold the secret alone");
  }
  const auto bytes = std::as_bytes(std::span(text));
  return MeetingSecret({bytes.begin(), bytes.end()});
}

Status check_file(int file, const std::string& where) {
  struct stat found {};
  if (::fstat(file, &found) != 0) return Status::system(where + " could not be read", errno);
  if (!S_ISREG(found.st_mode)) return refused_secret(where + " is no ordinary file");
  if (found.st_uid != ::geteuid() && found.st_uid != 0) {
    return refused_secret(where + " belongs to user " + std::to_string(found.st_uid) +
                          ", who knows the secret then: use a file of this user (" +
                          std::to_string(::geteuid()) + ") or of root");
  }
  if ((found.st_mode & 077U) != 0) {
    constexpr std::string_view kOctal = "01234567";
    std::string mode = "0";
    for (const unsigned shift : {6U, 3U, 0U}) mode += kOctal[(found.st_mode >> shift) & 7U];
    return refused_secret(where + " has mode " + mode +
                          ", so others can read the secret: chmod 600 the file");
  }
  return {};
}

Result<MeetingSecret> secret_of_file(const std::string& path) {
  const std::string where = std::string(kFile) + "=" + path;
  const base::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid())
    return refused_secret(Status::system(where + " could not be opened", errno).message());
  RONDE_RETURN_IF_ERROR(check_file(file.get(), where));
  // One byte more than a secret may have, with room for a line end.
  std::array<char, MeetingSecret::kMostBytes + 3> text{};
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return refused_secret(Status::system(where + " could not be read", errno).message());
    if (got == 0) break;
    size += base::narrow<std::size_t>(got);
  }
  return checked({text.data(), size}, where);
}

}  // namespace

Result<MeetingSecret> MeetingSecret::of(std::span<const std::string> environment) {
  const auto text = variable(environment, kText);
  const auto path = variable(environment, kFile);
  if (text && path) {
    return refused_secret(std::string(kText) + " and " + kFile +
                          " are both set: unset one of them");
  }
  if (text) return checked(*text, kText);
  if (path) return secret_of_file(*path);
  return MeetingSecret();
}

}  // namespace ronde::runtime
