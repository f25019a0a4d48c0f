// SPDX-License-Identifier: Apache-2.0
// Lines of JSON, and which of an earlier run's stay.
#include "bindings/trainer/chief/metric_log.h"

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bindings/trainer/disk/file_system.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

// Empty where it is no line of ours.
std::optional<std::uint64_t> step_of(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto step = json.find("step");
  if (step == json.end() || !step->is_number_unsigned()) return std::nullopt;
  return step->get<std::uint64_t>();
}

// Lines of others stay.
void keep_lines_before(const std::string& file, std::uint64_t first_step) {
  const std::string old = read_file(disk(), file);
  std::istringstream lines(old);
  std::string kept;
  // A line at the end of the file that has no end itself is half of one.
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    const auto step = step_of(line);
    if (!step || *step < first_step) kept += line + '\n';
  }
  if (kept.size() != old.size()) replace_file(disk(), file, kept);
}

void put_aside(const std::string& file) {
  const std::string stem = file.substr(0, file.rfind(".jsonl"));
  const auto seconds = static_cast<std::uint64_t>(seconds_since_1970());
  rename_path(disk(), file, stem + '.' + std::to_string(seconds) + ".jsonl");
}

}  // namespace

MetricLog::MetricLog(const std::string& file, std::uint64_t first_step, bool anew) {
  try {
    try {
      anew ? put_aside(file) : keep_lines_before(file, first_step);
    } catch (const FileError& error) {
      if (error.number() != ENOENT) throw;
    }
    file_.emplace(file);
  } catch (const DataError& error) {
    throw DataError(std::string(error.what()) +
                    ": make it a file that may be written, or name another directory");
  }
}

std::optional<std::uint64_t> MetricLog::last_step(const std::string& file) {
  std::ifstream lines(file, std::ios::binary);
  std::optional<std::uint64_t> last;
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    if (const auto step = step_of(line)) last = step;
  }
  return last;
}

void MetricLog::write(std::uint64_t step, const std::map<std::string, double>& values) {
  nlohmann::ordered_json line = {{"step", step}, {"seconds", seconds_since_1970()}};
  for (const auto& [name, value] : values) line.emplace(name, value);
  using OnBadUtf8 = nlohmann::ordered_json::error_handler_t;
  file_->append(line.dump(-1, ' ', false, OnBadUtf8::replace) + '\n');
}

}  // namespace ronde::trainer
