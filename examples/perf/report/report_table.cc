// SPDX-License-Identifier: Apache-2.0
// The table: nccl-tests' columns, and percentiles and ratios beside them.
#include <algorithm>
#include <cstdio>
#include <limits>

#include "examples/perf/report/report.h"

namespace ronde::perf {

namespace {

template <typename... Values>
std::string print(const char* format, Values... values) {
  const int length = std::snprintf(nullptr, 0, format, values...);
  std::string text(static_cast<std::size_t>(length) + 1, '\0');
  std::snprintf(text.data(), text.size(), format, values...);
  text.pop_back();
  return text;
}

// Writes a time with its significant digits, in 8 characters at most.
std::string time_text(double us) {
  if (us < 100) return print("%.2f", us);
  return us < 10'000 ? print("%.1f", us) : print("%.0f", us);
}

std::string ratio_text(double ratio) { return print(ratio < 0.1 ? "%.4f" : "%.2f", ratio); }

constexpr const char* kHead = "    time      p50      p99   algbw   busbw  #wrong   ratio";
constexpr const char* kUnits = "    (us)     (us)     (us)  (GB/s)  (GB/s)         x ronde";

std::string half_row(const Summary* summary) {
  if (summary == nullptr) {
    return print("%8s %8s %8s %7s %7s %7s %7s ", "-", "-", "-", "-", "-", "-", "-");
  }
  return print("%8s %8s %8s %7.2f %7.2f %7llu %7s%s", time_text(summary->mean_us).c_str(),
               time_text(summary->median_us).c_str(), time_text(summary->p99_us).c_str(),
               summary->algbw, summary->busbw, static_cast<unsigned long long>(summary->wrong),
               ratio_text(summary->ratio).c_str(), unsteady(*summary) ? "~" : " ");
}

const Summary* find(std::span<const Summary> summaries, const std::string& contender,
                    bool in_place) {
  const auto found = std::find_if(summaries.begin(), summaries.end(), [&](const Summary& each) {
    return each.contender == contender && each.key.in_place == in_place;
  });
  return found == summaries.end() ? nullptr : &*found;
}

}  // namespace

std::string in_words(const Machine& machine) {
  std::string text = machine.cpu + ", " + std::to_string(machine.cores) +
                     (machine.cores == 1 ? " core" : " cores") + "; " +
                     std::to_string(machine.ranks) + (machine.ranks == 1 ? " rank" : " ranks") +
                     " on " + std::to_string(machine.hosts) +
                     (machine.hosts == 1 ? " host" : " hosts") + "; Ronde " + machine.ronde +
                     " (algorithm " + machine.algorithm + ")";
  if (!machine.device.empty()) text += "; tensors on " + machine.device;
  if (!machine.mpi.empty()) text += "; " + machine.mpi;
  return text + "; " + machine.date;
}

void write_table_head(std::ostream& out, const Options& options, const Machine& machine) {
  out << "# ronde-perf: " << in_words(machine)
      << "\n# time: of the slowest rank, from submit to the end of wait; mean, p50 and p99 over "
         "the "
         "iterations, medians over "
      << options.repetitions
      << " repetitions;\n#   algbw, busbw and ratio are of p50; ratio: of a contender's time to "
         "Ronde's, above 1 Ronde is faster (see --help)\n";
  if (options.operation == Operation::kModel) return;
  const auto line = [&](const std::string& left, const char* beside, const char* in) {
    out << "# " << left;
    if (options.out_of_place) out << print("  %-60s", beside);
    if (options.in_place) out << print("  %-60s", in);
    out << "\n";
  };
  const char* const format = "%14s %11s %11s %8s %5s %4s %-8s";
  out << "#\n";
  line(print(format, "", "", "", "", "", "", ""), "out of place", "in place");
  line(print(format, "operation", "size", "count", "type", "redop", "root", "by"), kHead, kHead);
  line(print(format, "", "(B)", "(elements)", "", "", "", ""), kUnits, kUnits);
}

void write_table_rows(std::ostream& out, const Options& options,
                      std::span<const Summary> summaries) {
  std::vector<std::string> contenders;
  for (const Summary& each : summaries) {
    if (std::find(contenders.begin(), contenders.end(), each.contender) == contenders.end()) {
      contenders.push_back(each.contender);
    }
  }
  for (const std::string& contender : contenders) {
    const Summary* const in = find(summaries, contender, true);
    const Summary* const beside = find(summaries, contender, false);
    const Key& key = in != nullptr ? in->key : beside->key;
    out << print("  %14s %11llu %11llu %8s %5s %4d %-8s", key.operation.c_str(),
                 static_cast<unsigned long long>(key.bytes),
                 static_cast<unsigned long long>(key.count), key.dtype.c_str(), key.op.c_str(),
                 key.root, contender.c_str());
    if (options.out_of_place) out << "  " << half_row(beside);
    if (options.in_place) out << "  " << half_row(in);
    out << "\n";
  }
  out << std::flush;
}

void write_model(std::ostream& out, std::span<const Summary> summaries) {
  if (summaries.empty()) return;
  const Summary& ronde = summaries.front();
  out << print("#\n# %s: %llu gradients, %llu elements of %s, %.1f MiB; %s, %s\n",
               ronde.key.model.c_str(), static_cast<unsigned long long>(ronde.tensors),
               static_cast<unsigned long long>(ronde.key.count), ronde.key.dtype.c_str(),
               static_cast<double>(ronde.key.bytes) / (1 << 20), ronde.key.op.c_str(),
               ronde.key.in_place ? "in place" : "out of place")
      << print("# %-28s %s\n", "", kHead) << print("# %-28s %s\n", "", kUnits);
  for (const Summary& each : summaries) {
    const bool list = each.contender == kRonde;
    const std::string what = each.contender + (list ? ", one by one" : ", flat");
    out << print("  %-28s %s\n", what.c_str(), half_row(&each).c_str());
    if (each.contender == "ronde-flat" && each.ratio > 0) {
      out << print("  %-28s %.3f (%.3f to %.3f over the repetitions)\n", "one by one / flat",
                   1 / each.ratio, 1 / each.ratio_max, 1 / each.ratio_min);
    }
  }
  out << std::flush;
}

void write_table_foot(std::ostream& out, std::span<const Summary> summaries) {
  double least = std::numeric_limits<double>::infinity();
  double most = 0;
  std::uint64_t wrong = 0;
  for (const Summary& each : summaries) {
    if (each.c2c_min_ns) least = std::min(least, *each.c2c_min_ns);
    if (each.c2c_max_ns) most = std::max(most, *each.c2c_max_ns);
    wrong += each.wrong;
  }
  out << "#\n# wrong elements: " << wrong << "\n";
  if (most > 0) {
    out << print("# core-to-core round trip: %.0f to %.0f ns", least, most)
        << (std::any_of(summaries.begin(), summaries.end(), unsteady)
                ? "; it changed by more than 1.5 times within the rows marked ~\n"
                : "\n");
  }
  out << std::flush;
}

}  // namespace ronde::perf
