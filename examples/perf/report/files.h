// SPDX-License-Identifier: Apache-2.0
// The files that a run writes at its end.
#pragma once

#include <filesystem>
#include <functional>
#include <ostream>
#include <string>

namespace ronde::perf {

// A file that is replaced as a whole or stays as it was: an aborted run must not destroy the
// results of an earlier one.
//
// Thread safety: belongs to one thread.
class OutputFile {
 public:
  // Tests, before anything is measured, whether the file can be written. Without a name nothing is
  // written, and "-" is standard output. Throws UsageError.
  explicit OutputFile(std::string name);

  // Writes the file. Throws std::runtime_error.
  void write(const std::function<void(std::ostream&)>& content) const;

 private:
  [[nodiscard]] bool replaced() const { return !temporary_.empty(); }
  [[noreturn]] void give_up() const;

  std::string name_;
  std::filesystem::path place_;      // what a link points to
  std::filesystem::path temporary_;  // beside it; none for a device or a pipe
};

// Throws std::runtime_error if something that was printed has been lost.
void require_standard_output();

}  // namespace ronde::perf
