// SPDX-License-Identifier: Apache-2.0
// The table of ronderun's options and its parser.
//
// The parser is our own, because Boost.Program_options cannot stop at the first word that is not an
// option: it would read the program's flags as ours. It also refuses "-np" beside "-n". The values
// are those of other programs' flags.
#include "launcher/options.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "base/config.h"
#include "base/flags/flags.h"

namespace ronde::launcher {

namespace {

using base::Code;
using base::Status;
namespace flags = base::flags;

constexpr double kLongestGrace = 86400;  // a day; a batch system waits for minutes
// A year. Without a window every restart would be forgiven at once, and a job that fails be started
// for ever.
constexpr double kLongestWindow = 31536000;

// What is wrong with the value of an option, to follow the option's name; empty: nothing.
using Reader = std::function<std::string(const std::string& text)>;

struct Row {
  std::vector<std::string> names;
  std::string value;  // what the option takes, as --help shows it; empty: nothing
  std::string help;
  Reader read;
};

Reader reads(flags::FlagValue value, const std::string& what = "valid") {
  return [value = std::move(value), what](const std::string& text) {
    return value.read(text) ? "" : text + " is not " + what + ": use " + value.valid;
  };
}

Row flag(std::vector<std::string> names, std::string help, bool& target) {
  return {std::move(names), "", std::move(help), reads(flags::on_where_named(target))};
}

// A text that is not empty.
Reader named(std::string& target, const std::string& use) {
  return [&target, use](const std::string& text) {
    target = text;
    return text.empty() ? "is empty: " + use : "";
  };
}

template <typename Number>
Reader at_least(Number& target, std::int64_t least, const std::string& what) {
  const auto holds = [least](std::int64_t number) { return number >= least; };
  return reads({"", flags::number_reader<std::int64_t>(target, holds),
                "a whole number, " + std::to_string(least) + " or more"},
               what);
}

Reader seconds(base::Nanoseconds& target, double least, double most, const std::string& valid) {
  const auto given = std::make_shared<double>();
  auto value = flags::real(*given, least, most, valid);
  value.read = [&target, given, read = std::move(value.read)](const std::string& text) {
    if (!read(text)) return false;
    target = std::chrono::duration_cast<base::Nanoseconds>(std::chrono::duration<double>(*given));
    return true;
  };
  return reads(std::move(value), "a time");
}

Reader binding(std::string& target) {
  flags::FlagValue value =
      flags::one_of(target, {"auto", "none", "hwthread", "core", "l1cache", "l2cache", "l3cache",
                             "socket", "numa", "board", "cpu-list"});
  value.read = [&target, read = std::move(value.read)](const std::string& text) {
    if (!read(text.substr(0, text.find(':')))) return false;  // a qualifier of mpirun may follow
    target = text;
    return true;
  };
  return reads(std::move(value));
}

// Blanks part words, outside of quotes; within "" a backslash is for what has a meaning there.
// Returns what is wrong with the text.
std::string split(const std::string& text, std::vector<std::string>& words) {
  char quote = 0;
  bool begun = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    const bool blank = quote == 0 && std::isspace(static_cast<unsigned char>(letter)) != 0;
    if (!blank && !begun) words.emplace_back();
    begun = !blank;
    if (blank) continue;
    const std::string_view next = std::string_view(text).substr(i + 1, 1);
    const bool escapes = quote == 0 || (quote == '"' && next.find_first_of("\"\\$`") == 0);
    if (letter == '\\' && escapes && !next.empty()) {
      words.back() += text[++i];
    } else if (letter == quote) {
      quote = 0;
    } else if (quote == 0 && (letter == '"' || letter == '\'')) {
      quote = letter;
    } else {
      words.back() += letter;
    }
  }
  if (quote == 0) return "";
  return text + " cannot be split into words: a quote " + quote + " is not closed";
}

Reader command(std::vector<std::string>& target) {
  return [&target](const std::string& text) {
    target.clear();
    const std::string wrong = split(text, target);
    return wrong.empty() && target.empty() ? "is empty: name the command, as in ssh" : wrong;
  };
}

std::string read_export(const std::string& text, std::vector<Export>& exports) {
  const std::size_t equals = text.find('=');
  Export& variable = exports.emplace_back(Export{text.substr(0, equals), std::nullopt});
  if (equals != std::string::npos) variable.value = text.substr(equals + 1);
  const std::string& name = variable.name;
  const auto is_letter = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  if (!name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
      std::ranges::all_of(name, is_letter)) {
    return "";
  }
  return text + " does not name a variable: write -x NAME or -x NAME=VALUE";
}

// Which ranks start, where, and by whom.
std::vector<Row> rows_of_ranks(Options& options) {
  return {
      {{"-np", "-n", "--np", "--num-proc"},
       "N",
       "how many ranks to start (default: one for each slot of the hosts, which of this host alone "
       "are its cores)",
       at_least(options.ranks, 1, "a number of ranks")},
      {{"-x"},
       "NAME[=VALUE]",
       "give every rank this variable; may be repeated",
       [&options](const std::string& text) { return read_export(text, options.exports); }},
      {{"-H", "--hosts"},
       "LIST",
       "hosts and their slots, as in a:2,b:2 (default: those that Slurm or PBS has allocated, or "
       "this one)",
       named(options.hosts, "name at least one host, as in localhost:2")},
      {{"--hostfile"},
       "FILE",
       "hosts and their slots, a line each, as in: a slots=2",
       named(options.hostfile, "name the file")},
      {{"--start"},
       "\"COMMAND\"",
       "what starts a program on another host, whose name takes the place of {host} or follows "
       "(default ssh -o BatchMode=yes -o ConnectTimeout=10)",
       command(options.start)},
      {{"--agent"},
       "PATH",
       "ronderun on the other hosts (default: where it is here)",
       reads(flags::text(options.agent))},
      {{"--wdir"},
       "DIR",
       "where the ranks work (default: where ronderun does)",
       reads(flags::text(options.folder))},
      {{"--bind-to"},
       "WHAT",
       "what part of a host each rank gets: none, core, numa, or auto (the default: numa where a "
       "host has several nodes of memory, else none)",
       binding(options.bind_to)},
      flag({"--mpi"}, "let Open MPI's mpirun start the ranks: for programs that use MPI themselves",
           options.mpi),
      {{"--mpi-args"},
       "\"ARGS\"",
       "with --mpi: further options for mpirun, as they are",
       [&options](const std::string& text) { return split(text, options.mpi_args); }},
      flag({"--accelerate-mpi"},
           "let Ronde do MPI_Allreduce, and small MPI_Bcast and MPI_Barrier, in a program of MPI",
           options.accelerate_mpi),
  };
}

// What becomes of their output, and of the job.
std::vector<Row> rows_of_job(Options& options) {
  return {
      flag({"--tag"}, "put the rank before each line that it prints, as in [1] ...", options.tag),
      {{"--output-dir"},
       "DIR",
       "append what rank N prints to DIR/rank.N.out and DIR/rank.N.err",
       named(options.output_dir, "name the folder")},
      {{"--stop-grace"},
       "SECONDS",
       "how long the ranks may take to end by themselves after SIGTERM (default 20)",
       seconds(options.stop_grace, 0, kLongestGrace, "seconds from 0 (no grace) to 86400")},
      {{"--restarts"},
       "N",
       "start a job that failed or was stopped again, up to N times (default 0); "
       "RONDE_RESTART_ATTEMPT tells the ranks how often that was, RONDE_RESTART_JOB of which job",
       at_least(options.restarts, 0, "a number of restarts")},
      {{"--restart-window"},
       "SECONDS",
       "after a start that ran so long, count restarts from 0 again (default 3600)",
       seconds(options.restart_window, 1, kLongestWindow, "seconds from 1 to 31536000")},
      flag({"--dry-run"}, "print what would start where, and stop", options.dry_run),
      flag({"--verbose"}, "print what starts where, and why", options.verbose),
      flag({"--check-build"}, "print what this build has, and stop", options.check_build),
      flag({"-v", "--version"}, "print the version and stop", options.version),
      flag({"-h", "--help"}, "print this text and stop", options.help),
  };
}

std::vector<Row> own_rows(Options& options) {
  std::vector<Row> rows = rows_of_ranks(options);
  for (Row& row : rows_of_job(options)) rows.push_back(std::move(row));
  return rows;
}

std::string option_of(std::string_view variable) {
  std::string option = "--";
  for (const char letter : variable.substr(std::string_view("RONDE_").size())) {
    option += letter == '_' ? '-' : static_cast<char>(std::tolower(letter));
  }
  return option;
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

std::vector<Row> setting_rows(Options& options) {
  std::vector<Row> rows;
  for (const base::Setting& setting : base::settings()) {
    if (setting.name == "RONDE_MPI") continue;  // --mpi is another word, and this one an old name
    rows.push_back(
        {{option_of(setting.name)},
         value_name(setting.kind()),
         std::string(setting.help) + " (" + base::valid_values(setting) + "; default " +
             (setting.default_value.empty() ? "empty" : std::string(setting.default_value)) + ")",
         [&options, name = std::string(setting.name)](const std::string& text) {
           options.exports.push_back({name, text});
           return std::string();
         }});
  }
  return rows;
}

std::vector<Row> all_rows(Options& options) {
  std::vector<Row> rows = own_rows(options);
  for (Row& row : setting_rows(options)) rows.push_back(std::move(row));
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

base::Result<Options> parse_options(std::span<const std::string> arguments, bool needs_program) {
  Options options;
  const std::vector<Row> rows = all_rows(options);
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
    std::string value = "on";
    if (row->value.empty()) {
      if (equals != std::string::npos) return bad(name + " takes no value: write " + name);
    } else if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (++i < arguments.size()) {
      value = arguments[i];
    } else {
      return bad(name + " needs a value: " + name + " " + row->value);
    }
    if (const std::string wrong = row->read(value); !wrong.empty()) return bad(name + " " + wrong);
  }
  options.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
  RONDE_RETURN_IF_ERROR(check_complete(options, needs_program));
  return options;
}

std::string help_text() {
  constexpr std::size_t kColumn = 34;
  Options options;
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

)" + lines(own_rows(options)) +
         "\nsettings of Ronde (each is also a variable, as RONDE_ALGORITHM is --algorithm):\n" +
         lines(setting_rows(options));
}

}  // namespace ronde::launcher
