// SPDX-License-Identifier: Apache-2.0
// A file of Chrome's trace format that several processes of a host write together: one JSON array,
// with one event in a line. The file is whole after every write: what a killed process leaves
// behind loads, and the others go on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/process/file_descriptor.h"
#include "base/status.h"

namespace ronde::runtime {

// It owns the descriptor. Thread safety: one thread at a time; other processes and other objects
// may write the same file.
class TraceFile {
 public:
  // Opens the file. If it begins with `first_line`, an event that no other job writes, this process
  // adds to what the job has written so far; otherwise the file is emptied and begun with it.
  // Errors: kSystem, where the file cannot be opened or written.
  static base::Result<TraceFile> open(const std::string& path, std::string_view first_line);

  // Appends events: "{...}\n{...}\n". Every write has whole lines, and at most 4 KiB where no line
  // is longer.
  base::Status append(std::string_view lines);

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  TraceFile(std::string path, base::FileDescriptor file) noexcept
      : path_(std::move(path)), file_(std::move(file)) {}
  base::Status lock() const;
  base::Status begin(std::string_view first_line);
  // Where the next event goes: behind the last whole one.
  base::Result<std::int64_t> find_end() const;
  base::Status write(std::string_view bytes, std::int64_t at) const;
  [[nodiscard]] base::Status failed(const std::string& what, int error_number) const;

  std::string path_;
  base::FileDescriptor file_;
  bool regular_ =
      true;  // a file that has an end; else a device, which is written from the start on
};

}  // namespace ronde::runtime
