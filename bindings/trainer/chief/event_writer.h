// SPDX-License-Identifier: Apache-2.0
// Event files of TensorBoard: records of protobuf messages (event.proto), each with its length and
// masked CRC-32C checksums.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace ronde::trainer {

// Writes <directory>/events.out.tfevents.<seconds>.<host>.<pid>.ronde, a new file each time, as
// TensorBoard expects it: the seconds are those since 1970, or later ones, so that the name comes
// after those of the files that are there. What cannot be written is dropped; failed() says so.
//
// Thread safety: belongs to one thread.
class EventWriter {
 public:
  // Makes the directory where it is missing. `first_step`: what an earlier run has written of this
  // step and later ones is void (TensorBoard's SessionLog START), since it was lost with the run
  // and is written again. Throws DataError, which names the directory and the reason.
  EventWriter(const std::string& directory, std::uint64_t first_step);
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;
  ~EventWriter();

  void scalar(const std::string& tag, std::uint64_t step, double value);
  // Shown by TensorBoard as text (Markdown).
  void text(const std::string& tag, std::uint64_t step, const std::string& value);
  // So that a reader sees what was written.
  void flush();
  [[nodiscard]] bool failed() const { return !file_.good(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  void write(const std::string& event);

  std::string path_;
  std::ofstream file_;
};

}  // namespace ronde::trainer
