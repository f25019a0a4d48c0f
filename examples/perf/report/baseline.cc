// SPDX-License-Identifier: Apache-2.0
// How a file of --json is read, which runs may be compared, and the text of a ratio that fell.
#include "examples/perf/report/baseline.h"

#include <algorithm>
#include <array>
#include <boost/property_tree/json_parser.hpp>
#include <boost/property_tree/ptree.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace ronde::perf {

namespace {

namespace pt = boost::property_tree;

// The places of the conditions in a file of --json.
constexpr std::array<std::pair<const char*, const char*>, 7> kConditions{{{"machine", "ranks"},
                                                                          {"machine", "hosts"},
                                                                          {"machine", "cores"},
                                                                          {"machine", "algorithm"},
                                                                          {"options", "buffer"},
                                                                          {"options", "check"},
                                                                          {"options", "device"}}};

Summary read_one(const pt::ptree& row) {
  Summary summary;
  summary.key.operation = row.get<std::string>("operation");
  const auto model = row.get<std::string>("model");
  summary.key.model = model == "null" ? "" : model;
  summary.key.bytes = row.get<std::uint64_t>("bytes");
  summary.key.count = row.get<std::uint64_t>("count");
  summary.key.dtype = row.get<std::string>("dtype");
  summary.key.op = row.get<std::string>("op");
  summary.key.root = row.get<int>("root");
  summary.key.in_place = row.get<bool>("in_place");
  summary.contender = row.get<std::string>("contender");
  summary.ratio = row.get<double>("ratio_to_ronde");
  summary.ratio_min = row.get<double>("ratio_min");
  summary.ratio_max = row.get<double>("ratio_max");
  return summary;
}

std::string describe(const Summary& before, const Summary& now) {
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(),
                "%s%s%s of %llu bytes, %s %s, %s: %s / ronde was %.2f (%.2f to %.2f), is %.2f "
                "(%.2f to %.2f)",
                now.key.operation.c_str(), now.key.model.empty() ? "" : " ", now.key.model.c_str(),
                static_cast<unsigned long long>(now.key.bytes), now.key.dtype.c_str(),
                now.key.op.c_str(), now.key.in_place ? "in place" : "out of place",
                now.contender.c_str(), before.ratio, before.ratio_min, before.ratio_max, now.ratio,
                now.ratio_min, now.ratio_max);
  return text.data();
}

}  // namespace

Conditions conditions_of(const Options& options, const Machine& machine) {
  return {{"ranks", std::to_string(machine.ranks)},
          {"hosts", std::to_string(machine.hosts)},
          {"cores", std::to_string(machine.cores)},
          {"algorithm", machine.algorithm},
          {"buffer", options.on_board ? "true" : "false"},
          {"check", options.check ? "true" : "false"},
          {"device", options.device}};
}

Baseline read_baseline(std::istream& in, const std::string& name) {
  const std::string use = ": use a file that ronde-perf --json wrote";
  try {
    pt::ptree tree;
    pt::read_json(in, tree);
    if (tree.get<int>("schema") != 1) throw UsageError(name + " has another schema than 1" + use);
    Baseline baseline;
    for (const auto& [part, field] : kConditions) {
      baseline.conditions.emplace_back(
          // Older files name no device.
          field, tree.get<std::string>(std::string(part) + "." + field,
                                       std::string(field) == "device" ? "cpu" : "unknown"));
    }
    baseline.repetitions = tree.get<std::uint64_t>("options.repetitions");
    for (const auto& [key, row] : tree.get_child("summary")) {
      baseline.summaries.push_back(read_one(row));
    }
    return baseline;
  } catch (const pt::json_parser_error& error) {
    throw UsageError(name + " cannot be read: it is no JSON (line " + std::to_string(error.line()) +
                     ": " + error.message() + ")" + use);
  } catch (const pt::ptree_error& error) {
    throw UsageError(name + " cannot be read (" + error.what() + ")" + use);
  }
}

Baseline read_baseline(const std::string& name) {
  std::error_code ignored;
  std::ifstream in(name);
  if (!in || std::filesystem::is_directory(name, ignored)) {
    throw UsageError(name +
                     " cannot be read: use a file that is there and that ronde-perf --json "
                     "wrote");
  }
  return read_baseline(in, name);
}

void require_alike(const Baseline& before, const Conditions& now, const std::string& name) {
  for (const auto& [key, value] : now) {
    std::string then = "unknown";
    for (const auto& [old_key, old_value] : before.conditions) {
      if (old_key == key) then = old_value;
    }
    if (then == value) continue;
    throw UsageError("--baseline " + name + " was taken with " + key + "=" + then +
                     ", this run has " + key + "=" + value + ": compare like with like");
  }
  if (before.repetitions < kBaselineRepetitions) {
    throw UsageError("--baseline " + name + " has " + std::to_string(before.repetitions) +
                     " repetitions, too few to know its noise: take it again with --repetitions " +
                     std::to_string(kBaselineRepetitions) + " or more");
  }
}

Comparison compare(std::span<const Summary> before, std::span<const Summary> now,
                   double tolerance) {
  Comparison result;
  for (const Summary& each : now) {
    if (each.contender == kRonde) continue;
    const auto old = std::find_if(before.begin(), before.end(), [&each](const Summary& other) {
      return other.contender == each.contender && other.key == each.key;
    });
    if (old == before.end()) continue;
    ++result.compared;
    if (each.ratio_max < old->ratio_min && each.ratio < (1.0 - tolerance) * old->ratio) {
      result.worse.push_back(describe(*old, each));
    }
  }
  return result;
}

}  // namespace ronde::perf
