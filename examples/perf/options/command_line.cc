// SPDX-License-Identifier: Apache-2.0
// The table of flags, their parser, and the text of --help.
#include "examples/perf/options/command_line.h"

#include <algorithm>
#include <array>
#include <boost/program_options.hpp>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <system_error>

#include "examples/perf/options/flag_rules.h"
#include "examples/perf/options/models.h"

namespace ronde::perf {

namespace po = boost::program_options;

namespace {

constexpr std::size_t kLargest = std::size_t{1} << 40U;

struct Flag {
  const char* names;  // "minbytes,b", as Boost wants them
  const char* default_value;
  const char* help;  // nullptr: the names of the operations
};

constexpr std::array<Flag, 26> kFlags{{
    {"minbytes,b", "8", "smallest size; K, M and G are powers of 1,024"},
    {"maxbytes,e", "64M", "largest size; measured even where no step meets it"},
    {"stepfactor,f", "4", "each size is this many times the one before"},
    {"stepbytes,i", "0", "if not 0, each size is this many bytes larger than the one before"},
    {"iters,n", "0",
     "timed iterations of a sample; 0: by size, 1,000 up to 64K, 200 up to 1M, 20 up "
     "to 256M, then 5"},
    {"warmup_iters,w", "-1",
     "untimed iterations before them; -1: by size, 5 up to 1M, 2 up to 256M, then 1"},
    {"datatype,d", "float",
     "int8 uint8 int16 uint16 int32 uint32 int64 uint64 half bfloat16 float "
     "double bool, or all"},
    {"op,o", "sum", "sum prod min max avg band bor bxor, or all"},
    {"root,r", "0", "root of a broadcast"},
    {"check,c", "1", "1: verify every result; 0: do not"},
    {"operation", "allreduce", nullptr},
    {"model", "",
     "instead of sizes, the gradients of resnet50, resnet101, vgg16, bert-base, "
     "bert-large or gpt2 in backward order: one submit per tensor, and as one flat "
     "tensor"},
    {"device", "cpu",
     "where the tensors are: cpu, or cuda (a GPU for each rank in turns; times are then of its "
     "stream)"},
    {"place", "both", "in (the result replaces the input), out, or both"},
    {"buffer", "0",
     "1: all tensors lie in a ronde::Buffer, in which an allreduce moves no bytes; 0: "
     "plain"},
    {"against", "",
     "measure these in the same run too: mpi (as it comes), mpi-best (OpenMPI's "
     "segmented ring, 256 KiB), memcpy (every rank copies as much memory), line (TCP alone carries "
     "what every host must send and receive)"},
    {"repetitions", "5", "samples of each contender, in turns; ratios are medians over them"},
    {"json", "", "write everything to this file (- is standard output)"},
    {"csv", "", "write the summary to this file (- is standard output)"},
    {"svg", "",
     "draw latency, bandwidth and ratio over the sizes into this file (in place, if that is "
     "measured); with --model, bars of the contenders"},
    {"baseline", "",
     "an earlier --json file, of as many ranks and at least 5 repetitions: exit with 3 when a "
     "ratio "
     "to a contender has become worse than the noise of both"},
    {"tolerance", "0.1", "what counts as noise at least, as a share of the ratio"},
    {"timeout", "300", "seconds after which a sample is given up"},
    {"corrupt", "0",
     "1: spoil one element of every result before it is checked, to see the check work"},
    {"version", nullptr, "print the version and stop"},
    {"help,h", nullptr, "print this text and stop"},
}};

std::string long_name(const Flag& flag) {
  const std::string names = flag.names;
  return names.substr(0, names.find(','));
}

template <typename Number>
bool parse_number(const std::string& text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

std::string shown(const std::string& value) { return value.empty() ? "\"\"" : value; }

[[noreturn]] void reject(const std::string& flag, const std::string& value,
                         const std::string& use) {
  throw UsageError("--" + flag + " " + shown(value) + " is not valid: use " + use);
}

po::options_description description() {
  po::options_description all("Flags");
  for (const Flag& flag : kFlags) {
    if (flag.default_value == nullptr) {
      all.add_options()(flag.names, "");
    } else {
      all.add_options()(flag.names, po::value<std::string>()->default_value(flag.default_value),
                        "");
    }
  }
  return all;
}

// A line for each flag. Not Boost's "-b [ --minbytes ] VALUE (=8)", which no tool takes for
// options.
std::string flag_lines() {
  constexpr std::size_t kColumn = 29;
  constexpr std::size_t kWidth = 100;
  std::string text;
  for (const Flag& flag : kFlags) {
    const std::string name = long_name(flag);
    const std::string letter(std::string_view(flag.names).substr(name.size()));
    std::string line = "  " + (letter.empty() ? "" : "-" + letter.substr(1) + ", ") + "--" + name;
    if (flag.default_value != nullptr) line += " VALUE";
    line.resize(kColumn, ' ');
    std::string help = flag.help == nullptr ? operation_names() : flag.help;
    const std::string value = flag.default_value == nullptr ? "" : flag.default_value;
    if (!value.empty()) help += " (default " + value + ")";
    std::istringstream words(help);
    for (std::string word; words >> word;) {
      if (line.size() + word.size() >= kWidth) {
        text += line + "\n";
        line.assign(kColumn, ' ');
      }
      line += (line.size() > kColumn ? " " : "") + word;
    }
    text += line + "\n";
  }
  return text;
}

using Values = std::map<std::string, std::string>;

Values read(int argc, const char* const* argv, Options& options) {
  // Only whole names are allowed: an abbreviation would change its meaning when a flag is added.
  constexpr int kStyle =
      po::command_line_style::allow_long | po::command_line_style::long_allow_adjacent |
      po::command_line_style::long_allow_next | po::command_line_style::allow_short |
      po::command_line_style::allow_dash_for_short | po::command_line_style::short_allow_next |
      po::command_line_style::short_allow_adjacent;
  Values values;
  try {
    po::variables_map map;
    const po::options_description all = description();
    po::store(po::command_line_parser(argc, argv)
                  .options(all)
                  .positional(po::positional_options_description())
                  .style(kStyle)
                  .run(),
              map);
    options.help = map.count("help") != 0;
    options.version = map.count("version") != 0;
    for (const Flag& flag : kFlags) {
      if (flag.default_value == nullptr) continue;
      values[long_name(flag)] = map[long_name(flag)].as<std::string>();
    }
  } catch (const po::too_many_positional_options_error&) {
    throw UsageError(
        "every argument must be a flag that begins with - or --: see ronde-perf --help");
  } catch (const po::error& error) {
    throw UsageError(std::string(error.what()) + ": see ronde-perf --help");
  }
  return values;
}

std::int64_t whole(const Values& values, const std::string& flag, std::int64_t least,
                   std::int64_t most) {
  std::int64_t number = 0;
  const std::string& text = values.at(flag);
  if (!parse_number(text, number) || number < least || number > most) {
    reject(flag, text,
           "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return number;
}

double real(const Values& values, const std::string& flag, double least, double most,
            const std::string& use) {
  double number = 0.0;
  const std::string& text = values.at(flag);
  if (!parse_number(text, number) || !(number >= least && number <= most)) reject(flag, text, use);
  return number;
}

std::vector<const DType*> dtypes_of(const std::string& text) {
  std::vector<const DType*> result;
  std::string names = "one of: all";
  for (const DType& each : all_dtypes()) {
    names += ' ';
    names += each.name;
    if (text == "all" || text == each.name || text == each.alias) result.push_back(&each);
  }
  if (result.empty()) reject("datatype", text, names);
  return result;
}

std::vector<const Op*> ops_of(const std::string& text) {
  std::vector<const Op*> result;
  std::string names = "one of: all";
  for (const Op& each : all_ops()) {
    names += ' ';
    names += each.name;
    if (text == "all" || text == each.name) result.push_back(&each);
  }
  if (result.empty()) reject("op", text, names);
  return result;
}

std::vector<std::string> against_of(const std::string& text) {
  static const std::array<std::string, 4> kKnown{"mpi", "mpi-best", "memcpy", "line"};
  std::vector<std::string> result;
  std::istringstream stream(text);
  for (std::string each; std::getline(stream, each, ',');) {
    if (std::find(kKnown.begin(), kKnown.end(), each) == kKnown.end()) {
      reject("against", text, "mpi, mpi-best, memcpy and line, with commas between them");
    }
    if (std::find(result.begin(), result.end(), each) == result.end()) result.push_back(each);
  }
  return result;
}

void read_sizes(const Values& values, Options& options) {
  options.least_bytes = parse_bytes("minbytes", values.at("minbytes"));
  options.most_bytes = parse_bytes("maxbytes", values.at("maxbytes"));
  options.step_factor = static_cast<std::size_t>(whole(values, "stepfactor", 1, 1 << 20));
  options.step_bytes = parse_bytes("stepbytes", values.at("stepbytes"));
  if (options.least_bytes > options.most_bytes) {
    throw UsageError("--minbytes " + values.at("minbytes") + " is above --maxbytes " +
                     values.at("maxbytes") + ": swap them");
  }
  if (options.most_bytes == 0) {
    throw UsageError("--maxbytes " + values.at("maxbytes") +
                     " leaves nothing to measure: use 1 or more");
  }
  if (sizes_of(options).size() > kMostSizes) {
    throw UsageError("--stepbytes " + values.at("stepbytes") + " makes more than " +
                     std::to_string(kMostSizes) + " sizes: use larger steps");
  }
}

void read_choices(const Values& values, Options& options) {
  const std::optional<Operation> operation = operation_named(values.at("operation"));
  if (!operation) reject("operation", values.at("operation"), "one of: " + operation_names());
  options.operation = *operation;
  options.model = values.at("model");
  if (!options.model.empty()) {
    if (!model_exists(options.model)) {
      reject("model", options.model, "one of: " + model_names());
    }
    options.operation = Operation::kModel;
  }
  options.dtypes = dtypes_of(values.at("datatype"));
  options.ops = ops_of(values.at("op"));
  const ronde_operation& row = row_of(options.operation);
  if (row.input == RONDE_NOTHING) options.dtypes.resize(1);
  if (row.reduces != 0 && options.dtypes.size() == 1 && options.ops.size() == 1 &&
      !valid(*options.dtypes[0], *options.ops[0])) {
    throw UsageError(
        "--op " + values.at("op") + " is not defined for --datatype " + values.at("datatype") +
        ": bool has no sum, prod and avg, integers of 8 and 16 bits have no avg, floating types "
        "have no band, bor and bxor");
  }
  const std::string& place = values.at("place");
  if (place != "in" && place != "out" && place != "both") reject("place", place, "in, out or both");
  options.in_place = place != "out";
  options.out_of_place = place != "in";
  options.against = against_of(values.at("against"));
  options.device = values.at("device");
  if (options.device != "cpu" && options.device != "cuda") {
    reject("device", options.device, "one of: cpu cuda");
  }
}

}  // namespace

std::size_t parse_bytes(const std::string& flag, const std::string& text) {
  const char* const use = "a whole number of bytes up to 1024G, with K, M or G (powers of 1,024)";
  std::string digits = text;
  unsigned shift = 0;
  if (!digits.empty()) {
    const char unit = digits.back();
    if (unit == 'K' || unit == 'k') shift = 10;
    if (unit == 'M' || unit == 'm') shift = 20;
    if (unit == 'G' || unit == 'g') shift = 30;
    if (shift != 0) digits.pop_back();
  }
  std::uint64_t number = 0;
  if (!parse_number(digits, number) || number > (kLargest >> shift)) reject(flag, text, use);
  return static_cast<std::size_t>(number << shift);
}

Options parse_options(int argc, const char* const* argv) {
  Options options;
  const Values values = read(argc, argv, options);
  options.command.assign(argv, argv + argc);
  if (options.help || options.version) return options;
  read_sizes(values, options);
  read_choices(values, options);
  options.iterations = static_cast<std::uint64_t>(whole(values, "iters", 0, 10'000'000));
  options.warm_up = whole(values, "warmup_iters", -1, 10'000'000);
  options.root = static_cast<int>(whole(values, "root", 0, 1'000'000));
  options.check = whole(values, "check", 0, 1) == 1;
  options.repetitions = static_cast<std::uint64_t>(whole(values, "repetitions", 1, 1'000));
  options.corrupt = whole(values, "corrupt", 0, 1) == 1;
  options.on_board = whole(values, "buffer", 0, 1) == 1;
  options.tolerance = real(values, "tolerance", 0.0, 10.0, "a number from 0 to 10");
  options.timeout_seconds = real(values, "timeout", 1.0, 86'400.0, "seconds from 1 to 86400");
  options.json = values.at("json");
  options.csv = values.at("csv");
  options.svg = values.at("svg");
  options.baseline = values.at("baseline");
  check_together(options);
  return options;
}

std::string help_text() {
  return "Measures the collectives of Ronde, and those of others in the same run.\n\n"
         "Usage: ronde-perf [flags], or mpirun -np N ronde-perf [flags]\n\n"
         "Flags:\n" +
         flag_lines() + R"(
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
