// SPDX-License-Identifier: Apache-2.0
// The secret that the ranks of a job share, so that nobody else gets into their meeting.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace ronde::runtime {

// It is never printed: no text of Ronde holds it, no error either.
//
// Thread safety: a value.
class MeetingSecret {
 public:
  // Shorter secrets could be guessed by whoever has listened to one meeting.
  static constexpr std::size_t kFewestBytes = 16;
  static constexpr std::size_t kMostBytes = 4096;

  MeetingSecret() = default;  // none
  explicit MeetingSecret(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

  [[nodiscard]] bool given() const { return !bytes_.empty(); }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

  // The secret in RONDE_JOB_SECRET, or that in the file that RONDE_JOB_SECRET_FILE names, without
  // blanks and line ends behind it; none where neither is set. `environment`: lines "NAME=value".
  // The file belongs to this user or to root, and nobody else may read it (mode 0600 or less). An
  // error (kInvalidArgument) is one line that names the variable.
  static base::Result<MeetingSecret> of(std::span<const std::string> environment);

 private:
  std::vector<std::byte> bytes_;
};

// What to type to get a secret: the end of an error text.
inline constexpr const char* kSecretAdvice =
    "make one and give it to every rank: "
    "export RONDE_JOB_SECRET=$(head -c 32 /dev/urandom | base64), or "
    "(umask 077; head -c 32 /dev/urandom | base64 > job.secret) and "
    "RONDE_JOB_SECRET_FILE=job.secret";

}  // namespace ronde::runtime
