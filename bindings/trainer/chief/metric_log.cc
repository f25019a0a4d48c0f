// SPDX-License-Identifier: Apache-2.0
// Lines of JSON, and which of an earlier run's stay.
#include "bindings/trainer/chief/metric_log.h"

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

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

bool stays(const std::string& line, std::uint64_t first_step) {
  const auto step = step_of(line);
  return step && *step < first_step;
}

void require(bool succeeded) {
  if (!succeeded) throw std::system_error(errno, std::generic_category());
}

// The new file takes the old one's place whole, so that a run that ends here loses no line.
void keep_lines_before(const std::string& file, std::uint64_t first_step) {
  if (!std::filesystem::exists(file)) return;
  std::ifstream old(file, std::ios::binary);
  require(old.is_open());
  std::string kept;
  // A line at the end of the file that has no end itself is half of one.
  for (std::string line; std::getline(old, line) && !old.eof();) {
    if (stays(line, first_step)) kept += line + '\n';
  }
  require(!old.bad());
  if (kept.size() == std::filesystem::file_size(file)) return;
  const std::string rewritten = file + ".tmp";
  std::ofstream stream(rewritten, std::ios::binary);
  stream << kept << std::flush;
  require(stream.good());
  std::filesystem::rename(rewritten, file);
}

}  // namespace

MetricLog::MetricLog(const std::string& file, std::uint64_t first_step) {
  try {
    const auto directory = std::filesystem::path(file).parent_path();
    if (!directory.empty()) std::filesystem::create_directories(directory);
    errno = 0;
    keep_lines_before(file, first_step);
    file_.open(file, std::ios::binary | std::ios::app);
    require(file_.is_open());
  } catch (const std::system_error& error) {
    throw DataError(file + ": cannot be written (" + error.code().message() +
                    "): make it a file that may be written, or name another directory");
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
  using std::chrono::system_clock;
  const std::chrono::duration<double> now = system_clock::now().time_since_epoch();
  nlohmann::ordered_json line = {{"step", step}, {"seconds", now.count()}};
  for (const auto& [name, value] : values) line.emplace(name, value);
  using OnBadUtf8 = nlohmann::ordered_json::error_handler_t;
  // Flushed, so that a reader sees it and a run that is killed has left whole lines.
  file_ << line.dump(-1, ' ', false, OnBadUtf8::replace) << '\n' << std::flush;
}

}  // namespace ronde::trainer
