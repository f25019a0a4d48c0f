// SPDX-License-Identifier: Apache-2.0
// Who starts the ranks, where, and what they find in their environment.
#include "launcher/plan.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/config.h"
#include "base/numbers.h"
#include "launcher/agent/agent.h"
#include "launcher/shell.h"

namespace ronde::launcher {

namespace {

using base::Result;
using base::Status;

// How long an agent on another host may take to answer.
constexpr base::Nanoseconds kAgentTime = std::chrono::seconds(30);
// The secret that the ranks may need is never on a command line.
constexpr const char* kSecretVariable = "RONDE_JOB_SECRET";

Status refused(const std::string& message) {
  return Status::error(base::Code::kInvalidArgument, message);
}

std::map<std::string, std::string> variables_of(const std::vector<std::string>& environment) {
  std::map<std::string, std::string> variables;
  for (const std::string& line : environment) {
    const std::size_t equals = line.find('=');
    if (equals != std::string::npos) variables[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return variables;
}

using Exports = std::map<std::string, std::optional<std::string>>;

// Names the job, where the user has not: a name in the environment may cover several ronderuns, as
// those of a batch job that is queued again.
void name_job(Exports& exports, const std::string& job,
              const std::map<std::string, std::string>& variables) {
  const auto there = exports.find(kJobVariable);
  if (there != exports.end()) {
    const auto& value = there->second;
    if (!(value.has_value() ? *value : variables.at(kJobVariable)).empty()) return;
  }
  exports[kJobVariable] = job;
}

// Puts the library that takes over MPI_Allreduce before what is preloaded already.
void preload(Exports& exports, const std::string& library,
             const std::map<std::string, std::string>& variables) {
  static constexpr const char* kVariable = "LD_PRELOAD";
  const auto here = variables.find(kVariable);
  std::optional<std::string>& value = exports[kVariable];
  if (!value.has_value() && here != variables.end()) value = here->second;
  value = value.value_or("").empty() ? library : library + ":" + *value;
}

// Checks settings here, where a bad one fails once and before anything starts, not on every rank.
Result<base::Config> check_settings(const std::vector<std::string>& lines,
                                    std::vector<std::string>& messages) {
  std::vector<std::string> unknown;
  RONDE_ASSIGN_OR_RETURN(auto config, base::Config::from_environment(lines, &unknown));
  for (const std::string& name : unknown) {
    messages.push_back(name + " is not a setting of Ronde: ronderun --help lists them");
  }
  return config;
}

// What belongs to a host or to a login, and not to a job.
bool stays_here(std::string_view name) {
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"_", "HOME", "HOSTNAME", "LOGNAME", "MAIL", "OLDPWD", "PWD", "SHELL", "SHLVL", "TERM",
       "TMPDIR", "USER", "DISPLAY", "XAUTHORITY", "LS_COLORS"});
  static constexpr auto kPrefixes = std::to_array<std::string_view>(
      {"SSH_", "XDG_", "DBUS_", "SLURM", "PBS_", "BASH_FUNC_", "GPG_"});
  return std::ranges::find(kNames, name) != kNames.end() ||
         std::ranges::any_of(kPrefixes, [&](auto prefix) { return name.starts_with(prefix); });
}

// A variable, or a line of one, that is meant for the ranks and would change mpirun itself.
bool changes_mpirun(std::string_view line) {
  return line.starts_with("LD_") || line == "PATH" || line.starts_with("PATH=");
}

// How the ranks of this host share its cores, and why.
std::string reason_of_binding(const Options& options, const Facts& facts, std::int64_t ranks) {
  if (options.bind_to != "auto") return "--bind-to " + options.bind_to;
  if (facts.nodes > 1 && ranks >= facts.nodes) {
    return "each rank gets an equal share of the " + std::to_string(facts.nodes) +
           " nodes of memory here, so that none moves away from its data";
  }
  return "the kernel places " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") +
         " on the " + std::to_string(facts.cores) + (facts.cores == 1 ? " core" : " cores") +
         " here, which other programs may use too";
}

// Whether mpirun starts the ranks, and why; empty: not.
std::string reason_for_mpi(const Options& options, const Facts& facts, std::size_t hosts) {
  if (options.mpi) return "--mpi";
  if (options.accelerate_mpi) return "--accelerate-mpi";
  if (!facts.mpi_in_program.empty()) return "the program is linked with " + facts.mpi_in_program;
  if (hosts > 1 && !facts.has_ucx) {
    return "this Ronde has no libronde_ucx.so, with which ranks of several hosts do without MPI";
  }
  return "";
}

Status check_words(const Options& options, bool over_mpi) {
  if (over_mpi) {
    // mpirun gives a word ":" a meaning in any place, and it cannot be quoted.
    if (std::ranges::find(options.program, ":") == options.program.end()) return {};
    return refused(
        "an argument \":\" cannot reach the program: mpirun takes it for the start of another "
        "program; leave it out");
  }
  if (!options.mpi_args.empty()) {
    return refused("--mpi-args are for mpirun, which starts the ranks only with --mpi: add it");
  }
  static constexpr auto kBindings =
      std::to_array<std::string_view>({"auto", "none", "core", "numa"});
  if (std::ranges::find(kBindings, options.bind_to) != kBindings.end()) return {};
  return refused("--bind-to " + options.bind_to +
                 " is mpirun's: use auto, none, core or numa, or add --mpi");
}

std::string start_line(const Facts& facts) {
  return (facts.attempt > 0 ? "ronderun: restart " + std::to_string(facts.attempt)
                            : std::string("ronderun: job start")) +
         ", " + facts.now + "\n";
}

void take_times(JobPlan& job, const base::Config& config, const Options& options) {
  job.start_timeout = std::min<base::Nanoseconds>(config.start_timeout, kAgentTime);
  job.link_timeout = config.link_timeout;
  job.stop_grace = options.stop_grace;
}

// With a secret, where ranks on several hosts may need one.
std::vector<std::string> lines_of(const std::vector<Export>& exports, const Facts& facts,
                                  bool one_host) {
  const auto variables = variables_of(facts.environment);
  std::vector<std::string> lines;
  bool secret = one_host;
  for (const Export& one : exports) {
    lines.push_back(one.name + "=" + (one.value ? *one.value : variables.at(one.name)));
    secret = secret || one.name.starts_with(kSecretVariable);
  }
  if (!secret) lines.push_back(kSecretVariable + ("=" + facts.secret));
  return lines;
}

// mpirun has words of its own for which rank runs where.
Status place_ranks(const Options& options, const Facts& facts, const std::vector<Host>& hosts,
                   bool over_mpi, Plan& plan) {
  JobPlan& job = plan.job;
  auto placed = place(hosts, options.ranks, facts.cores);
  if (!placed.ok() && over_mpi && options.ranks && *options.ranks <= kMostRanksOfJob) {
    job.ranks = base::narrow<std::int32_t>(*options.ranks);
    return {};
  }
  RONDE_RETURN_IF_ERROR(placed.status());
  if (!placed->message.empty()) plan.messages.push_back(placed->message);
  for (const Block& block : placed->blocks) {
    StartRanks start;
    start.first = base::narrow<std::int32_t>(block.first);
    start.count = base::narrow<std::int32_t>(block.ranks);
    job.ranks += start.count;
    job.hosts.push_back({block.host.name, block.host.here, std::move(start)});
  }
  return {};
}

void complete(HostPlan& host, const Options& options, const Facts& facts,
              const std::vector<std::string>& lines, Plan& plan) {
  StartRanks& start = host.start;
  start.job = facts.meeting;
  start.size = plan.job.ranks;
  start.folder = options.folder.empty() ? facts.folder : options.folder;
  start.link_timeout_ms = plan.job.link_timeout / std::chrono::milliseconds(1);
  if (!host.here) {
    for (const std::string& line : facts.environment) {
      const std::string name = line.substr(0, line.find('='));
      if (!stays_here(name) && !is_of_a_rank(name)) start.environment.push_back(line);
    }
  }
  for (const std::string& line : lines) {
    if (!start.mpirun || !changes_mpirun(line)) start.environment.push_back(line);
  }
  if (start.mpirun) return;
  start.argv = options.program;
  start.output_dir = options.output_dir;
  start.start_line = start_line(facts);
  start.binding = options.bind_to;
  if (host.here) plan.binding_reason = reason_of_binding(options, facts, start.count);
  const bool named =
      std::ranges::any_of(lines, [](const auto& one) { return one.starts_with("RONDE_JOB="); });
  if (!named) start.environment.push_back("RONDE_JOB=" + facts.meeting);
}

}  // namespace

bool is_of_a_rank(std::string_view name) {
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"RONDE_RANK", "RONDE_SIZE", "RONDE_LOCAL_RANK", "RONDE_LOCAL_SIZE", "RONDE_MEET",
       "RONDE_JOB", "RONDE_RANK_PROCESS", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
       "GROUP_RANK", "ROLE_RANK", "MASTER_ADDR", "MASTER_PORT", "TF_CONFIG", "MPI_LOCALRANKID",
       "MPI_LOCALNRANKS"});
  static constexpr auto kPrefixes = std::to_array<std::string_view>(
      {"PMIX_", "PMI_", "MV2_COMM_WORLD_", "JSM_NAMESPACE_", "HOROVOD_RANK", "HOROVOD_SIZE",
       "HOROVOD_LOCAL_", "HOROVOD_CROSS_", "HOROVOD_GLOO_", "TORCHELASTIC_", "OMPI_MCA_orte_",
       "OMPI_MCA_ess", "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir", "OMPI_MCA_shmem_RUNTIME"});
  const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
  if (std::ranges::find(kNames, name) != kNames.end() ||
      (std::ranges::any_of(kPrefixes, begins) && !begins("PMIX_MCA_"))) {
    return true;
  }
  return begins("OMPI_") && !begins("OMPI_MCA_") && !begins("OMPI_ALLOW_");
}

Result<std::vector<Export>> exports_of(const Options& options, const Facts& facts) {
  const auto variables = variables_of(facts.environment);
  Exports exports;
  for (const auto& [name, value] : variables) {
    if (name.starts_with("RONDE_")) exports[name] = std::nullopt;
  }
  for (const Export& variable : options.exports) {
    if (!variable.value.has_value() && !variables.contains(variable.name)) {
      return refused("-x " + variable.name + ": there is no such variable here: write -x " +
                     variable.name + "=VALUE");
    }
    exports[variable.name] = variable.value;
  }
  if (options.restarts > 0) {
    exports[kAttemptVariable] = std::to_string(facts.attempt);
    name_job(exports, facts.job, variables);
  }
  if (options.accelerate_mpi) preload(exports, facts.accelerator, variables);
  std::vector<Export> all;
  for (auto& [name, value] : exports) all.push_back({name, std::move(value)});
  return all;
}

Result<Plan> make_plan(const Options& options, const Facts& facts) {
  RONDE_ASSIGN_OR_RETURN(auto hosts, hosts_of_job(options.hosts, options.hostfile,
                                                  facts.environment, facts.self, facts.read));
  for (const std::string& lost : facts.lost) hosts = without(std::move(hosts), lost);
  const bool one_host = hosts.size() == 1 && hosts.front().here;
  const std::string mpi = reason_for_mpi(options, facts, hosts.size());
  RONDE_RETURN_IF_ERROR(check_words(options, !mpi.empty()));
  RONDE_ASSIGN_OR_RETURN(const auto exports, exports_of(options, facts));
  const std::vector<std::string> lines = lines_of(exports, facts, one_host);
  Plan plan;
  plan.hosts = hosts.size();
  RONDE_ASSIGN_OR_RETURN(const auto config, check_settings(lines, plan.messages));
  take_times(plan.job, config, options);
  plan.job.start_command = options.start;
  plan.job.agent_program = options.agent.empty() ? facts.ronderun : options.agent;
  RONDE_RETURN_IF_ERROR(place_ranks(options, facts, hosts, !mpi.empty(), plan));
  if (!mpi.empty()) {
    if (mpi != "--mpi") plan.messages.push_back("mpirun starts the ranks, since " + mpi);
    Options known = options;
    known.ranks = plan.job.ranks;
    StartRanks start;
    start.first = -1;
    start.count = 1;
    start.mpirun = true;
    start.argv = mpirun_line(known, facts, exports, one_host, plan.job.link_timeout);
    plan.job.hosts = {{facts.self.names.front(), true, std::move(start)}};
  }
  plan.job.tag = options.tag && mpi.empty();
  for (HostPlan& host : plan.job.hosts) complete(host, options, facts, lines, plan);
  return plan;
}

std::string text_of(const Plan& plan) {
  const StartRanks& first = plan.job.hosts.front().start;
  if (first.mpirun) return shell_quoted(first.argv);
  std::string text;
  for (const HostPlan& host : plan.job.hosts) {
    const std::int32_t last = host.start.first + host.start.count - 1;
    text +=
        (text.empty() ? "" : "\n") + host.host + ": " +
        (host.start.count == 1 ? "rank " : "ranks " + std::to_string(host.start.first) + " to ") +
        std::to_string(last) + ": " + shell_quoted(host.start.argv);
  }
  return text;
}

std::vector<std::string> mpirun_line(const Options& options, const Facts& facts,
                                     const std::vector<Export>& exports, bool one_host,
                                     base::Nanoseconds link_timeout) {
  const std::int64_t ranks = options.ranks.value_or(1);
  std::vector<std::string> argv{facts.mpirun, "-np", std::to_string(ranks)};
  const auto add = [&argv](std::initializer_list<std::string> words) {
    argv.insert(argv.end(), words);
  };
  if (facts.is_root) add({"--allow-run-as-root"});
  if (!options.hosts.empty()) add({"-H", options.hosts});
  if (!options.hostfile.empty()) add({"--hostfile", options.hostfile});
  add({"--bind-to", options.bind_to == "auto" ? "none" : options.bind_to});
  // mpirun counts whole cores, and we count what may run at once, so it can have fewer slots.
  const auto given = [&](std::string_view word) {
    return std::ranges::any_of(options.mpi_args, [&](const std::string& one) {
      return one.find(word) != std::string::npos;
    });
  };
  if (one_host && ranks > std::min(facts.cores, facts.slots) && !given("oversubscribe")) {
    add({"--oversubscribe"});
  }
  if (options.tag) add({"--tag-output"});
  bool secret = one_host;
  for (const Export& one : exports) {
    // Everybody reads a command line.
    secret = secret || one.name.starts_with(kSecretVariable);
    add({"-x", one.value && changes_mpirun(one.name) ? one.name + "=" + *one.value : one.name});
  }
  if (!secret) add({"-x", kSecretVariable});
  if (!one_host && !given("oob_tcp_keepalive")) {
    // Three thirds: quiet, and two questions without an answer.
    const std::string third =
        std::to_string(std::max<std::int64_t>(link_timeout / std::chrono::seconds(3), 1));
    add({"--mca", "oob_tcp_keepalive_time", third, "--mca", "oob_tcp_keepalive_intvl", third,
         "--mca", "oob_tcp_keepalive_probes", "2"});
  }
  argv.insert(argv.end(), options.mpi_args.begin(), options.mpi_args.end());
  add({facts.ronderun, kForMpirunFlag, facts.meeting, options.output_dir, start_line(facts)});
  argv.insert(argv.end(), options.program.begin(), options.program.end());
  return argv;
}

}  // namespace ronde::launcher
