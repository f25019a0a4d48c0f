// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: a line of JSON for each interval of steps.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <optional>
#include <string>

namespace ronde::trainer {

// Thread safety: belongs to one thread.
class MetricLog {
 public:
  // Appends to `file`, whose directory is made where it is missing. Lines there of `first_step` and
  // later steps are removed first: an earlier run that went on after its last checkpoint has left
  // them. So is what is no line of a log, such as half a line at the end. Throws DataError, which
  // names the file and the reason.
  MetricLog(const std::string& file, std::uint64_t first_step);

  // {"step": 20, "seconds": <since 1970>, "loss": ...}; a number that is not finite becomes null.
  // What cannot be written is dropped; failed() says so.
  void write(std::uint64_t step, const std::map<std::string, double>& values);
  // The last step that such a file has; empty: it has none, or is not there.
  [[nodiscard]] static std::optional<std::uint64_t> last_step(const std::string& file);
  [[nodiscard]] bool failed() const { return !file_.good(); }

 private:
  std::ofstream file_;
};

}  // namespace ronde::trainer
