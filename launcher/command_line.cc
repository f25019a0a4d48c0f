// SPDX-License-Identifier: Apache-2.0
// How mpirun's words and environment are chosen; written for, and tested with, Open MPI 4.1.
#include "launcher/command_line.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>

#include "base/config.h"

namespace ronde::launcher {

namespace {

using base::Code;
using base::Result;
using base::Status;

// More ranks than this on one host are a typing error, and would take the machine down.
constexpr std::int64_t kMaxRanksOnOneHost = 1024;
constexpr std::int64_t kMaxRanks = 1 << 20;

Status refused(const std::string& message) {
  return Status::error(Code::kInvalidArgument, message);
}

std::map<std::string, std::string> variables_of(const std::vector<std::string>& environment) {
  std::map<std::string, std::string> variables;
  for (const std::string& line : environment) {
    const std::size_t equals = line.find('=');
    if (equals != std::string::npos) variables[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return variables;
}

// Whether a batch system has allocated hosts and slots, which mpirun takes from it then.
bool in_allocation(const std::map<std::string, std::string>& variables) {
  static constexpr std::array<const char*, 5> kMarks = {"SLURM_JOB_ID", "SLURM_JOBID",
                                                        "PBS_NODEFILE", "LSB_JOBID", "PE_HOSTFILE"};
  return std::any_of(kMarks.begin(), kMarks.end(),
                     [&](const char* mark) { return variables.count(mark) != 0; });
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

// Every RONDE_* variable of this environment, then those of the options, then the attempt; the last
// one wins.
Result<Exports> exports_of(const Options& options, const Facts& facts,
                           const std::map<std::string, std::string>& variables) {
  Exports exports;
  for (const auto& [name, value] : variables) {
    if (name.rfind("RONDE_", 0) == 0) exports[name] = std::nullopt;
  }
  for (const Export& variable : options.exports) {
    if (!variable.value.has_value() && variables.count(variable.name) == 0) {
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
  return exports;
}

// Checks settings here, where a bad one fails once and before anything starts, not on every rank.
Status check_settings(const Exports& exports, const std::map<std::string, std::string>& variables,
                      std::vector<std::string>& messages) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : exports) {
    lines.push_back(name + "=" + (value.has_value() ? *value : variables.at(name)));
  }
  std::vector<std::string> unknown;
  RONDE_RETURN_IF_ERROR(base::Config::from_environment(lines, &unknown).status());
  for (const std::string& name : unknown) {
    messages.push_back(name + " is not a setting of Ronde: ronderun --help lists them");
  }
  return {};
}

// Only a job that runs needs a secret: what --dry-run prints is for the user's own shell.
bool needs_secret(const Options& options, const Exports& exports, bool here) {
  const bool given =
      exports.contains(kSecretVariable) || exports.contains(std::string(kSecretVariable) + "_FILE");
  return !here && !given && !options.dry_run;
}

Status check_numbers(const Options& options, bool here) {
  const std::int64_t most = here ? kMaxRanksOnOneHost : kMaxRanks;
  if (*options.ranks > most) {
    return refused("-np " + std::to_string(*options.ranks) + " is more than the " +
                   std::to_string(most) + " ranks that " + (here ? "one host" : "a job") +
                   " can have: use fewer");
  }
  if (options.tag && !here) {
    return refused(
        "--tag works for ranks on this host: use --output-dir DIR, or mpirun's own tags with "
        "--mpi-args --tag-output");
  }
  // mpirun gives a word ":" a meaning in any place, and it cannot be quoted.
  if (std::find(options.program.begin(), options.program.end(), ":") != options.program.end()) {
    return refused(
        "an argument \":\" cannot reach the program: mpirun takes it for the start of another "
        "program; leave it out");
  }
  return {};
}

// Sends the output of a rank into the pipes in the folder that is the script's $0, and becomes the
// program.
constexpr const char* kToPipes =
    R"(r="$0/rank.$OMPI_COMM_WORLD_RANK"; exec "$@" >"$r.out" 2>"$r.err")";
// The same into files, which keep what earlier starts have printed, those of another ronderun too,
// as of a batch job that was queued again. A line says where each start begins; what a program
// prints to an empty rank.N.out stays as it is.
constexpr const char* kStartLine =
    R"sh(r="$0/rank.$OMPI_COMM_WORLD_RANK"; d="ronderun: job start, $(date '+%F %T %z')"; )sh";
constexpr const char* kAgainLine =
    R"sh(r="$0/rank.$OMPI_COMM_WORLD_RANK"; )sh"
    R"sh(d="ronderun: restart $RONDE_RESTART_ATTEMPT, $(date '+%F %T %z')"; )sh";
constexpr const char* kToFiles =
    R"sh(echo "$d" >>"$r.err"; if [ -s "$r.out" ]; then echo "$d" >>"$r.out"; fi; )sh"
    R"sh(exec "$@" >>"$r.out" 2>>"$r.err")sh";
// The folder may be missing on another host.
constexpr const char* kMakeFolder = R"(mkdir -p "$0" && )";
// Says where the rank runs, for the line about a failure; ronderun keeps it from the user.
constexpr const char* kSayPlace =
    R"sh(echo "ronderun: the host of rank $OMPI_COMM_WORLD_RANK is $(uname -n)" >&2; )sh";

// The shell that stands before the program on every rank; none where no script is needed.
std::vector<std::string> shell_before_program(const Options& options, const Facts& facts,
                                              bool here) {
  const bool files = !options.output_dir.empty();
  const std::string place = here || options.verbose ? "" : kSayPlace;
  if (files) {
    const std::string line = facts.attempt > 0 ? kAgainLine : kStartLine;
    return {"sh", "-c", place + kMakeFolder + line + kToFiles, options.output_dir};
  }
  if (!facts.tag_folder.empty()) return {"sh", "-c", kToPipes, facts.tag_folder};
  if (place.empty()) return {};
  return {"sh", "-c", place + R"(exec "$@")", "sh"};
}

bool mentions_oversubscribe(const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word.find("oversubscribe") != std::string::npos ||
           word.find("OVERSUBSCRIBE") != std::string::npos;
  });
}

}  // namespace

Result<CommandLine> make_command_line(const Options& options, const Facts& facts) {
  base::check(options.ranks.has_value() && !options.program.empty(), "options of a job");
  const std::map<std::string, std::string> variables = variables_of(facts.environment);
  const bool here = options.hosts.empty() && options.hostfile.empty() && !in_allocation(variables);
  RONDE_RETURN_IF_ERROR(check_numbers(options, here));
  RONDE_ASSIGN_OR_RETURN(const auto exports, exports_of(options, facts, variables));

  CommandLine result;
  RONDE_RETURN_IF_ERROR(check_settings(exports, variables, result.messages));
  std::vector<std::string>& argv = result.argv;
  argv = {facts.mpirun, "-np", std::to_string(*options.ranks)};
  const auto add = [&argv](std::initializer_list<std::string> words) {
    argv.insert(argv.end(), words);
  };
  if (facts.is_root) add({"--allow-run-as-root"});
  result.one_host = here;
  if (!options.hosts.empty()) add({"-H", options.hosts});
  if (!options.hostfile.empty()) add({"--hostfile", options.hostfile});
  add({"--bind-to", options.bind_to});
  // mpirun counts whole cores, and we count what may run at once, so it can have fewer slots than
  // we count cores: then the option is needed, but no core is short and the user need not know.
  if (here && !mentions_oversubscribe(options.mpi_args)) {
    if (*options.ranks > std::min(facts.cores, facts.slots)) add({"--oversubscribe"});
    if (*options.ranks > facts.cores) {
      result.messages.push_back(std::to_string(*options.ranks) + " ranks on " +
                                std::to_string(facts.cores) +
                                (facts.cores == 1 ? " core" : " cores") +
                                ": adding --oversubscribe, the ranks take turns");
    }
  }
  for (const auto& [name, value] : exports) {
    add({"-x", value.has_value() ? name + "=" + *value : name});
  }
  result.needs_secret = needs_secret(options, exports, here);
  if (result.needs_secret) add({"-x", kSecretVariable});
  argv.insert(argv.end(), options.mpi_args.begin(), options.mpi_args.end());
  const std::vector<std::string> shell = shell_before_program(options, facts, here);
  argv.insert(argv.end(), shell.begin(), shell.end());
  argv.insert(argv.end(), options.program.begin(), options.program.end());
  return result;
}

std::string shell_quoted(std::span<const std::string> words) {
  static constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789%+,-./:=@_";
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char letter : word) {
      if (letter == '\'') {
        line += "'\\''";
      } else {
        line += letter;
      }
    }
    line += '\'';
  }
  return line;
}

}  // namespace ronde::launcher
