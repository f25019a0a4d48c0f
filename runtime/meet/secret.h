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
  MeetingSecret() = default;  // none
  explicit MeetingSecret(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

  [[nodiscard]] bool given() const { return !bytes_.empty(); }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

  // base/words/secret_file.h says where it is; none where neither variable is set. `environment`:
  // lines "NAME=value". An error (kInvalidArgument) is one line that names the variable.
  static base::Result<MeetingSecret> of(std::span<const std::string> environment);
  // That of this process. Takes it out of the environment, where children and other processes of
  // this user would find it, and keeps it for further engines. Any thread.
  static base::Result<MeetingSecret> of_this_process();

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace ronde::runtime
