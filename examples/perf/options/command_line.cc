// SPDX-License-Identifier: Apache-2.0
// The table of flags, which of them go together, and the text of --help.
#include "examples/perf/options/command_line.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/flags/parse.h"
#include "examples/perf/options/models.h"

namespace ronde::perf {

namespace {

using base::flags::FlagTable;
using base::flags::FlagValue;
using base::flags::number_reader;
using base::flags::one_of;
using base::flags::real;
using base::flags::text;
using base::flags::whole;

constexpr std::size_t kLargest = std::size_t{1} << 40U;

// A whole number with an optional K, M or G.
FlagValue bytes(std::size_t& target, std::string normally) {
  const auto read = [&target](const std::string& given) {
    constexpr std::string_view kUnits = "KkMmGg";
    const std::size_t unit = given.empty() ? kUnits.npos : kUnits.find(given.back());
    const bool none = unit == kUnits.npos;
    const std::size_t shift = none ? 0 : (unit / 2 + 1) * 10;
    const auto number = number_reader<std::size_t>(
        target, [shift](std::size_t value) { return value <= kLargest >> shift; });
    if (!number(given.substr(0, given.size() - (none ? 0 : 1)))) return false;
    target <<= shift;
    return true;
  };
  return {std::move(normally), read,
          "a whole number of bytes up to 1024G, with K, M or G (powers of 1,024)"};
}

// One row of a table, or all of them.
template <typename Row>
FlagValue rows_named(std::vector<const Row*>& target, const std::vector<Row>& rows,
                     std::string normally) {
  FlagValue value{.text = std::move(normally), .read = {}, .valid = "one of: all"};
  for (const Row& row : rows) value.valid.append(" ").append(row.name);
  value.read = [&target, &rows](const std::string& given) {
    target.clear();
    for (const Row& row : rows) {
      bool named = given == "all" || given == row.name;
      if constexpr (requires { row.alias; }) named = named || given == row.alias;
      if (named) target.push_back(&row);
    }
    return !target.empty();
  };
  return value;
}

FlagValue operation_of(Operation& target) {
  const auto read = [&target](const std::string& given) {
    const std::optional<Operation> operation = operation_named(given);
    if (operation) target = *operation;
    return operation.has_value();
  };
  return {"allreduce", read, "one of: " + operation_names()};
}

FlagValue model_of(std::string& target) {
  FlagValue value = text(target);
  value.valid = "one of: " + model_names();
  value.read = [&target](const std::string& given) {
    target = given;
    return given.empty() || model_exists(given);
  };
  return value;
}

FlagValue places(Options& options) {
  const auto read = [&options](const std::string& given) {
    options.in_place = given != "out";
    options.out_of_place = given != "in";
    return given == "in" || given == "out" || given == "both";
  };
  return {"both", read, "in, out or both"};
}

FlagValue contenders(std::vector<std::string>& target) {
  const auto read = [&target](const std::string& given) {
    static const std::array<std::string, 5> kKnown{"mpi", "mpi-best", "memcpy", "floor", "line"};
    target.clear();
    std::istringstream stream(given);
    for (std::string each; std::getline(stream, each, ',');) {
      if (std::ranges::find(kKnown, each) == kKnown.end()) return false;
      if (std::ranges::find(target, each) == target.end()) target.push_back(each);
    }
    return true;
  };
  return {"", read, "mpi, mpi-best, memcpy, floor and line, with commas between them"};
}

void add_what(FlagTable& table, Options& options) {
  table.add({
      {"minbytes", bytes(options.least_bytes, "8"), "smallest size; K, M and G are powers of 1,024",
       'b'},
      {"maxbytes", bytes(options.most_bytes, "64M"),
       "largest size; measured even where no step meets it", 'e'},
      {"stepfactor", whole(options.step_factor, 1, 1 << 20),
       "each size is this many times the one before", 'f'},
      {"stepbytes", bytes(options.step_bytes, "0"),
       "if not 0, each size is this many bytes larger than the one before", 'i'},
      {"iters", whole(options.iterations, 0, 10'000'000),
       "timed iterations of a sample; 0: by size, 1,000 up to 64K, 200 up to 1M, 20 up to 256M, "
       "then 5",
       'n'},
      {"warmup_iters", whole(options.warm_up, -1, 10'000'000),
       "untimed iterations before them; -1: by size, 5 up to 1M, 2 up to 256M, then 1", 'w'},
      {"datatype", rows_named(options.dtypes, all_dtypes(), "float"),
       "int8 uint8 int16 uint16 int32 uint32 int64 uint64 half bfloat16 float double bool, or all",
       'd'},
      {"op", rows_named(options.ops, all_ops(), "sum"),
       "sum prod min max avg band bor bxor, or all", 'o'},
      {"root", whole(options.root, 0, 1'000'000), "root of a broadcast", 'r'},
      {"check", whole(options.check, 0, 1), "1: verify every result; 0: do not", 'c'},
      {"operation", operation_of(options.operation), operation_names()},
      {"model", model_of(options.model),
       "instead of sizes, the gradients of resnet50, resnet101, vgg16, bert-base, bert-large or "
       "gpt2 in backward order: one submit per tensor, and as one flat tensor"},
      {"device", one_of(options.device, {"cpu", "cuda"}),
       "where the tensors are: cpu, or cuda (a GPU for each rank in turns; times are then of its "
       "stream)"},
      {"place", places(options), "in (the result replaces the input), out, or both"},
      {"buffer", whole(options.on_board, 0, 1),
       "1: all tensors lie in a ronde::Buffer, in which an allreduce moves no bytes; 0: plain"},
      {"prepared", whole(options.prepared, 0, 1),
       "1: operations are prepared, and run again and again; 0: called by name"},
  });
}

void add_how(FlagTable& table, Options& options) {
  table.add({
      {"against", contenders(options.against),
       "measure these in the same run too: mpi (as it comes), mpi-best (OpenMPI's segmented ring, "
       "256 KiB), memcpy (every rank copies as much memory), floor (bare flags in shared memory, "
       "f32 sums of up to 64 KiB), line (TCP alone carries what every host must send and receive)"},
      {"repetitions", whole(options.repetitions, 1, 1'000),
       "samples of each contender, in turns; ratios are medians over them"},
      {"json", text(options.json), "write everything to this file (- is standard output)"},
      {"csv", text(options.csv), "write the summary to this file (- is standard output)"},
      {"svg", text(options.svg),
       "draw latency, bandwidth and ratio over the sizes into this file (in place, if that is "
       "measured); with --model, bars of the contenders"},
      {"baseline", text(options.baseline),
       "an earlier --json file, of as many ranks and at least 5 repetitions: exit with 3 when a "
       "ratio to a contender has become worse than the noise of both"},
      {"tolerance", real(options.tolerance, 0.0, 10.0, "a number from 0 to 10"),
       "what counts as noise at least, as a share of the ratio"},
      {"timeout", real(options.timeout_seconds, 1.0, 86'400.0, "seconds from 1 to 86400"),
       "seconds after which a sample is given up"},
      {"corrupt", whole(options.corrupt, 0, 1),
       "1: spoil one element of every result before it is checked, to see the check work"},
  });
}

void check_sizes(const FlagTable& table, const Options& options) {
  const std::string& most = table.text_of("maxbytes");
  if (options.least_bytes > options.most_bytes) {
    throw UsageError("--minbytes " + table.text_of("minbytes") + " is above --maxbytes " + most +
                     ": swap them");
  }
  if (options.most_bytes == 0) {
    throw UsageError("--maxbytes " + most + " leaves nothing to measure: use 1 or more");
  }
  if (sizes_of(options).size() > kMostSizes) {
    throw UsageError("--stepbytes " + table.text_of("stepbytes") + " makes more than " +
                     std::to_string(kMostSizes) + " sizes: use larger steps");
  }
}

void check_choices(const FlagTable& table, Options& options) {
  if (!options.model.empty()) options.operation = Operation::kModel;
  const ronde_operation& row = row_of(options.operation);
  if (row.input == RONDE_NOTHING) options.dtypes.resize(1);
  if (row.reduces == 0 || options.dtypes.size() != 1 || options.ops.size() != 1 ||
      valid(*options.dtypes[0], *options.ops[0])) {
    return;
  }
  throw UsageError(
      "--op " + table.text_of("op") + " is not defined for --datatype " +
      table.text_of("datatype") +
      ": bool has no sum, prod and avg, integers of 8 and 16 bits have no avg, floating types have "
      "no band, bor and bxor");
}

FlagTable table_of(Options& options) {
  FlagTable table("ronde-perf",
                  "Measures the collectives of Ronde, and those of others in the same run.");
  add_what(table, options);
  add_how(table, options);
  return table;
}

// A line for each flag. Not Boost's "-b [ --minbytes ] VALUE (=8)", which no tool takes for
// options.
std::string flag_line(std::string line, const std::string& help) {
  constexpr std::size_t kColumn = 29;
  constexpr std::size_t kWidth = 100;
  std::string lines;
  line.resize(kColumn, ' ');
  std::istringstream words(help);
  for (std::string word; words >> word;) {
    if (line.size() + word.size() >= kWidth) {
      lines += line + "\n";
      line.assign(kColumn, ' ');
    }
    line += (line.size() > kColumn ? " " : "") + word;
  }
  return lines + line + "\n";
}

std::string flag_lines(const FlagTable& table) {
  std::string lines;
  for (const auto& [name, value, help, letter, given] : table.flags()) {
    const std::string begin = letter == 0 ? "  " : std::string("  -") + letter + ", ";
    lines += flag_line(begin + "--" + name + " VALUE",
                       help + (value.text.empty() ? "" : " (default " + value.text + ")"));
  }
  return lines + flag_line("  --version", "print the version and stop") +
         flag_line("  -h, --help", "print this text and stop");
}

void check_files(const Options& options) {
  if (options.json == "-" && options.csv == "-") {
    throw UsageError("--json - and --csv - cannot share standard output: name a file for one");
  }
  if (options.svg == "-") throw UsageError("--svg - is not valid: use the name of a file");
  std::vector<std::pair<std::string, std::filesystem::path>> files;
  for (const auto& [flag, name] : {std::pair<std::string, std::string>{"--json", options.json},
                                   {"--csv", options.csv},
                                   {"--svg", options.svg}}) {
    if (name.empty()) continue;
    const std::filesystem::path place = std::filesystem::absolute(name).lexically_normal();
    for (const auto& [other, taken] : files) {
      if (taken == place) {
        throw UsageError(other + " and " + flag + " both write " + name +
                         ": give each a file of its own");
      }
    }
    files.emplace_back(flag, place);
  }
}

// Refuses what works on host memory alone.
void check_device(const Options& options) {
  if (options.device == "cpu") return;
  for (const std::string& each : options.against) {
    if (each == "memcpy") continue;
    throw UsageError("--against " + each + " works in host memory: with --device " +
                     options.device + " use memcpy, or leave it out");
  }
  if (options.prepared) {
    throw UsageError("--prepared 1 is for host memory: leave it out with --device " +
                     options.device);
  }
  if (options.on_board) {
    throw UsageError("--buffer 1 is host memory: leave it out with --device " + options.device);
  }
  if (row_of(options.operation).reduces != 0 && options.dtypes.size() == 1 &&
      options.ops.size() == 1 && !valid_on_gpu(*options.dtypes[0], *options.ops[0])) {
    throw UsageError("--op " + std::string(options.ops[0]->name) + " of --datatype " +
                     std::string(options.dtypes[0]->name) +
                     " cannot be done on a GPU: use sum, prod, min, max or avg, and neither bool "
                     "nor integers of 16 bits");
  }
}

// Throws UsageError for a value that is wrong only because of another flag.
void check_together(const Options& options) {
  check_files(options);
  check_device(options);
  const ronde_operation& row = row_of(options.operation);
  if (!options.svg.empty() && row.input == RONDE_NOTHING) {
    throw UsageError("--svg draws sizes or models: leave it out with --operation barrier");
  }
  if (!options.svg.empty() &&
      (options.dtypes.size() > 1 || (row.reduces != 0 && options.ops.size() > 1))) {
    throw UsageError("--svg draws one --datatype and one --op: name one of each");
  }
  if (row.output == RONDE_BLOCKS && !options.out_of_place) {
    throw UsageError("--place in is not valid with --operation " +
                     std::string(name_of(options.operation)) +
                     ", whose result has memory of its own: use --place out");
  }
  if (options.baseline.empty()) return;
  if (options.against.empty() && options.model.empty()) {
    throw UsageError("--baseline compares ratios: add --against mpi,mpi-best,memcpy or --model");
  }
  if (options.repetitions < kBaselineRepetitions) {
    throw UsageError("--repetitions " + std::to_string(options.repetitions) +
                     " is too few for --baseline, which has to know the noise: use " +
                     std::to_string(kBaselineRepetitions) + " or more");
  }
}

}  // namespace

Options parse_options(int argc, const char* const* argv) {
  Options options;
  FlagTable table = table_of(options);
  table.check([&] { check_sizes(table, options); });
  table.check([&] { check_choices(table, options); });
  table.check([&] { check_together(options); });
  const auto asked = base::flags::parse(table, argc, argv);
  options.help = asked == base::flags::Asked::kHelp;
  options.version = asked == base::flags::Asked::kVersion;
  options.command.assign(argv, argv + argc);
  return options;
}

std::string help_text() {
  Options options;
  const FlagTable table = table_of(options);
  return table.summary() +
         "\n\nUsage: ronde-perf [flags], or mpirun -np N ronde-perf [flags]\n\n"
         "Flags:\n" +
         flag_lines(table) + R"(
Time of an iteration: that of the slowest rank, from its own call to its own return (Ronde: from
submit to the end of wait; with --device cuda, by events of the stream: from the submit to where the
stream goes on, and memcpy is a copy from device to device). Before each iteration every rank
rewrites its buffers, then all leave a starting line together; afterwards every element of the
result is compared. None of that is timed.

  time       mean over the iterations
  p50, p99   percentiles over the iterations
  algbw      size / p50 (this and busbw are nccl-tests' definitions)
  busbw      algbw times 2(n-1)/n for allreduce, (n-1)/n for allgather, reduce_scatter and
             all_to_all, 1 otherwise
  #wrong     elements that are not exactly what they should be, on all ranks, in all iterations
  ratio      p50 of this contender / p50 of Ronde, each pair taken from one repetition; above 1
             Ronde is faster

The core-to-core round trip (two threads of rank 0 bouncing a cache line) is taken before and after
each sample; a row marked ~ has samples between which it changed by more than 1.5 times.

--baseline: a ratio is worse when even the best repetition of now is below the worst of then, and the
median has fallen by more than --tolerance.

--json: {"schema": 1, "machine": {...}, "options": {...}, "samples": [...], "summary": [...]}. A sample
is one repetition of one contender: operation, model, tensors, bytes, count, dtype, op, in_place,
contender, repetition, iterations, min_us, p50_us, p99_us, mean_us, algbw, busbw, wrong,
c2c_before_ns, c2c_after_ns. A summary has the medians over the repetitions: median_us (of p50_us),
its range min_us and max_us, mean_us, p99_us, algbw, busbw, wrong, ratio_to_ronde, ratio_min,
ratio_max. With --model the contender ronde submits one by one, and ronde-flat, mpi, mpi-best and
memcpy work on one flat tensor.

Exit code: 0; 1 a wrong result or a failure; 2 a bad flag; 3 worse than --baseline.
)";
}

}  // namespace ronde::perf
