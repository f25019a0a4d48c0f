// SPDX-License-Identifier: Apache-2.0
// What the probes of the hosts have seen, and what of it is wrong. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ronde::launcher {

// A place at which a probe listens.
struct Door {
  std::string interface;  // "eth0"
  std::string network;    // "10.0.0.0/24"
  std::string endpoint;   // "10.0.0.1:4711"
};

// Thread safety: a value.
struct HostReport {
  std::string name;      // as the user wrote it
  std::string identity;  // the same for two names of one host
  std::string trouble;   // why the rest is not known; empty: it is
  std::string mending;   // and what to do
  std::int64_t ranks = 0;
  std::map<std::string, std::string> facts;
  std::vector<std::string> down;  // interfaces, with their addresses
  std::vector<Door> doors;
  std::map<std::string, std::string> reached;  // by endpoint: "ok", or why not
  std::chrono::nanoseconds ahead{};            // its clock, of ronderun's
  std::chrono::nanoseconds ahead_error{};
};

// The lines of a probe, but for those that ronderun waits for: "fact NAME VALUE", "door INTERFACE
// NETWORK ENDPOINT", "down TEXT", "reached ENDPOINT HOW", "trouble TEXT".
void take_line(HostReport& host, const std::string& line);

enum class Level : std::uint8_t { kOk, kWarn, kFail };

struct Finding {
  Level level = Level::kOk;
  std::string where;
  std::string what;
  std::string fix{};  // a command or a setting; empty where nothing is wrong
};

// Each check of each host, the first one being what others are compared with, and what is wrong on
// the ways from host to host. `ports`: RONDE_PORTS, or empty.
[[nodiscard]] std::vector<Finding> findings_of(const std::vector<HostReport>& hosts,
                                               const std::string& ports);

// A line each, and one for several hosts of which the same is said.
[[nodiscard]] std::string table_of(const std::vector<Finding>& findings);

// What to do where a host has no agent, by the last words of what should have started it: `start`.
[[nodiscard]] std::string mending_of(const std::string& host, const std::string& words,
                                     const std::string& start);

}  // namespace ronde::launcher
