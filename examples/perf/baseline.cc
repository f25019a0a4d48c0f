// SPDX-License-Identifier: Apache-2.0
// See baseline.h.
#include "examples/perf/baseline.h"

#include <algorithm>
#include <array>
#include <boost/property_tree/json_parser.hpp>
#include <boost/property_tree/ptree.hpp>
#include <cstdio>
#include <stdexcept>

namespace ronde::perf {

namespace {

namespace pt = boost::property_tree;

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

std::vector<Summary> read_summaries(std::istream& in, const std::string& name) {
  const std::string use = ": use a file that ronde-perf --json wrote";
  try {
    pt::ptree tree;
    pt::read_json(in, tree);
    if (tree.get<int>("schema") != 1) {
      throw std::runtime_error(name + " has another schema than 1" + use);
    }
    std::vector<Summary> summaries;
    for (const auto& [key, row] : tree.get_child("summary")) summaries.push_back(read_one(row));
    return summaries;
  } catch (const pt::ptree_error& error) {
    throw std::runtime_error(name + " cannot be read (" + error.what() + ")" + use);
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
