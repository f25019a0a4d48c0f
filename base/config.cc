// SPDX-License-Identifier: Apache-2.0
// The table of settings and its parser, in one file because they change together.
#include "base/config.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>

#include "base/text.h"

namespace ronde::base {

namespace {

constexpr double kKibi = 1024.0;
constexpr double kMebi = kKibi * kKibi;
constexpr double kGibi = kKibi * kMebi;

constexpr std::string_view kStallWarning = "RONDE_STALL_WARNING_SECONDS";
constexpr std::string_view kStallFailure = "RONDE_STALL_FAILURE_SECONDS";

constexpr std::array<Setting, 22> kSettings{{
    {"RONDE_ALGORITHM", SettingKind::kChoice, "auto", "auto ring direct gather", 0, 0, true,
     "how reductions move bytes between hosts; on one host, naming one makes each rank a host"},
    {"RONDE_BATCH_BYTES", SettingKind::kInteger, "67108864", "", 1, 64 * kGibi, true,
     "a batch takes no further tensor beyond this many bytes"},
    {"RONDE_SEGMENT_BYTES", SettingKind::kInteger, "131072", "", 64, kGibi, true,
     "bytes of one message of the ring; rounded up to a multiple of 64; between hosts at most "
     "61440"},
    {"RONDE_PIECE_BYTES", SettingKind::kInteger, "0", "", 0, kGibi, true,
     "the most bytes of a piece on the board; rounded up to a multiple of 64; 0 picks by a probe"},
    {"RONDE_STORES", SettingKind::kChoice, "auto", "auto temporal streaming", 0, 0, true,
     "whether bytes reach the board through caches or around them; auto picks by a probe"},
    {"RONDE_BUFFER_BYTES", SettingKind::kInteger, "17179869184", "", 0, 1024 * kGibi, true,
     "the most memory that ronde::Buffer can give out on a rank; it costs nothing until it is "
     "used"},
    {"RONDE_PLAN_CAPACITY", SettingKind::kInteger, "8192", "", 1, 1 << 20, true,
     "tensors that the plan remembers; a full plan forgets the least recently used one"},
    {"RONDE_LINGER_SECONDS", SettingKind::kSeconds, "0", "", 0, 1, true,
     "how long a batch waits for more tensors when the data plane is idle"},
    {"RONDE_SPIN_SECONDS", SettingKind::kSeconds, "0.00005", "", 0, 10, false,
     "how long a waiting thread spins before it yields its core, and then sleeps"},
    {"RONDE_START_TIMEOUT_SECONDS", SettingKind::kSeconds, "60", "", 0.001, 86400, false,
     "deadline for all ranks to open their engines"},
    {"RONDE_STALL_WARNING_SECONDS", SettingKind::kSeconds, "30", "", 0.001, 86400, false,
     "a tensor that some ranks have not submitted for this long is reported"},
    {"RONDE_STALL_FAILURE_SECONDS", SettingKind::kSeconds, "1800", "", 0.001, 864000, false,
     "a tensor that some ranks have not submitted for this long fails the job"},
    {"RONDE_LINK_TIMEOUT_SECONDS", SettingKind::kSeconds, "60", "", 2, 86400, false,
     "how long the line to another host may be silent before the job fails"},
    {"RONDE_SHUTDOWN_TIMEOUT_SECONDS", SettingKind::kSeconds, "30", "", 0.001, 86400, false,
     "how long closing an engine waits for work that other ranks have not joined"},
    {"RONDE_UNWIND_GRACE_SECONDS", SettingKind::kSeconds, "2", "", 0, 86400, false,
     "how long a work that an exception leaves behind may go on before the job fails"},
    {"RONDE_MPI", SettingKind::kChoice, "auto", "auto off", 0, 0, false,
     "off makes this process a job of one, whatever started it: for a tool that a rank starts"},
    {"RONDE_TRANSPORT", SettingKind::kChoice, "auto", "auto mpi ucx", 0, 0, true,
     "what carries tensors between hosts; auto is mpi where MPI started the job, and ucx "
     "elsewhere"},
    {"RONDE_TRANSPORT_PATH", SettingKind::kText, "", "", 0, 0, false,
     "the folder of libronde_mpi.so and libronde_ucx.so; empty looks beside libronde.so"},
    {"RONDE_INTERFACE", SettingKind::kText, "", "", 0, 0, false,
     "the networks for control between hosts and for ucx: names of interfaces or networks, as in "
     "eth0,10.0.0.0/8; empty takes OMPI_MCA_btl_tcp_if_include, or else every interface that is "
     "up"},
    {"RONDE_PLUGIN_PATH", SettingKind::kText, "", "", 0, 0, false,
     "the plug-in for devices: a file, or the folder of libronde_cuda.so; empty looks beside "
     "libronde.so, off uses none"},
    {"RONDE_CHECK", SettingKind::kChoice, "off", "off memory replicas", 0, 0, false,
     "memory refuses tensors in flight that overlap, if one is written; it takes time for each "
     "tensor in flight; replicas makes the training core compare the ranks after each step"},
    {"RONDE_LOG_LEVEL", SettingKind::kChoice, "warning", "trace debug info warning error off", 0, 0,
     false, "the least important lines on standard error"},
}};

// Variables that others read: what ronderun tells the program of restarts (how often, and of which
// job), who a rank is in its job, and from where on the preloaded library takes reductions over,
// which ronderun must not take as options.
constexpr std::array<std::string_view, 8> kNoSettings{"RONDE_RESTART_ATTEMPT",
                                                      "RONDE_RESTART_JOB",
                                                      "RONDE_RANK",
                                                      "RONDE_SIZE",
                                                      "RONDE_MEET",
                                                      "RONDE_JOB_SECRET",
                                                      "RONDE_JOB_SECRET_FILE",
                                                      "RONDE_MPI_ALLREDUCE_BYTES"};

Status bad_value(const Setting& setting, std::string_view value) {
  return Status::error(Code::kInvalidArgument, std::string(setting.name) + "=" +
                                                   std::string(value) + " is not valid: use " +
                                                   valid_values(setting));
}

Result<std::int64_t> parse_integer(const Setting& setting, std::string_view value) {
  const auto number = parse_number<std::int64_t>(value);
  if (!number.has_value() || static_cast<double>(*number) < setting.minimum ||
      static_cast<double>(*number) > setting.maximum) {
    return bad_value(setting, value);
  }
  return *number;
}

Result<Nanoseconds> parse_seconds(const Setting& setting, std::string_view value) {
  const auto number = parse_number<double>(value);
  if (!number.has_value() || !std::isfinite(*number) || *number < setting.minimum ||
      *number > setting.maximum) {
    return bad_value(setting, value);
  }
  return Nanoseconds(static_cast<std::int64_t>(std::llround(*number * 1e9)));
}

Result<std::size_t> parse_choice(const Setting& setting, std::string_view value) {
  const auto choices = words_of(setting.choices);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (choices[i] == value) return i;
  }
  return bad_value(setting, value);
}

// Parses a value and stores it in the field of Config that belongs to the setting.
Status assign(Config& config, const Setting& setting, const std::string& value) {
  if (setting.kind == SettingKind::kText) {
    const std::map<std::string_view, std::string*> places{
        {"RONDE_INTERFACE", &config.interfaces},
        {"RONDE_PLUGIN_PATH", &config.plugin_path},
        {"RONDE_TRANSPORT_PATH", &config.transport_path}};
    const auto place = places.find(setting.name);
    check(place != places.end(), "every text has a place in Config");
    *place->second = value;
    return {};
  }
  if (setting.kind == SettingKind::kChoice) {
    RONDE_ASSIGN_OR_RETURN(const auto choice, parse_choice(setting, value));
    if (setting.name == "RONDE_ALGORITHM") config.algorithm = value;
    if (setting.name == "RONDE_STORES") config.stores = value;
    if (setting.name == "RONDE_CHECK") config.check_memory = value == "memory";
    if (setting.name == "RONDE_MPI") config.mpi = value;
    if (setting.name == "RONDE_TRANSPORT") config.transport = value;
    if (setting.name == "RONDE_LOG_LEVEL") config.log_level = static_cast<LogLevel>(choice);
    return {};
  }
  if (setting.kind == SettingKind::kInteger) {
    RONDE_ASSIGN_OR_RETURN(const auto number, parse_integer(setting, value));
    if (setting.name == "RONDE_BATCH_BYTES") config.batch_bytes = Bytes(number);
    if (setting.name == "RONDE_SEGMENT_BYTES") {
      config.segment_bytes = Bytes(ceil_div(number, 64) * 64);
    }
    if (setting.name == "RONDE_PIECE_BYTES") {
      config.piece_bytes = Bytes(ceil_div(number, 64) * 64);
    }
    if (setting.name == "RONDE_BUFFER_BYTES") config.buffer_bytes = Bytes(number);
    if (setting.name == "RONDE_PLAN_CAPACITY") config.plan_capacity = number;
    return {};
  }
  RONDE_ASSIGN_OR_RETURN(const auto seconds, parse_seconds(setting, value));
  const std::map<std::string_view, Nanoseconds*> places{
      {"RONDE_LINGER_SECONDS", &config.linger},
      {"RONDE_SPIN_SECONDS", &config.spin},
      {"RONDE_START_TIMEOUT_SECONDS", &config.start_timeout},
      {kStallWarning, &config.stall_warning},
      {kStallFailure, &config.stall_failure},
      {"RONDE_LINK_TIMEOUT_SECONDS", &config.link_timeout},
      {"RONDE_SHUTDOWN_TIMEOUT_SECONDS", &config.shutdown_timeout},
      {"RONDE_UNWIND_GRACE_SECONDS", &config.unwind_grace}};
  const auto place = places.find(setting.name);
  check(place != places.end(), "every setting has a place in Config");
  *place->second = seconds;
  return {};
}

}  // namespace

std::span<const Setting> settings() { return kSettings; }

std::string valid_values(const Setting& setting) {
  switch (setting.kind) {
    case SettingKind::kChoice:
      return "one of: " + std::string(setting.choices);
    case SettingKind::kInteger:
      return "a whole number from " + number_text(setting.minimum) + " to " +
             number_text(setting.maximum);
    case SettingKind::kSeconds:
      return "seconds from " + number_text(setting.minimum) + " to " + number_text(setting.maximum);
    case SettingKind::kText:
      return "any text";
  }
  return "";
}

std::string Config::shared_text() const {
  std::string text;
  for (const std::string& line : shared_) text += line + "\n";
  return text;
}

Result<Config> Config::from_environment(std::span<const std::string> environment,
                                        std::vector<std::string>* unknown) {
  std::map<std::string, std::string> given;
  for (const std::string& line : environment) {
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos || line.rfind("RONDE_", 0) != 0) continue;
    // An empty variable is not set: some launchers and container files can say it in no other way.
    if (equals + 1 < line.size()) given[line.substr(0, equals)] = line.substr(equals + 1);
  }
  const bool warning_given = given.contains(std::string(kStallWarning));
  const bool failure_given = given.contains(std::string(kStallFailure));
  Config config;
  for (const Setting& setting : kSettings) {
    const auto found = given.find(std::string(setting.name));
    const std::string value =
        found == given.end() ? std::string(setting.default_value) : found->second;
    RONDE_RETURN_IF_ERROR(assign(config, setting, value));
    if (setting.same_on_all_ranks)
      config.shared_.push_back(std::string(setting.name) + "=" + value);
    if (found != given.end()) given.erase(found);
  }
  for (const std::string_view name : kNoSettings) given.erase(std::string(name));
  if (unknown != nullptr) {
    for (const auto& [name, value] : given) unknown->push_back(name);
  }
  // A default follows what was set.
  if (!warning_given) config.stall_warning = std::min(config.stall_warning, config.stall_failure);
  if (!failure_given) config.stall_failure = std::max(config.stall_failure, config.stall_warning);
  if (config.stall_failure < config.stall_warning) {
    const auto said = [](std::string_view name, Nanoseconds value) {
      return std::string(name) + "=" + number_text(static_cast<double>(value.count()) / 1e9);
    };
    return Status::error(Code::kInvalidArgument, said(kStallFailure, config.stall_failure) +
                                                     " is smaller than " +
                                                     said(kStallWarning, config.stall_warning) +
                                                     ": make it at least as large");
  }
  return config;
}

std::vector<std::string> Config::process_environment() {
  std::vector<std::string> lines;
  for (char** line = environ; line != nullptr && *line != nullptr; ++line)
    lines.emplace_back(*line);
  return lines;
}

}  // namespace ronde::base
