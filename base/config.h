// SPDX-License-Identifier: Apache-2.0
// Every setting of Ronde, as one table (config.cc): the environment is checked against it, and the
// launcher's options, --help and the documentation are made from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/port_range.h"
#include "base/status.h"

namespace ronde::base {

enum class SettingKind : std::uint8_t { kChoice, kInteger, kSeconds, kPorts, kText };

struct Config;

struct Setting {
  std::string_view name;  // "RONDE_ALGORITHM"
  // Where its value goes, whose type says how it is read: a string is a choice or any text.
  std::variant<std::string Config::*, LogLevel Config::*, Bytes Config::*, std::int64_t Config::*,
               Nanoseconds Config::*, PortRange Config::*>
      place;
  std::string_view default_value;  // as it would be written in the environment
  std::string_view choices;        // kChoice: the valid words, separated by blanks
  double minimum;                  // kInteger, kSeconds, kPorts: both ends are valid
  double maximum;
  // A job whose ranks differ in it is refused at start. False for kText, which may hold a line end.
  bool same_on_all_ranks;
  std::string_view help;      // one line
  std::int64_t multiple = 1;  // kInteger: the value is rounded up to a multiple of it

  [[nodiscard]] SettingKind kind() const;
};

// All settings, in the order in which the documentation lists them.
[[nodiscard]] std::span<const Setting> settings();

// The values, parsed. Thread safety: a value.
struct Config {
  [[nodiscard]] bool is_alone() const { return alone == 1 || mpi == "off"; }

  std::string algorithm;
  LogLevel log_level = LogLevel::kWarning;
  Bytes batch_bytes;
  Bytes segment_bytes;
  Bytes piece_bytes;  // 0: a probe picks it
  Bytes buffer_bytes;
  std::string stores;
  std::int64_t plan_capacity = 0;
  std::int64_t lines_after = 0;
  Nanoseconds linger{};
  Nanoseconds spin{};
  Nanoseconds start_timeout{};
  Nanoseconds stall_warning{};
  Nanoseconds stall_failure{};
  Nanoseconds deadlock_grace{};
  Nanoseconds link_timeout{};
  Nanoseconds shutdown_timeout{};
  Nanoseconds unwind_grace{};
  std::int64_t alone = 0;      // 1: this process is a job of one
  std::string mpi;             // "off": the older word for it
  std::string transport;       // "auto": runtime/job/transport_choice.h chooses
  std::string transport_path;  // the folder of the transports' plug-ins; empty: beside libronde.so
  std::string interfaces;      // empty: base/wire/interfaces.h chooses
  PortRange ports;             // of leaders and UCX
  std::string join_average;    // "present": over the ranks that have not joined; "all"
  std::string process_sets;    // that are opened with the engine: "tp=0,2;dp=1,3"
  std::string check;           // "memory": the engine checks; "replicas": the training core does
  std::string timeline;        // the path of the trace file; empty: none is written
  std::string messages;        // runtime/messages/peer_copy.h says what that means
  std::string plugin_path;     // what plugin_place() of collectives/device takes

  // "NAME=value" of every setting that all ranks must share, one per line: compared at start.
  [[nodiscard]] std::string shared_text() const;

  // Reads lines "NAME=value" (other names are ignored). The error for a bad value is one line that
  // names the setting, the value and what is valid. Names that begin with RONDE_ and are not in the
  // table go to `unknown`, if given: most likely they are misspelt.
  static Result<Config> from_environment(std::span<const std::string> environment,
                                         std::vector<std::string>* unknown = nullptr);

 private:
  std::vector<std::string> shared_;
};

// Says what is valid for a setting: "one of: auto ring", "a whole number from 1 to 10", "any text".
[[nodiscard]] std::string valid_values(const Setting& setting);

}  // namespace ronde::base
