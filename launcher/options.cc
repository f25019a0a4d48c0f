// SPDX-License-Identifier: Apache-2.0
// The table of ronderun's options and its parser.
//
// The parser is our own, because Boost.Program_options cannot stop at the first word that is not an
// option: it would read the program's flags as ours. It also refuses "-np" beside "-n".
#include "launcher/options.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "base/config.h"

namespace ronde::launcher {

namespace {

using base::Code;
using base::Result;
using base::Status;

enum class Action : std::uint8_t {
  kRanks,
  kHosts,
  kHostfile,
  kExport,
  kStart,
  kAgent,
  kFolder,
  kBindTo,
  kMpi,
  kMpiArgs,
  kAccelerateMpi,
  kTag,
  kOutputDir,
  kStopGrace,
  kRestarts,
  kRestartWindow,
  kDryRun,
  kVerbose,
  kVersion,
  kCheckBuild,
  kHelp,
  kSetting,
};

struct Row {
  Action action;
  std::vector<std::string> names;
  std::string value;  // what the option takes, as --help shows it; empty: nothing
  std::string help;
  std::string variable{};  // kSetting: the variable it sets
};

std::string option_of(std::string_view variable) {
  std::string option = "--";
  for (const char letter : variable.substr(std::string_view("RONDE_").size())) {
    option += letter == '_' ? '-' : static_cast<char>(std::tolower(letter));
  }
  return option;
}

// Which ranks start, where, and by whom.
std::vector<Row> rows_of_ranks() {
  return {
      {Action::kRanks,
       {"-np", "-n", "--np", "--num-proc"},
       "N",
       "how many ranks to start (default: one for each slot of the hosts, which of this host alone "
       "are its cores)"},
      {Action::kExport, {"-x"}, "NAME[=VALUE]", "give every rank this variable; may be repeated"},
      {Action::kHosts,
       {"-H", "--hosts"},
       "LIST",
       "hosts and their slots, as in a:2,b:2 (default: those that Slurm or PBS has allocated, or "
       "this one)"},
      {Action::kHostfile,
       {"--hostfile"},
       "FILE",
       "hosts and their slots, a line each, as in: a slots=2"},
      {Action::kStart,
       {"--start"},
       "\"COMMAND\"",
       "what starts a program on another host, whose name takes the place of {host} or follows "
       "(default ssh -o BatchMode=yes -o ConnectTimeout=10)"},
      {Action::kAgent,
       {"--agent"},
       "PATH",
       "ronderun on the other hosts (default: where it is here)"},
      {Action::kFolder, {"--wdir"}, "DIR", "where the ranks work (default: where ronderun does)"},
      {Action::kBindTo,
       {"--bind-to"},
       "WHAT",
       "what part of a host each rank gets: none, core, numa, or auto (the default: numa where a "
       "host has several nodes of memory, else none)"},
      {Action::kMpi,
       {"--mpi"},
       "",
       "let Open MPI's mpirun start the ranks: for programs that use MPI themselves"},
      {Action::kMpiArgs,
       {"--mpi-args"},
       "\"ARGS\"",
       "with --mpi: further options for mpirun, as they are"},
      {Action::kAccelerateMpi,
       {"--accelerate-mpi"},
       "",
       "let Ronde do MPI_Allreduce of large vectors in a program that knows only MPI"},
  };
}

// What becomes of their output, and of the job.
std::vector<Row> rows_of_job() {
  return {
      {Action::kTag, {"--tag"}, "", "put the rank before each line that it prints, as in [1] ..."},
      {Action::kOutputDir,
       {"--output-dir"},
       "DIR",
       "append what rank N prints to DIR/rank.N.out and DIR/rank.N.err"},
      {Action::kStopGrace,
       {"--stop-grace"},
       "SECONDS",
       "how long the ranks may take to end by themselves after SIGTERM (default 20)"},
      {Action::kRestarts,
       {"--restarts"},
       "N",
       "start a job that failed or was stopped again, up to N times (default 0); "
       "RONDE_RESTART_ATTEMPT tells the ranks how often that was, RONDE_RESTART_JOB of which job"},
      {Action::kRestartWindow,
       {"--restart-window"},
       "SECONDS",
       "after a start that ran so long, count restarts from 0 again (default 3600)"},
      {Action::kDryRun, {"--dry-run"}, "", "print what would start where, and stop"},
      {Action::kVerbose, {"--verbose"}, "", "print what starts where, and why"},
      {Action::kCheckBuild, {"--check-build"}, "", "print what this build has, and stop"},
      {Action::kVersion, {"-v", "--version"}, "", "print the version and stop"},
      {Action::kHelp, {"-h", "--help"}, "", "print this text and stop"},
  };
}

std::vector<Row> own_rows() {
  std::vector<Row> rows = rows_of_ranks();
  for (Row& row : rows_of_job()) rows.push_back(std::move(row));
  return rows;
}

// The word that --help shows for a value.
const char* value_name(base::SettingKind kind) {
  switch (kind) {
    case base::SettingKind::kChoice:
      return "WORD";
    case base::SettingKind::kInteger:
      return "N";
    case base::SettingKind::kSeconds:
      return "SECONDS";
    case base::SettingKind::kPorts:
      return "PORTS";
    case base::SettingKind::kText:
      return "TEXT";
  }
  return "";
}

std::vector<Row> setting_rows() {
  std::vector<Row> rows;
  for (const base::Setting& setting : base::settings()) {
    if (setting.name == "RONDE_MPI") continue;  // --mpi is another word, and this one an old name
    rows.push_back(
        {Action::kSetting,
         {option_of(setting.name)},
         value_name(setting.kind()),
         std::string(setting.help) + " (" + base::valid_values(setting) + "; default " +
             (setting.default_value.empty() ? "empty" : std::string(setting.default_value)) + ")",
         std::string(setting.name)});
  }
  return rows;
}

std::vector<Row> all_rows() {
  std::vector<Row> rows = own_rows();
  for (Row& row : setting_rows()) rows.push_back(std::move(row));
  return rows;
}

Status bad(const std::string& message) { return Status::error(Code::kInvalidArgument, message); }

// Counts the letters that must change to turn one word into the other (Levenshtein).
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

Status unknown_option(const std::vector<Row>& rows, const std::string& name) {
  std::string nearest;
  std::size_t best = 3;  // further away than two letters is another word, not a misspelling
  for (const Row& row : rows) {
    for (const std::string& candidate : row.names) {
      const std::size_t letters = distance(name, candidate);
      // With half of its letters changed it is another word too, as --mca for --mpi.
      if (letters < best && candidate.size() > 2 * letters + 2) {
        best = letters;
        nearest = candidate;
      }
    }
  }
  return bad("unknown option " + name + ": " +
             (nearest.empty() ? "ronderun --help lists the options; those of mpirun go in "
                                "--mpi-args \"...\", those of the program after it"
                              : "did you mean " + nearest + "?"));
}

Status apply_flag(Options& options, Action action) {
  options.dry_run |= action == Action::kDryRun;
  options.verbose |= action == Action::kVerbose;
  options.tag |= action == Action::kTag;
  options.mpi |= action == Action::kMpi;
  options.accelerate_mpi |= action == Action::kAccelerateMpi;
  options.version |= action == Action::kVersion;
  options.check_build |= action == Action::kCheckBuild;
  options.help |= action == Action::kHelp;
  return {};
}

// Stores a parsed value in its field.
template <typename Value, typename Place>
Status store(Result<Value> value, Place& place) {
  RONDE_RETURN_IF_ERROR(value.status());
  place = std::move(value).value();
  return {};
}

Status apply(Options& options, const Row& row, const std::string& name, const std::string& value) {
  switch (row.action) {
    case Action::kRanks:
      return store(parse_ranks(name, value), options.ranks);
    case Action::kHosts:
      if (value.empty()) return bad(name + " is empty: name at least one host, as in localhost:2");
      options.hosts = value;
      return {};
    case Action::kHostfile:
      if (value.empty()) return bad(name + " is empty: name the file");
      options.hostfile = value;
      return {};
    case Action::kOutputDir:
      if (value.empty()) return bad(name + " is empty: name the folder");
      options.output_dir = value;
      return {};
    case Action::kStart:
      RONDE_RETURN_IF_ERROR(store(parse_words(name, value), options.start));
      if (options.start.empty()) return bad(name + " is empty: name the command, as in ssh");
      return {};
    case Action::kAgent:
      options.agent = value;
      return {};
    case Action::kFolder:
      options.folder = value;
      return {};
    case Action::kBindTo:
      return store(parse_binding(value), options.bind_to);
    case Action::kStopGrace:
      return store(parse_grace(name, value), options.stop_grace);
    case Action::kRestarts:
      return store(parse_restarts(name, value), options.restarts);
    case Action::kRestartWindow:
      return store(parse_window(name, value), options.restart_window);
    case Action::kMpiArgs: {
      std::vector<std::string> more;
      RONDE_RETURN_IF_ERROR(store(parse_words(name, value), more));
      options.mpi_args.insert(options.mpi_args.end(), more.begin(), more.end());
      return {};
    }
    case Action::kExport: {
      Export variable;
      RONDE_RETURN_IF_ERROR(store(parse_export(value), variable));
      options.exports.push_back(std::move(variable));
      return {};
    }
    case Action::kSetting:
      options.exports.push_back({row.variable, value});
      return {};
    case Action::kAccelerateMpi:
    case Action::kMpi:
    case Action::kTag:
    case Action::kDryRun:
    case Action::kVerbose:
    case Action::kVersion:
    case Action::kCheckBuild:
    case Action::kHelp:
      return apply_flag(options, row.action);
  }
  return {};
}

Status check_complete(const Options& options, bool needs_program) {
  if (options.help || options.version || options.check_build || !needs_program) return {};
  if (options.program.empty() || options.program.front().empty()) {
    return bad("no program to run: name it after the options, as in: ronderun -np 2 ./program");
  }
  if (options.tag && !options.output_dir.empty()) {
    return bad(
        "--output-dir gives each rank files of its own, so --tag has nothing to do: leave it out");
  }
  return {};
}

}  // namespace

Result<Options> parse_options(std::span<const std::string> arguments, bool needs_program) {
  const std::vector<Row> rows = all_rows();
  Options options;
  std::size_t i = 0;
  for (; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--") {
      ++i;
      break;
    }
    if (word.size() < 2 || word[0] != '-') break;
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& candidate) {
      return std::find(candidate.names.begin(), candidate.names.end(), name) !=
             candidate.names.end();
    });
    if (row == rows.end()) return unknown_option(rows, name);
    std::string value;
    if (row->value.empty()) {
      if (equals != std::string::npos) return bad(name + " takes no value: write " + name);
    } else if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (++i < arguments.size()) {
      value = arguments[i];
    } else {
      return bad(name + " needs a value: " + name + " " + row->value);
    }
    RONDE_RETURN_IF_ERROR(apply(options, *row, name, value));
  }
  options.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
  RONDE_RETURN_IF_ERROR(check_complete(options, needs_program));
  return options;
}

std::string help_text() {
  constexpr std::size_t kColumn = 34;
  const auto lines = [](const std::vector<Row>& rows) {
    std::string text;
    for (const Row& row : rows) {
      std::string left = "  ";
      for (const std::string& name : row.names) left += (left.size() > 2 ? ", " : "") + name;
      if (!row.value.empty()) left += " " + row.value;
      left += left.size() + 1 < kColumn ? std::string(kColumn - left.size(), ' ')
                                        : "\n" + std::string(kColumn, ' ');
      text += left + row.help + "\n";
    }
    return text;
  };
  return R"(usage: ronderun [-np N] [options] program [its arguments]
       ronderun doctor [OPTIONS]   looks at the hosts first, and says what to mend

Starts N ranks of a program: those of this host itself, those of other hosts through an agent
there, which ssh starts (or --start). The options end at the program's name (or at --); what
follows belongs to the program. Every variable of the environment reaches every rank. Ctrl-C
ends all ranks, a second one kills them. SIGTERM asks them to end: each gets it, and has
--stop-grace. The exit code is that of the first rank that failed (128 + number for a signal);
a job that is started again has that of the last start. 75 means: stopped and saved, goes on
when it is started again; 2 and 78 mean: no repeat can mend this.

)" + lines(own_rows()) +
         "\nsettings of Ronde (each is also a variable, as RONDE_ALGORITHM is --algorithm):\n" +
         lines(setting_rows());
}

}  // namespace ronde::launcher
