// SPDX-License-Identifier: Apache-2.0
// The table of settings and its parser, in one file because they change together.
#include "base/config.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <type_traits>

#include "base/text.h"

namespace ronde::base {

namespace {

constexpr double kKibi = 1024.0;
constexpr double kMebi = kKibi * kKibi;
constexpr double kGibi = kKibi * kMebi;

constexpr std::string_view kStallWarning = "RONDE_STALL_WARNING_SECONDS";
constexpr std::string_view kStallFailure = "RONDE_STALL_FAILURE_SECONDS";

constexpr auto kSettings = std::to_array<Setting>({
    {"RONDE_ALGORITHM", &Config::algorithm, "auto", "auto ring direct gather", 0, 0, true,
     "how reductions move bytes between hosts; on one host, naming one makes each rank a host"},
    {"RONDE_BATCH_BYTES", &Config::batch_bytes, "67108864", "", 1, 64 * kGibi, true,
     "a batch takes no further tensor beyond this many bytes"},
    {"RONDE_SEGMENT_BYTES", &Config::segment_bytes, "131072", "", 64, kGibi, true,
     "bytes of one message of the ring; rounded up to a multiple of 64; between hosts at most "
     "61440",
     64},
    {"RONDE_PIECE_BYTES", &Config::piece_bytes, "0", "", 0, kGibi, true,
     "the most bytes of a piece on the board; rounded up to a multiple of 64; 0 picks by a probe",
     64},
    {"RONDE_STORES", &Config::stores, "auto", "auto temporal streaming", 0, 0, true,
     "whether bytes reach the board through caches or around them; auto picks by a probe"},
    {"RONDE_BUFFER_BYTES", &Config::buffer_bytes, "17179869184", "", 0, 1024 * kGibi, true,
     "the most memory that ronde::Buffer can give out on a rank; it costs nothing until it is "
     "used"},
    {"RONDE_PLAN_CAPACITY", &Config::plan_capacity, "8192", "", 1, 1 << 20, true,
     "tensors that the plan remembers; a full plan forgets the least recently used one"},
    {"RONDE_LINES_AFTER", &Config::lines_after, "32", "", 0, 1 << 20, true,
     "a small operation that blocks, on one host, is agreed on for so many calls of its name, and "
     "then meets in a line on the board; 0: never"},
    {"RONDE_LINGER_SECONDS", &Config::linger, "0", "", 0, 1, true,
     "how long a batch waits for more tensors when the data plane is idle"},
    {"RONDE_SPIN_SECONDS", &Config::spin, "0.00005", "", 0, 10, false,
     "how long a waiting thread spins before it yields its core, and then sleeps"},
    {"RONDE_START_TIMEOUT_SECONDS", &Config::start_timeout, "60", "", 0.001, 86400, false,
     "deadline for all ranks to open their engines"},
    {"RONDE_STALL_WARNING_SECONDS", &Config::stall_warning, "30", "", 0.001, 86400, false,
     "a tensor that some ranks have not submitted for this long is reported"},
    {"RONDE_STALL_FAILURE_SECONDS", &Config::stall_failure, "1800", "", 0.001, 864000, false,
     "a tensor that some ranks have not submitted for this long fails the job"},
    {"RONDE_DEADLOCK_GRACE_SECONDS", &Config::deadlock_grace, "5", "", 0, 864000, false,
     "how long all ranks may wait for each other, which is reported after 1 s, before the job "
     "fails"},
    {"RONDE_LINK_TIMEOUT_SECONDS", &Config::link_timeout, "60", "", 2, 86400, false,
     "how long the line to another host may be silent before the job fails"},
    {"RONDE_SHUTDOWN_TIMEOUT_SECONDS", &Config::shutdown_timeout, "30", "", 0.001, 86400, false,
     "how long closing an engine waits for work that other ranks have not joined"},
    {"RONDE_UNWIND_GRACE_SECONDS", &Config::unwind_grace, "2", "", 0, 86400, false,
     "how long a work that an exception leaves behind may go on before the job fails"},
    {"RONDE_ALONE", &Config::alone, "0", "", 0, 1, false,
     "1 makes this process a job of one, whatever started it: for a tool that a rank starts"},
    {"RONDE_MPI", &Config::mpi, "auto", "auto off", 0, 0, false,
     "off is the older name of RONDE_ALONE=1"},
    {"RONDE_TRANSPORT", &Config::transport, "auto", "auto mpi ucx", 0, 0, true,
     "what carries tensors between hosts; auto is mpi where MPI started the job, and ucx "
     "elsewhere"},
    {"RONDE_TRANSPORT_PATH", &Config::transport_path, "", "", 0, 0, false,
     "the folder of libronde_mpi.so and libronde_ucx.so; empty looks beside libronde.so"},
    {"RONDE_INTERFACE", &Config::interfaces, "", "", 0, 0, false,
     "the networks for control between hosts and for ucx: names of interfaces or networks, as in "
     "eth0,10.0.0.0/8; empty takes OMPI_MCA_btl_tcp_if_include, or else every interface that is "
     "up"},
    {"RONDE_PORTS", &Config::ports, "", "", 1, 65535, false,
     "the TCP ports at which the leaders of hosts and ucx listen, as in 29600-29699: on each host "
     "an engine takes one for the leader and one for each rank; empty lets the kernel choose"},
    {"RONDE_PLUGIN_PATH", &Config::plugin_path, "", "", 0, 0, false,
     "the plug-in for devices: a file, or the folder of libronde_cuda.so; empty looks beside "
     "libronde.so, off uses none"},
    {"RONDE_PROCESS_SETS", &Config::process_sets, "", "", 0, 0, false,
     "process sets that are opened with the engine, as in tp=0,2;dp=1,3: names and ranks; the "
     "program takes them by name and ranks"},
    {"RONDE_CHECK", &Config::check, "off", "off memory finite replicas", 0, 0, true,
     "memory refuses tensors in flight that overlap, if one is written; it takes time for each "
     "tensor in flight; finite fails, on all ranks, a tensor in host memory to be reduced with a "
     "nan or inf in it, and names rank and element; replicas makes the training core compare the "
     "ranks after each step"},
    {"RONDE_JOIN_AVERAGE", &Config::join_average, "present", "present all", 0, 0, true,
     "whether averages divide by the ranks that have not joined, or by all; those by weights go by "
     "the weights"},
    {"RONDE_TIMELINE", &Config::timeline, "", "", 0, 0, false,
     "the trace file of a timeline of all ranks, from the start of the job on; hosts but the first "
     "append .host and their number"},
    {"RONDE_MESSAGES", &Config::messages, "auto", "auto slots copy", 0, 0, true,
     "how a large message travels between two ranks of a host, unless it lies in a ronde::Buffer: "
     "slots takes it through the board, which both ranks do together, and never asks the kernel, "
     "which may note or punish process_vm_readv; copy has the kernel copy it once, where it allows "
     "that, which leaves the sender's core alone; auto tries both and takes the faster"},
    {"RONDE_LOG_LEVEL", &Config::log_level, "warning", "trace debug info warning error off", 0, 0,
     false, "the least important lines on standard error"},
});

// Variables that others read: what ronderun tells the program of restarts (how often, and of which
// job), who a rank is in its job, and from where on the preloaded library takes reductions over,
// which ronderun must not take as options.
constexpr auto kNoSettings = std::to_array<std::string_view>(
    {"RONDE_RESTART_ATTEMPT", "RONDE_RESTART_JOB", "RONDE_RANK", "RONDE_SIZE", "RONDE_LOCAL_RANK",
     "RONDE_LOCAL_SIZE", "RONDE_MEET", "RONDE_JOB", "RONDE_RANK_PROCESS", "RONDE_JOB_SECRET",
     "RONDE_JOB_SECRET_FILE", "RONDE_MPI_ALLREDUCE_BYTES"});

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
  return ceil_div(*number, setting.multiple) * setting.multiple;
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

// Parses a value, as the type of its place in Config asks, and stores it there.
Status assign(Config& config, const Setting& setting, const std::string& value) {
  const auto store = [&](auto place) -> Status {
    using Value = std::remove_reference_t<decltype(config.*place)>;
    if constexpr (std::is_same_v<Value, std::string>) {
      if (!setting.choices.empty()) RONDE_RETURN_IF_ERROR(parse_choice(setting, value).status());
      config.*place = value;
    } else if constexpr (std::is_same_v<Value, LogLevel>) {
      RONDE_ASSIGN_OR_RETURN(const auto choice, parse_choice(setting, value));
      config.*place = static_cast<LogLevel>(choice);
    } else if constexpr (std::is_same_v<Value, Nanoseconds>) {
      RONDE_ASSIGN_OR_RETURN(config.*place, parse_seconds(setting, value));
    } else if constexpr (std::is_same_v<Value, PortRange>) {
      const auto ports = value.empty() ? PortRange() : PortRange::parse(value);
      if (!ports) return bad_value(setting, value);
      config.*place = *ports;
    } else {
      RONDE_ASSIGN_OR_RETURN(const auto number, parse_integer(setting, value));
      config.*place = Value(number);
    }
    return {};
  };
  return std::visit(store, setting.place);
}

}  // namespace

std::span<const Setting> settings() { return kSettings; }

SettingKind Setting::kind() const {
  if (std::holds_alternative<Nanoseconds Config::*>(place)) return SettingKind::kSeconds;
  if (std::holds_alternative<PortRange Config::*>(place)) return SettingKind::kPorts;
  if (!choices.empty()) return SettingKind::kChoice;
  const bool is_text = std::holds_alternative<std::string Config::*>(place);
  return is_text ? SettingKind::kText : SettingKind::kInteger;
}

std::string valid_values(const Setting& setting) {
  switch (setting.kind()) {
    case SettingKind::kChoice:
      return "one of: " + std::string(setting.choices);
    case SettingKind::kInteger:
      return "a whole number from " + number_text(setting.minimum) + " to " +
             number_text(setting.maximum);
    case SettingKind::kSeconds:
      return "seconds from " + number_text(setting.minimum) + " to " + number_text(setting.maximum);
    case SettingKind::kPorts:
      return "two ports from " + number_text(setting.minimum) + " to " +
             number_text(setting.maximum) + ", as in 29600-29699";
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

}  // namespace ronde::base
