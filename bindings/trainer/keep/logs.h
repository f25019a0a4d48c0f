// SPDX-License-Identifier: Apache-2.0
// The logs of a training: event files of TensorBoard, which are records of protobuf messages
// (event.proto), each with its length and masked CRC-32C checksums; and lines of JSON.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace ronde::trainer {

// A file on a disk that may fail for a while: an entry is written whole or not at all.
//
// Thread safety: belongs to one thread.
class LogFile {
 public:
  // Makes its directory where that is missing. Throws FileError where the file cannot be written.
  explicit LogFile(std::string path);

  // Appends all of it, or nothing: then failed() is true until the next call that succeeds.
  void append(std::string_view bytes);
  [[nodiscard]] bool failed() const noexcept { return error_ != 0; }
  // The errno with which the last append() has failed, or 0.
  [[nodiscard]] int error() const noexcept { return error_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  int try_append(std::string_view bytes);

  std::string path_;
  int error_ = 0;
};

// CRC-32C (Castagnoli), and as it is in the records of TensorFlow: rotated, and a constant added.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);
[[nodiscard]] std::uint32_t masked_crc32c(std::string_view bytes);

// Writes <directory>/events.out.tfevents.<seconds>.<host>.<pid>.ronde, a new file each time, as
// TensorBoard expects it: the seconds are those since 1970, or later ones, so that the name comes
// after those of existing files. flush() drops entries that it cannot write; failed() is true until
// the disk works again.
//
// Thread safety: belongs to one thread.
class EventWriter {
 public:
  // Makes the directory if it is missing. Entries of an earlier run from `first_step` on are void
  // (TensorBoard's SessionLog START), since this run makes these steps again. Throws DataError,
  // which names the directory and the reason.
  EventWriter(const std::string& directory, std::uint64_t first_step);

  void scalar(const std::string& tag, std::uint64_t step, double value);
  // Shown by TensorBoard as text (Markdown).
  void text(const std::string& tag, std::uint64_t step, const std::string& value);
  // Writes all since the last call.
  void flush();
  [[nodiscard]] bool failed() const { return file_->failed(); }
  [[nodiscard]] const std::string& path() const noexcept { return file_->path(); }

 private:
  void write(const std::string& event);

  std::optional<LogFile> file_;
  std::string records_;
};

// metrics.jsonl: a line of JSON for each interval of steps.
//
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
  // Drops a line that cannot be written; failed() is true until the disk works again.
  void write(std::uint64_t step, const std::map<std::string, double>& values);
  // The last step that such a file has; empty: it has none, or is not there.
  [[nodiscard]] static std::optional<std::uint64_t> last_step(const std::string& file);
  [[nodiscard]] bool failed() const { return file_->failed(); }

 private:
  std::optional<LogFile> file_;
};

// Both, in a directory.
//
// Thread safety: belongs to one thread.
class TrainingLogs {
 public:
  // As EventWriter, and MetricLog of <directory>/metrics.jsonl.
  TrainingLogs(const std::string& directory, std::uint64_t first_step, bool anew)
      : events_(directory, first_step), lines_(directory + "/metrics.jsonl", first_step, anew) {}

  void text(const std::string& tag, std::uint64_t step, const std::string& value) {
    events_.text(tag, step, value);
    events_.flush();
  }
  void write(std::uint64_t step, const std::map<std::string, double>& values) {
    for (const auto& [tag, value] : values) events_.scalar(tag, step, value);
    events_.flush();
    lines_.write(step, values);
  }
  [[nodiscard]] bool failed() const { return events_.failed() || lines_.failed(); }

 private:
  EventWriter events_;
  MetricLog lines_;
};

}  // namespace ronde::trainer
