// SPDX-License-Identifier: Apache-2.0
// The checks of a host, and the comparison of all ways between hosts.
#include "launcher/doctor/findings.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <utility>

#include "base/text.h"

namespace ronde::launcher {

namespace {

using base::words_of;

constexpr std::int64_t kMega = std::int64_t{1} << 20U;

std::string fact(const HostReport& host, const std::string& name) {
  const auto found = host.facts.find(name);
  return found == host.facts.end() ? "" : found->second;
}

// "unlimited" is more than any number.
std::int64_t number(const HostReport& host, const std::string& name) {
  return base::parse_number<std::int64_t>(fact(host, name)).value_or(INT64_MAX);
}

// What may be wrong, the worst first.
struct Case {
  bool is_so;
  Level level;
  std::string what;
  std::string fix;
};

Finding check(const HostReport& host, const std::string& well, std::initializer_list<Case> cases) {
  for (const Case& one : cases) {
    if (one.is_so) return {one.level, host.name, one.what, one.fix};
  }
  return {Level::kOk, host.name, well};
}

Finding check_files(const HostReport& host, const HostReport& first) {
  std::vector<std::string> missing;
  std::vector<std::string> names;
  for (const std::string& one : words_of(fact(first, "files"))) {
    const std::string name = one.substr(0, one.find('='));
    names.push_back(name);
    if ((" " + fact(host, "files")).find(" " + name + "=") == std::string::npos) {
      missing.push_back(name);
    }
  }
  const std::string fix = "install the same build of Ronde there as on " + first.name;
  // Hosts without a GPU need not have what drives one.
  const bool only_cuda = missing == std::vector<std::string>{"libronde_cuda.so"};
  return check(host, "Ronde with " + base::joined(names),
               {{!missing.empty(), only_cuda ? Level::kWarn : Level::kFail,
                 "has no " + base::joined(missing) + ", which " + first.name + " has", fix},
                {fact(host, "files") != fact(first, "files"), Level::kWarn,
                 "has another build of Ronde than " + first.name, fix},
                {names.empty(), Level::kWarn, "no libronde.so belongs to this ronderun",
                 "install Ronde's library beside it, unless programs bring their own"}});
}

Finding check_processor(const HostReport& host, const HostReport& first) {
  const std::string mine = "CPU: " + fact(host, "features");
  return check(host, mine,
               {{fact(host, "features") != fact(first, "features"), Level::kWarn,
                 mine + "; " + first.name + " has " + fact(first, "features") +
                     ": Ronde's sums have the same bits on both, but what programs compute may not",
                 "use hosts of one kind, or keep libraries to what all have, as with "
                 "ATEN_CPU_CAPABILITY=default for PyTorch"}});
}

// Ronde's own boards do not lie in /dev/shm.
Finding check_shared_memory(const HostReport& host) {
  const std::int64_t free = number(host, "shm") / kMega;
  return check(
      host, "/dev/shm has 64 MiB or more",
      {{free < 64, Level::kWarn,
        "/dev/shm has " + std::to_string(free) + " MiB free: MPI and data loaders may need more",
        "mount -o remount,size=1g /dev/shm (as root), or docker run --shm-size=1g"}});
}

Finding check_kernel(const HostReport& host) {
  const std::string fix = "let the container's seccomp profile allow it, or use Linux 5.3 or later";
  return check(host, "pidfd_open and memfd_create work",
               {{fact(host, "memfd") != "1", Level::kFail,
                 "memfd_create is refused: ranks cannot share memory", fix},
                {fact(host, "pidfd") != "1", Level::kWarn,
                 "pidfd_open is refused: Ronde watches sockets instead", fix}});
}

Finding check_limits(const HostReport& host) {
  const std::int64_t files = number(host, "descriptors");
  // The agent has two pipes of each rank; a rank has links to others.
  const std::int64_t needed = 128 + 8 * host.ranks;
  const std::string where = " in /etc/security/limits.conf, or by ulimit where sshd starts";
  return check(
      host, "ulimits of files, threads and locked memory",
      {{files < std::max<std::int64_t>(needed, 1024), files < needed ? Level::kFail : Level::kWarn,
        "a process may open " + std::to_string(files) + " files (ulimit -n)",
        "set nofile to 65536" + where},
       {number(host, "processes") < 1024, Level::kWarn,
        "a user may have " + fact(host, "processes") + " threads (ulimit -u)",
        "set nproc to 65536" + where},
       {fact(host, "rdma") == "1" && number(host, "memlock") < 1024 * kMega, Level::kWarn,
        "a process may lock " + fact(host, "memlock") +
            " bytes (ulimit -l): UCX needs more for InfiniBand",
        "set memlock to unlimited" + where}});
}

Finding check_cores(const HostReport& host) {
  const std::int64_t cores = number(host, "cores");
  const bool quota = cores < number(host, "affinity");
  const std::string text = std::to_string(host.ranks) + (host.ranks == 1 ? " rank" : " ranks") +
                           " on " + std::to_string(cores) + (cores == 1 ? " core" : " cores") +
                           (quota ? " (a cgroup's quota)" : "");
  return check(host, text,
               {{host.ranks > cores, Level::kWarn, text + ": they wait for each other",
                 (quota ? "raise cpu.max of that container, or use -H " : "use -H ") + host.name +
                     ":" + std::to_string(cores)}});
}

Finding check_clock(const HostReport& host) {
  const auto ahead = std::chrono::abs(host.ahead);
  return check(host, "its clock agrees with this one",
               {{ahead > host.ahead_error + std::chrono::milliseconds(100), Level::kWarn,
                 "its clock is " + base::seconds_text(ahead) +
                     (host.ahead.count() > 0 ? " ahead" : " behind") + " (within " +
                     base::seconds_text(host.ahead_error) + "): times in logs do not fit",
                 "timedatectl set-ntp true there, or chronyc makestep"}});
}

Finding check_interfaces(const HostReport& host) {
  std::vector<std::string> names;
  names.reserve(host.doors.size());
  for (const Door& door : host.doors) names.push_back(door.interface + " " + door.network);
  const std::string down = host.down.empty() ? "" : words_of(host.down.front()).front();
  return check(host, "interfaces: " + base::some_of(names, 4),
               {{!down.empty(), Level::kWarn, "is down: " + base::joined(host.down),
                 "ip link set " + down + " up there (as root), unless jobs do without it"}});
}

std::string address_of(const Door& door) {
  return door.endpoint.substr(0, door.endpoint.rfind(':'));
}

// How an attempt went. None: an address that both have, as that of a container's bridge, does not
// lead from one to the other.
std::optional<std::string> attempt(const HostReport& from, const HostReport& to, const Door& door) {
  const bool shared = std::ranges::any_of(
      from.doors, [&](const Door& own) { return address_of(own) == address_of(door); });
  if (shared && from.identity != to.identity) return std::nullopt;
  const auto found = from.reached.find(door.endpoint);
  return found == from.reached.end() ? "not tried" : found->second;
}

bool is_open(const HostReport& from, const HostReport& to, const std::string& network = "") {
  return std::ranges::any_of(to.doors, [&](const Door& door) {
    return attempt(from, to, door) == "ok" && (network.empty() || door.network == network);
  });
}

// A network in which every host reaches every other.
std::string common_network(const std::vector<const HostReport*>& hosts) {
  for (const Door& door : hosts.front()->doors) {
    const bool all = std::ranges::all_of(hosts, [&](const HostReport* from) {
      return std::ranges::all_of(hosts, [&](const HostReport* to) {
        return from == to || is_open(*from, *to, door.network);
      });
    });
    if (all) return door.network;
  }
  return "";
}

std::string fix_of(const HostReport& from, const HostReport& to, const Door& door,
                   const std::string& how, const std::string& ports) {
  if (how != "dropped") {
    return "see with ip route get, and in the firewall's rules, how " + address_of(door) +
           " leads from " + from.name + " to " + to.name;
  }
  const auto near = std::ranges::find(from.doors, door.network, &Door::network);
  const Door source = near != from.doors.end() ? *near : from.doors.front();
  std::string range = ports.empty() ? "29600-29699" : ports;
  std::ranges::replace(range, '-', ':');
  return "on " + to.name + ": iptables -I INPUT -p tcp -s " + address_of(source) + " --dport " +
         range + " -j ACCEPT" +
         (ports.empty() ? ", with RONDE_PORTS=29600-29699 for every job" : "");
}

// From one to another; an empty text where all is well.
Finding way(const HostReport& from, const HostReport& to, const std::string& common,
            const std::string& ports) {
  const bool open = is_open(from, to);
  std::vector<std::string> closed;
  std::string fix;
  for (const Door& door : to.doors) {
    const auto how = attempt(from, to, door);
    if (!how || how == "ok") continue;
    if (closed.empty()) fix = fix_of(from, to, door, *how, ports);
    closed.push_back(door.endpoint + " (" + *how + ")");
  }
  if (open && closed.empty()) return {};
  if (closed.empty()) {
    closed.emplace_back("an address that only it has");
    fix = "give each an address of its own, on an interface that is up";
  }
  std::string what = from.name + " cannot reach " + to.name + " at " + base::joined(closed);
  if (!open && is_open(to, from)) what += "; the other way is open";
  if (open && !common.empty()) fix = "set RONDE_INTERFACE=" + common + ", where all reach all";
  return {open ? Level::kWarn : Level::kFail, from.name, what, fix};
}

void check_ways(const std::vector<const HostReport*>& hosts, const std::string& ports,
                std::vector<Finding>& all) {
  if (hosts.size() < 2) return;
  const std::string common = common_network(hosts);
  const std::size_t before = all.size();
  for (const HostReport* const from : hosts) {
    for (const HostReport* const to : hosts) {
      Finding one = from == to ? Finding() : way(*from, *to, common, ports);
      if (!one.what.empty()) all.push_back(std::move(one));
    }
  }
  if (all.size() != before) return;
  all.push_back({Level::kOk, "all",
                 "each reaches each at every address" +
                     (common.empty() ? "" : "; RONDE_INTERFACE=" + common + " would do")});
}

}  // namespace

void take_line(HostReport& host, const std::string& line) {
  const std::vector<std::string> words = words_of(line, " ");
  if (words.size() < 2) return;
  const std::string rest = line.substr(words[0].size() + 1);
  const std::string value = words.size() > 2 ? rest.substr(words[1].size() + 1) : "";
  if (words[0] == "fact") host.facts[words[1]] = value;
  if (words[0] == "door" && words.size() == 4) host.doors.push_back({words[1], words[2], words[3]});
  if (words[0] == "down") host.down.push_back(rest);
  if (words[0] == "reached") host.reached[words[1]] = value;
  if (words[0] == "trouble") host.trouble = rest;
}

std::vector<Finding> findings_of(const std::vector<HostReport>& hosts, const std::string& ports) {
  std::vector<Finding> all;
  std::vector<const HostReport*> there;
  for (const HostReport& host : hosts) {
    if (!host.trouble.empty()) {
      all.push_back(
          {Level::kFail, host.name, host.trouble,
           host.mending.empty() ? mending_of(host.name, host.trouble, "") : host.mending});
      continue;
    }
    there.push_back(&host);
    const HostReport& first = *there.front();
    for (Finding& one :
         std::to_array({check_files(host, first), check_shared_memory(host), check_kernel(host),
                        check_limits(host), check_cores(host), check_processor(host, first),
                        check_clock(host), check_interfaces(host)})) {
      all.push_back(std::move(one));
    }
  }
  check_ways(there, ports, all);
  return all;
}

std::string table_of(const std::vector<Finding>& findings) {
  static constexpr auto kWords = std::to_array<std::string_view>({"ok    ", "WARN  ", "FAIL  "});
  std::vector<std::pair<Finding, std::vector<std::string>>> rows;
  for (const Finding& one : findings) {
    const auto same = std::ranges::find_if(rows, [&](const auto& row) {
      return row.first.level == one.level && row.first.what == one.what && row.first.fix == one.fix;
    });
    if (same != rows.end()) same->second.push_back(one.where);
    if (same == rows.end()) rows.push_back({one, {one.where}});
  }
  std::size_t width = 0;
  for (const auto& row : rows) width = std::max(width, base::some_of(row.second, 4).size());
  std::string text;
  for (const auto& [row, hosts] : rows) {
    std::string where = base::some_of(hosts, 4);
    where.resize(width, ' ');
    text += std::string(kWords[static_cast<std::size_t>(row.level)]) + where + "  " +
            base::printable(row.what) + "\n";
    if (row.fix.empty()) continue;
    text += std::string(8 + width, ' ') + "-> " + base::printable(row.fix) + "\n";
  }
  return text;
}

std::string mending_of(const std::string& host, const std::string& words,
                       const std::string& start) {
  const auto says = [&](std::string_view what) { return words.find(what) != std::string::npos; };
  if (says("Permission denied")) return "ssh-copy-id " + host;
  if (says("Host key verification")) return "ssh-keyscan " + host + " >>~/.ssh/known_hosts";
  if (says("resolve hostname")) return "give an address instead of a name, or add it to /etc/hosts";
  if (says("RONDE_INTERFACE")) return "set RONDE_INTERFACE to a network in which every host is";
  if (says("RONDE_PORTS")) return "set RONDE_PORTS to more, or to others that are free on " + host;
  if (says("no folder")) return "make it on " + host + ", or name another with --wdir";
  if (says("not found") || says("No such file")) {
    return "install the same Ronde on " + host + ", or say with --agent where ronderun is there";
  }
  return start.empty() ? "mend what it names" : "see that this works, without a question: " + start;
}

}  // namespace ronde::launcher
