// SPDX-License-Identifier: Apache-2.0
// Event files of TensorBoard: records of protobuf messages (event.proto), each with its length and
// masked CRC-32C checksums.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bindings/trainer/disk/log_file.h"

namespace ronde::trainer {

// CRC-32C (Castagnoli), and as it is in the records of TensorFlow: rotated, and a constant added.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);
[[nodiscard]] std::uint32_t masked_crc32c(std::string_view bytes);

// Writes <directory>/events.out.tfevents.<seconds>.<host>.<pid>.ronde, a new file each time, as
// TensorBoard expects it: the seconds are those since 1970, or later ones, so that the name comes
// after those of the files that are there. What a flush() cannot write is dropped; failed() says
// so, and is over when the disk is.
//
// Thread safety: belongs to one thread.
class EventWriter {
 public:
  // Makes the directory where it is missing. `first_step`: what an earlier run has written of this
  // step and later ones is void (TensorBoard's SessionLog START), since it was lost with the run
  // and is written again. Throws DataError, which names the directory and the reason.
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

}  // namespace ronde::trainer
