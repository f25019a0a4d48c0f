// SPDX-License-Identifier: Apache-2.0
// The results as JSON and CSV; --help explains the fields.
#include <array>
#include <cstdio>
#include <utility>

#include "examples/perf/report/report.h"

namespace ronde::perf {

namespace {

// Writes a number with enough digits to compare, and few enough to read.
std::string json_number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}
std::string json_number(std::uint64_t value) { return std::to_string(value); }
std::string json_number(const std::optional<double>& value) {
  return value ? json_number(*value) : "null";
}

// One object on one line: {"name": value, ...}; values come as JSON.
using Fields = std::vector<std::pair<const char*, std::string>>;

std::string object(const Fields& fields) {
  std::string text = "{";
  for (const auto& [name, value] : fields) {
    if (text.size() > 1) text += ", ";
    text += quoted(name) + ": " + value;
  }
  return text + "}";
}

Fields fields_of(const Key& key, std::uint64_t tensors, const std::string& contender) {
  return {{"operation", quoted(key.operation)},
          {"model", key.model.empty() ? "null" : quoted(key.model)},
          {"tensors", json_number(tensors)},
          {"bytes", json_number(key.bytes)},
          {"count", json_number(key.count)},
          {"dtype", quoted(key.dtype)},
          {"op", quoted(key.op)},
          {"root", std::to_string(key.root)},
          {"in_place", key.in_place ? "true" : "false"},
          {"contender", quoted(contender)}};
}

Fields fields_of(const Sample& sample) {
  Fields fields = fields_of(sample.key, sample.tensors, sample.contender);
  const Fields more{{"repetition", json_number(sample.repetition)},
                    {"iterations", json_number(sample.iterations)},
                    {"min_us", json_number(sample.min_us)},
                    {"p50_us", json_number(sample.p50_us)},
                    {"p99_us", json_number(sample.p99_us)},
                    {"mean_us", json_number(sample.mean_us)},
                    {"algbw", json_number(sample.algbw)},
                    {"busbw", json_number(sample.busbw)},
                    {"wrong", json_number(sample.wrong)},
                    {"c2c_before_ns", json_number(sample.c2c_before_ns)},
                    {"c2c_after_ns", json_number(sample.c2c_after_ns)}};
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

Fields fields_of(const Summary& summary) {
  Fields fields = fields_of(summary.key, summary.tensors, summary.contender);
  const Fields more{{"median_us", json_number(summary.median_us)},
                    {"min_us", json_number(summary.min_us)},
                    {"max_us", json_number(summary.max_us)},
                    {"mean_us", json_number(summary.mean_us)},
                    {"p99_us", json_number(summary.p99_us)},
                    {"algbw", json_number(summary.algbw)},
                    {"busbw", json_number(summary.busbw)},
                    {"wrong", json_number(summary.wrong)},
                    {"ratio_to_ronde", json_number(summary.ratio)},
                    {"ratio_min", json_number(summary.ratio_min)},
                    {"ratio_max", json_number(summary.ratio_max)},
                    {"c2c_min_ns", json_number(summary.c2c_min_ns)},
                    {"c2c_max_ns", json_number(summary.c2c_max_ns)}};
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

template <typename Row>
void write_array(std::ostream& out, const char* name, std::span<const Row> rows) {
  out << "  " << quoted(name) << ": [";
  const char* separator = "\n    ";
  for (const Row& row : rows) {
    out << separator << object(fields_of(row));
    separator = ",\n    ";
  }
  out << "\n  ]";
}

}  // namespace

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char each : text) {
    const auto code = static_cast<unsigned char>(each);
    if (each == '"' || each == '\\') {
      result += '\\';
      result += each;
    } else if (code < 0x20) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(code));
      result += escape.data();
    } else {
      result += each;
    }
  }
  return result + '"';
}

void write_json(std::ostream& out, const Options& options, const Machine& machine,
                std::span<const Sample> samples, std::span<const Summary> summaries) {
  std::string command = "[";
  for (const std::string& word : options.command) {
    if (command.size() > 1) command += ", ";
    command += quoted(word);
  }
  command += "]";
  out << "{\n  \"schema\": 1,\n  \"machine\": "
      << object({{"cpu", quoted(machine.cpu)},
                 {"cores", std::to_string(machine.cores)},
                 {"ranks", std::to_string(machine.ranks)},
                 {"hosts", std::to_string(machine.hosts)},
                 {"ronde", quoted(machine.ronde)},
                 {"mpi", machine.mpi.empty() ? "null" : quoted(machine.mpi)},
                 {"mpi_best", machine.mpi_best.empty() ? "null" : quoted(machine.mpi_best)},
                 {"algorithm", quoted(machine.algorithm)},
                 {"device", machine.device.empty() ? "null" : quoted(machine.device)},
                 {"date", quoted(machine.date)}})
      << ",\n  \"options\": "
      << object({{"command", command},
                 {"repetitions", json_number(options.repetitions)},
                 {"check", options.check ? "true" : "false"},
                 {"buffer", options.on_board ? "true" : "false"},
                 {"device", quoted(options.device)}})
      << ",\n";
  write_array(out, "samples", samples);
  out << ",\n";
  write_array(out, "summary", summaries);
  out << "\n}\n";
}

void write_csv(std::ostream& out, std::span<const Summary> summaries) {
  const auto write_line = [&out](const Fields& fields, bool names) {
    const char* separator = "";
    for (const auto& [name, value] : fields) {
      out << separator << (names ? name : value == "null" ? "" : value.c_str());
      separator = ",";
    }
    out << '\n';
  };
  write_line(fields_of(Summary{}), true);
  for (const Summary& each : summaries) write_line(fields_of(each), false);
}

}  // namespace ronde::perf
