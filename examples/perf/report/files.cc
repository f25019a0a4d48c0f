// SPDX-License-Identifier: Apache-2.0
// How an output file is tried before the run and replaced after it.
#include "examples/perf/report/files.h"

#include <unistd.h>

#include <fstream>
#include <iostream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "examples/perf/options/options.h"

namespace ronde::perf {

namespace fs = std::filesystem;

OutputFile::OutputFile(std::string name) : name_(std::move(name)), place_(name_) {
  if (name_.empty() || name_ == "-") return;
  std::error_code ignored;
  const fs::file_status status = fs::status(place_, ignored);
  if (fs::is_directory(status)) throw UsageError(name_ + " is a folder: name a file in it");
  // A device or a pipe is written directly: it must not be replaced.
  if (fs::exists(status) && !fs::is_regular_file(status)) return;
  if (fs::is_regular_file(status)) place_ = fs::canonical(place_);
  temporary_ = place_.string() + "." + std::to_string(::getpid()) + ".part";
  const bool writable = std::ofstream(temporary_, std::ios::trunc).is_open();
  fs::remove(temporary_, ignored);
  if (!writable) {
    throw UsageError(name_ + " cannot be written: does its folder exist, and may you write there?");
  }
}

void OutputFile::write(const std::function<void(std::ostream&)>& content) const {
  if (name_.empty()) return;
  if (name_ == "-") {
    content(std::cout);
    return;
  }
  std::ofstream stream(replaced() ? temporary_ : place_, std::ios::trunc);
  content(stream);
  stream.close();
  if (!stream) give_up();
  if (!replaced()) return;
  std::error_code error;
  fs::rename(temporary_, place_, error);
  if (error) give_up();
}

void OutputFile::give_up() const {
  std::error_code ignored;
  if (replaced()) fs::remove(temporary_, ignored);
  throw std::runtime_error(name_ + " could not be written: is there room?");
}

void require_standard_output() {
  std::cout << std::flush;
  if (!std::cout) throw std::runtime_error("standard output could not be written: is there room?");
}

}  // namespace ronde::perf
