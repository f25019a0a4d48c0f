// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: a line of JSON for each interval of steps.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "bindings/trainer/disk/log_file.h"

namespace ronde::trainer {

// Thread safety: belongs to one thread.
class MetricLog {
 public:
  // Appends to `file`, whose directory is made where it is missing. Lines there of `first_step` and
  // later steps are removed first: an earlier run that went on after its last checkpoint has left
  // them; and so is half a line at the end. A training that begins `anew` has a file of its own:
  // one that is there is renamed to metrics.<seconds since 1970>.jsonl. Throws DataError, which
  // names the file and the reason.
  MetricLog(const std::string& file, std::uint64_t first_step, bool anew = false);

  // {"step": 20, "seconds": <since 1970>, "loss": ...}; a number that is not finite becomes null.
  // A line that cannot be written is dropped; failed() says so, and is over when the disk is.
  void write(std::uint64_t step, const std::map<std::string, double>& values);
  // The last step that such a file has; empty: it has none, or is not there.
  [[nodiscard]] static std::optional<std::uint64_t> last_step(const std::string& file);
  [[nodiscard]] bool failed() const { return file_->failed(); }

 private:
  std::optional<LogFile> file_;
};

}  // namespace ronde::trainer
