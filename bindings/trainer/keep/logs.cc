// SPDX-License-Identifier: Apache-2.0
// The messages, the records around them, and the names of the files; lines of JSON, and which of an
// earlier run's stay.
#include "bindings/trainer/keep/logs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/crc.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "bindings/trainer/keep/event.pb.h"
#include "bindings/trainer/keep/file_system.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

// As both logs state their times.
double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

constexpr std::string_view kEventFilePrefix = "events.out.tfevents.";

// TensorBoard reads the files of a directory in the order of their names, so that a new one must
// come after all others, be they of this very second or from a clock that was ahead.
std::uint64_t seconds_of_new_file(const std::string& directory) {
  auto seconds = static_cast<std::uint64_t>(seconds_since_1970());
  for (const std::string& name : names_in(disk(), directory)) {
    if (!name.starts_with(kEventFilePrefix)) continue;
    std::uint32_t there = 0;  // too many digits are no time
    const char* const digits = name.data() + kEventFilePrefix.size();
    if (std::from_chars(digits, name.data() + name.size(), there).ec == std::errc{}) {
      seconds = std::max<std::uint64_t>(seconds, std::uint64_t{there} + 1);
    }
  }
  return seconds;
}

std::string file_name(const std::string& directory) {
  std::array<char, HOST_NAME_MAX + 1> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host = {"localhost"};
  std::array<char, 24> seconds{};
  std::snprintf(seconds.data(), seconds.size(), "%010llu",
                static_cast<unsigned long long>(seconds_of_new_file(directory)));
  return std::string(kEventFilePrefix) + seconds.data() + "." + host.data() + "." +
         std::to_string(getpid()) + ".ronde";
}

proto::Event event_of(std::uint64_t step) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  proto::Event event;
  event.set_wall_time(seconds_since_1970());
  event.set_step(static_cast<std::int64_t>(std::min(step, kMost)));
  return event;
}

// Little-endian, as the machine is (safetensors.cc).
template <typename Number>
std::string bytes_of(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

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

LogFile::LogFile(std::string path) : path_(std::move(path)) {
  const auto directory = std::filesystem::path(path_).parent_path();
  if (!directory.empty()) make_directories(disk(), directory);
  if (const int error = try_append({}); error != 0) throw FileError(path_, error);
}

void LogFile::append(std::string_view bytes) { error_ = try_append(bytes); }

// It is opened for each entry: nothing is kept that a later one would have to mend.
int LogFile::try_append(std::string_view bytes) {
  const int file = disk().open(path_, O_WRONLY | O_APPEND | O_CREAT);
  if (file < 0) return -file;
  const std::int64_t before = disk().size(file);
  const std::int64_t written = disk().write(file, bytes);
  const bool whole = written == static_cast<std::int64_t>(bytes.size());
  if (!whole && before >= 0) static_cast<void>(!::ftruncate(file, before));
  const int closed = disk().close(file);
  if (written < 0) return static_cast<int>(-written);
  return whole ? -closed : ENOSPC;
}

std::uint32_t crc32c(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  constexpr std::uint32_t kMask = 0xa282ead8;
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + kMask;
}

EventWriter::EventWriter(const std::string& directory, std::uint64_t first_step) {
  proto::Event version = event_of(0);
  version.set_file_version("brain.Event:2");
  write(version.SerializeAsString());
  proto::Event start = event_of(first_step);
  start.mutable_session_log()->set_status(proto::SessionLog::START);
  write(start.SerializeAsString());
  try {
    make_directories(disk(), directory);
    file_.emplace(directory + '/' + file_name(directory));
    flush();  // a file that does not begin with these is none
    if (file_->failed()) throw FileError(file_->path(), file_->error());
  } catch (const DataError& error) {
    throw DataError(directory + ": no event file can be written there (" + error.what() +
                    "): make it a directory that may be written, or name another one");
  }
}

void EventWriter::scalar(const std::string& tag, std::uint64_t step, double value) {
  proto::Event event = event_of(step);
  proto::Summary::Value& scalar = *event.mutable_summary()->add_value();
  scalar.set_tag(tag);
  scalar.set_simple_value(static_cast<float>(value));
  write(event.SerializeAsString());
}

void EventWriter::text(const std::string& tag, std::uint64_t step, const std::string& value) {
  proto::Event event = event_of(step);
  proto::Summary::Value& text = *event.mutable_summary()->add_value();
  text.set_tag(tag);
  text.mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  text.mutable_tensor()->set_dtype(proto::DT_STRING);
  text.mutable_tensor()->mutable_tensor_shape();  // there and without dimensions: one string
  text.mutable_tensor()->add_string_val(value);
  write(event.SerializeAsString());
}

void EventWriter::flush() {
  file_->append(records_);
  records_.clear();
}

void EventWriter::write(const std::string& event) {
  const std::string length = bytes_of(std::uint64_t{event.size()});
  records_ += length + bytes_of(masked_crc32c(length)) + event + bytes_of(masked_crc32c(event));
}

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
