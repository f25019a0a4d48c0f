// SPDX-License-Identifier: Apache-2.0
// What mpirun and batch systems write, and the arithmetic of slots.
#include "launcher/hosts/hosts.h"

#include <strings.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <regex>
#include <sstream>
#include <utility>

#include "base/text.h"
#include "base/words/node_list.h"

namespace ronde::launcher {

namespace {

using base::Code;
using base::Result;
using base::Status;
using Hosts = std::vector<Host>;
using Variables = std::span<const std::string>;

// More ranks than this on one host are a typing error, and would take the machine down.
constexpr std::int64_t kMostRanksOfHost = 1024;

Status wrong_hosts(const std::string& text) { return Status::error(Code::kInvalidArgument, text); }

// "node1" is "node1.cluster", which is "node1.cluster.local"; but "10.0" is no "10.0.0.1".
bool same_host(const std::string& a, const std::string& b) {
  const std::string& longer = a.size() > b.size() ? a : b;
  const std::size_t size = std::min(a.size(), b.size());
  if (::strncasecmp(a.c_str(), b.c_str(), size) != 0) return false;
  const bool address = longer.find_first_not_of("0123456789.") == longer.npos;
  return a.size() == b.size() || (longer[size] == '.' && !address);
}

bool is_here(const std::string& name, const Self& self) {
  const std::size_t at = name.find('@');
  if (at != name.npos && name.substr(0, at) != self.user) return false;
  const std::string host = at == name.npos ? name : name.substr(at + 1);
  const auto same = [&](const std::string& own) { return same_host(host, own); };
  return same("localhost") || same("::1") || host.starts_with("127.") ||
         std::ranges::any_of(self.names, same);
}

// Adds up what is said of a host in several places: who names one again means one slot more.
Hosts merged(Hosts named, const Self& self) {
  Hosts hosts;
  std::map<std::string, std::size_t> places;  // this host has no name there
  for (Host& host : named) {
    host.here = is_here(host.name, self);
    const auto [place, is_new] = places.try_emplace(host.here ? "" : host.name, hosts.size());
    if (is_new) {
      hosts.push_back(std::move(host));
    } else {
      std::int64_t& slots = hosts[place->second].slots;
      slots = std::max<std::int64_t>(1, slots) + std::max<std::int64_t>(1, host.slots);
    }
  }
  return hosts;
}

// "user@node1:8", "[fd00::1]", "node1 slots=8 max_slots=8": so no name begins with "-", which ssh
// would take for an option.
bool read_host(const std::string& text, Host& host) {
  static const std::regex kHost(
      R"(\s*((?:\w[\w.+-]*@)?)(?:(\w[\w.-]*)|\[([0-9A-Fa-f]*:[0-9A-Fa-f:.]+(?:%\w+)?)\]))"
      R"((?::([1-9]\d{0,6}))?(?:\s+slots\s*=\s*(\d{1,7}))?(?:\s+max[_-]slots\s*=\s*\d+)?\s*)");
  constexpr std::size_t kLongest = 1000;  // a matcher's stack grows with its text
  std::smatch match;
  if (text.size() > kLongest || !std::regex_match(text, match, kHost)) return false;
  host.name = match[1].str() + match[2].str() + match[3].str();
  const std::string slots = match[4].str() + match[5].str();
  if (!slots.empty()) host.slots = base::parse_number<std::int64_t>(slots).value_or(0);
  return !match[4].matched || !match[5].matched;
}

// Words or lines; `slots` are those of one that does not say.
Result<Hosts> read_hosts(const std::string& what, const std::string& text, char between,
                         std::int64_t slots) {
  const bool lines = between == '\n';
  Hosts hosts;
  std::istringstream parts(text);
  std::string part;
  for (std::int64_t number = 1; std::getline(parts, part, between); ++number) {
    if (lines) part.erase(std::min(part.find('#'), part.size()));
    if (part.find_first_not_of(" \t\r") == part.npos) continue;
    Host host{"", -1};
    if (!read_host(part, host)) {
      return wrong_hosts(what + (lines ? ", line " + std::to_string(number) : "") + ": " + part +
                         " is no host: write it as in node1:8, user@node1:8 or [fd00::1]:8" +
                         (lines ? ", or as in node1 slots=8" : ""));
    }
    if (host.slots == 0) continue;  // mpirun starts nothing there
    if (host.slots < 0) host.slots = slots;
    hosts.push_back(std::move(host));
  }
  if (!hosts.empty()) return hosts;
  return wrong_hosts(what + " names no host: write them as in node1:8" + (lines ? "" : ",node2:8"));
}

// "8(x3),4": the number of each host.
std::vector<std::int64_t> numbers_of_slurm(const std::string& text) {
  static const std::regex kNumber(R"(([1-9]\d{0,6})(?:\(x([1-9]\d{0,5})\))?)");
  std::vector<std::int64_t> numbers;
  for (const std::string& word : base::words_of(text, ",")) {
    std::smatch match;
    if (!std::regex_match(word, match, kNumber)) return {};
    const auto times = base::parse_number<std::size_t>(match[2].str()).value_or(1);
    numbers.insert(numbers.end(), times, *base::parse_number<std::int64_t>(match[1].str()));
  }
  return numbers;
}

std::string value_of(Variables environment, const std::string& name) {
  for (const std::string& line : environment) {
    if (line.starts_with(name + "=")) return line.substr(name.size() + 1);
  }
  return "";
}

Result<Hosts> read_slurm(const std::string& list, Variables environment) {
  const auto names = base::read_node_list(list);
  Host host;
  if (!names || !std::ranges::all_of(*names, [&](auto& name) { return read_host(name, host); })) {
    return wrong_hosts("SLURM_JOB_NODELIST=" + list +
                       " is not valid: expected a list of hosts, as in node[01-04]");
  }
  std::string variable = "SLURM_TASKS_PER_NODE";
  if (value_of(environment, variable).empty()) variable = "SLURM_JOB_CPUS_PER_NODE";
  const std::string text = value_of(environment, variable);
  auto slots = numbers_of_slurm(text);
  if (text.empty()) slots.assign(names->size(), 0);
  if (slots.size() != names->size()) {
    return wrong_hosts(variable + "=" + text + " has no number for each of the " +
                       std::to_string(names->size()) + " hosts of SLURM_JOB_NODELIST=" + list +
                       ": expected a list as in 8(x3),4; or name the hosts with -H");
  }
  Hosts hosts;
  for (std::size_t i = 0; i < slots.size(); ++i) hosts.push_back({(*names)[i], slots[i]});
  return hosts;
}

std::string plural(std::int64_t count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

// What to write to have room for so many ranks: "-H a:4,b:4".
std::string advice(const Hosts& hosts, std::int64_t ranks) {
  constexpr std::size_t kMostShown = 4;
  const auto count = std::int64_t(hosts.size());
  std::vector<std::string> words;
  for (const Host& host : hosts) {
    std::string name = host.name;
    if (name.find(':') != name.npos) name.insert(name.find('@') + 1, "[").append("]");
    words.push_back(name + ":" + std::to_string((ranks + count - 1) / count));
  }
  const std::string more = words.size() > kMostShown ? ",..." : "";
  words.resize(std::min(words.size(), kMostShown));
  return "-H " + base::joined(words, ",") + more;
}

// How many ranks each host has room for.
std::vector<std::int64_t> rooms_of(const Hosts& hosts, std::int64_t ranks,
                                   std::int64_t cores_here) {
  std::vector<std::int64_t> rooms;
  std::int64_t silent = 0;
  for (const Host& host : hosts) {
    rooms.push_back(host.slots == 0 && host.here ? cores_here : host.slots);
    ranks -= rooms.back();
    silent += rooms.back() == 0 ? 1 : 0;
  }
  const std::int64_t rest = std::max<std::int64_t>(ranks, silent);
  for (std::int64_t share = silent; std::int64_t & room : rooms) {
    if (room == 0) room = (rest + --share) / silent;
  }
  return rooms;
}

Result<Hosts> named_hosts(const std::string& list, const std::string& hostfile,
                          Variables environment, const Self& self, const ReadFile& read) {
  if (!list.empty() && !hostfile.empty()) {
    return wrong_hosts("-H " + list + " and --hostfile " + hostfile +
                       " both name hosts: leave one of them out");
  }
  if (!list.empty()) return read_hosts("-H " + list, list, ',', 1);
  const std::string slurm = value_of(environment, "SLURM_JOB_NODELIST");
  const std::string pbs = slurm.empty() ? value_of(environment, "PBS_NODEFILE") : "";
  if (hostfile.empty() && !slurm.empty()) return read_slurm(slurm, environment);
  // Kubeflow's MPI operator says it to mpirun.
  const std::string operators = value_of(environment, "OMPI_MCA_orte_default_hostfile");
  const std::string file = hostfile.empty() && pbs.empty() ? operators : hostfile;
  if (file.empty() && pbs.empty()) {
    return Hosts{{self.names.empty() ? "localhost" : self.names.front(), 0, true}};
  }
  RONDE_ASSIGN_OR_RETURN(const std::string text, read(file.empty() ? pbs : file));
  return file.empty() ? read_hosts("PBS_NODEFILE=" + pbs, text, '\n', 1)
                      : read_hosts("--hostfile " + file, text, '\n', 0);
}

}  // namespace

Result<std::vector<Host>> hosts_of_job(const std::string& list, const std::string& hostfile,
                                       std::span<const std::string> environment, const Self& self,
                                       const ReadFile& read) {
  RONDE_ASSIGN_OR_RETURN(auto hosts, named_hosts(list, hostfile, environment, self, read));
  return merged(std::move(hosts), self);
}

Result<Placement> place(const std::vector<Host>& hosts, std::optional<std::int64_t> ranks,
                        std::int64_t cores_here) {
  base::check(!hosts.empty() && ranks.value_or(1) > 0, "a job has hosts and ranks");
  for (const Host& host : hosts) {
    if (ranks || host.slots > 0 || host.here) continue;
    return wrong_hosts("nobody says how many ranks run on " + host.name + ": write -np N, or " +
                       advice(hosts, std::int64_t(hosts.size())) + " with the slots of each");
  }
  std::vector<std::int64_t> rooms = rooms_of(hosts, ranks.value_or(0), cores_here);
  const std::int64_t slots = std::accumulate(rooms.begin(), rooms.end(), std::int64_t{0});
  const std::int64_t wanted = ranks.value_or(slots);
  const std::string subject =
      ranks ? "-np " + std::to_string(wanted) : "a rank for each of " + plural(slots, "slot");
  if (wanted > kMostRanksOfJob) {
    return wrong_hosts(subject + " is more than the " + std::to_string(kMostRanksOfJob) +
                       " ranks that a job can have: use fewer");
  }
  Placement placement;
  if (wanted > slots && hosts.size() == 1 && hosts.front().here && hosts.front().slots == 0) {
    rooms.front() = wanted;
    placement.message =
        plural(wanted, "rank") + " on " + plural(cores_here, "core") + ": the ranks take turns";
  } else if (wanted > slots) {
    return wrong_hosts(
        subject + " is more than the " + plural(slots, "slot") + " of " +
        (hosts.size() == 1 ? hosts[0].name : plural(std::int64_t(hosts.size()), "host")) +
        ": write " + advice(hosts, wanted) + ", or use fewer ranks");
  }
  std::int64_t first = 0;
  for (std::size_t i = 0; i < hosts.size() && first < wanted; ++i) {
    const std::int64_t count = std::min(rooms[i], wanted - first);
    if (count > kMostRanksOfHost) {
      return wrong_hosts(subject + " puts " + std::to_string(count) + " ranks on " + hosts[i].name +
                         ", more than the " + std::to_string(kMostRanksOfHost) +
                         " that one host can have: use fewer");
    }
    placement.blocks.push_back({hosts[i], first, count});
    first += count;
  }
  return placement;
}

std::vector<Host> without(std::vector<Host> hosts, const std::string& name) {
  std::erase_if(hosts, [&](const Host& host) { return host.name == name; });
  return hosts;
}

}  // namespace ronde::launcher
