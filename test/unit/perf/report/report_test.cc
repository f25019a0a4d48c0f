// SPDX-License-Identifier: Apache-2.0
// What --json writes is what --baseline reads; when a ratio counts as worse; the picture.
#include "examples/perf/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "examples/perf/report/baseline.h"
#include "examples/perf/report/plot.h"

namespace ronde::perf {
namespace {

using testing::HasSubstr;
using testing::Not;

Sample sample_of(const std::string& contender, std::uint64_t repetition, double us,
                 std::uint64_t bytes = 1024) {
  Sample sample;
  sample.key = {"allreduce", "", bytes, bytes / 4, "float", "sum", -1, true};
  sample.contender = contender;
  sample.repetition = repetition;
  sample.c2c_before_ns = 60;
  add_times(sample, {us}, 1.0);
  return sample;
}

// Ronde takes 10 us, mpi as long as said in each repetition.
std::vector<Sample> samples_of(const std::vector<double>& mpi) {
  std::vector<Sample> samples;
  for (std::size_t i = 0; i < mpi.size(); ++i) {
    samples.push_back(sample_of(kRonde, i, 10));
    samples.push_back(sample_of("mpi", i, mpi[i]));
  }
  return samples;
}

std::vector<Summary> summaries_of(const std::vector<double>& mpi) {
  return summarize(samples_of(mpi));
}

Machine machine_of(int ranks) {
  Machine machine;
  machine.cpu = "some <cpu> & more";
  machine.cores = 4;
  machine.ranks = ranks;
  machine.algorithm = "auto";
  return machine;
}

std::string json_of(const std::vector<Sample>& samples, Options options = {},
                    const Machine& machine = machine_of(2)) {
  options.command = {"ronde-perf", "--json", "a \"b\"\\\n"};
  std::ostringstream out;
  write_json(out, options, machine, samples, summarize(samples));
  return out.str();
}

TEST(Json, IsReadBack) {
  std::istringstream in(json_of(samples_of({20, 21, 22})));
  const Baseline baseline = read_baseline(in, "file");
  EXPECT_EQ(baseline.conditions, conditions_of(Options(), machine_of(2)));
  EXPECT_EQ(baseline.repetitions, 5U);
  const std::vector<Summary>& summaries = baseline.summaries;
  ASSERT_EQ(summaries.size(), 2U);
  EXPECT_EQ(summaries[1].key, samples_of({1})[1].key);
  EXPECT_EQ(summaries[1].contender, "mpi");
  EXPECT_DOUBLE_EQ(summaries[1].ratio, 2.1);
  EXPECT_DOUBLE_EQ(summaries[1].ratio_min, 2.0);
  EXPECT_DOUBLE_EQ(summaries[1].ratio_max, 2.2);
}

TEST(Json, FilesFromBeforeThereWereDevicesAreOfTheCpu) {
  std::string text = json_of(samples_of({20, 21, 22}));
  const std::string field = ", \"device\": \"cpu\"";
  const std::size_t at = text.find(field);
  ASSERT_NE(at, std::string::npos) << text;
  std::istringstream in(text.erase(at, field.size()));
  const Baseline baseline = read_baseline(in, "file");
  EXPECT_EQ(baseline.conditions, conditions_of(Options(), machine_of(2)));
}

TEST(Json, OfNothingIsReadBackToo) {
  std::istringstream in(json_of({}));
  EXPECT_TRUE(read_baseline(in, "file").summaries.empty());
}

TEST(Json, OfAnotherKindIsRefused) {
  for (const char* text : {"", "{", "{}", "[1]", R"({"schema": 2, "summary": []})",
                           R"({"schema": 1})", R"({"schema": 1, "summary": [{"bytes": "x"}]})"}) {
    std::istringstream in(text);
    try {
      (void)read_baseline(in, "old.json");
      FAIL() << text;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("old.json")) << text;
      EXPECT_THAT(error.what(), Not(HasSubstr("unspecified"))) << text;
      EXPECT_THAT(error.what(), HasSubstr("ronde-perf --json")) << text;
    }
  }
}

std::string difference(const std::string& before, const Options& options, const Machine& machine) {
  std::istringstream in(before);
  try {
    require_alike(read_baseline(in, "old.json"), conditions_of(options, machine), "old.json");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "alike";
}

TEST(Baseline, OfAnUnlikeRunIsRefused) {
  const std::string before = json_of(samples_of({20, 21, 22}));
  EXPECT_EQ(difference(before, Options(), machine_of(2)), "alike");
  EXPECT_THAT(difference(before, Options(), machine_of(1)),
              HasSubstr("--baseline old.json was taken with ranks=2, this run has ranks=1"));
  Machine machine = machine_of(2);
  machine.hosts = 2;
  EXPECT_THAT(difference(before, Options(), machine),
              HasSubstr("with hosts=1, this run has hosts=2"));
  machine = machine_of(2);
  machine.cores = 1;
  EXPECT_THAT(difference(before, Options(), machine), HasSubstr("with cores=4"));
  machine = machine_of(2);
  machine.algorithm = "ring";
  EXPECT_THAT(difference(before, Options(), machine), HasSubstr("with algorithm=auto"));
  Options options;
  options.on_board = true;
  EXPECT_THAT(difference(before, options, machine_of(2)), HasSubstr("with buffer=false"));
  options = Options();
  options.check = false;
  EXPECT_THAT(difference(before, options, machine_of(2)), HasSubstr("with check=true"));
}

TEST(Baseline, OfFewRepetitionsIsRefused) {
  Options options;
  options.repetitions = 4;
  EXPECT_THAT(difference(json_of(samples_of({20, 21}), options), Options(), machine_of(2)),
              HasSubstr("has 4 repetitions, too few"));
  options.repetitions = 5;
  EXPECT_EQ(difference(json_of(samples_of({20, 21}), options), Options(), machine_of(2)), "alike");
}

TEST(Baseline, ThatIsNotThereIsRefused) {
  EXPECT_THROW((void)read_baseline("/proc/nonexistent/old.json"), UsageError);
  EXPECT_THROW((void)read_baseline("/"), UsageError) << "a folder";
}

TEST(Csv, HasOneLineForEachRow) {
  std::ostringstream out;
  write_csv(out, summaries_of({20, 21}));
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, HasSubstr("operation,model,tensors,bytes"));
}

TEST(Compare, NoiseIsNotWorse) {
  const auto before = summaries_of({20, 22, 24});
  EXPECT_EQ(compare(before, summaries_of({16, 19, 21}), 0.1).worse.size(), 0U) << "they overlap";
  EXPECT_EQ(compare(before, before, 0.0).worse.size(), 0U);
  EXPECT_EQ(compare(before, summaries_of({30, 31, 32}), 0.1).worse.size(), 0U) << "better";
  EXPECT_EQ(compare(before, before, 0.1).compared, 1U);
}

TEST(Compare, SmallDifferencesAreNotWorse) {
  const auto before = summaries_of({20, 20, 20});
  EXPECT_EQ(compare(before, summaries_of({19, 19, 19}), 0.1).worse.size(), 0U);
  EXPECT_EQ(compare(before, summaries_of({19, 19, 19}), 0.01).worse.size(), 1U);
}

TEST(Compare, WhatIsBelowTheWorstOfBeforeIsWorse) {
  const Comparison result = compare(summaries_of({20, 22, 24}), summaries_of({15, 16, 19}), 0.1);
  ASSERT_EQ(result.worse.size(), 1U);
  EXPECT_THAT(result.worse[0], HasSubstr("allreduce of 1024 bytes, float sum, in place: mpi"));
  EXPECT_THAT(result.worse[0], HasSubstr("was 2.20"));
  EXPECT_THAT(result.worse[0], HasSubstr("is 1.60"));
}

TEST(Compare, OtherRowsAreNotCompared) {
  auto now = summaries_of({1, 1, 1});
  now[1].key.bytes = 2048;
  const Comparison result = compare(summaries_of({20, 22, 24}), now, 0.1);
  EXPECT_EQ(result.compared, 0U);
  EXPECT_TRUE(result.worse.empty());
}

TEST(Table, ShowsBothPlacesAndMarksWhatIsMissing) {
  Options options;
  std::ostringstream out;
  write_table_rows(out, options, summaries_of({20, 21, 22}));
  EXPECT_THAT(out.str(), HasSubstr("mpi"));
  EXPECT_THAT(out.str(), HasSubstr("2.10"));
  EXPECT_THAT(out.str(), HasSubstr(" - ")) << "nothing was measured out of place";
  options.out_of_place = false;
  out.str("");
  write_table_rows(out, options, summaries_of({20, 21, 22}));
  EXPECT_THAT(out.str(), Not(HasSubstr(" - ")));
}

TEST(Plot, HasACurveForEachContender) {
  std::vector<Sample> samples;
  for (const std::uint64_t bytes : {8U, 1024U, 1048576U}) {
    samples.push_back(sample_of(kRonde, 0, 1.0 + static_cast<double>(bytes) / 1e4, bytes));
    samples.push_back(sample_of("memcpy", 0, 1.0 + static_cast<double>(bytes) / 2e4, bytes));
  }
  const std::string svg = plot(summarize(samples), "a <machine> & more");
  const auto times = [&svg](const std::string& part) {
    int count = 0;
    for (std::size_t at = svg.find(part); at != std::string::npos; at = svg.find(part, at + 1)) {
      ++count;
    }
    return count;
  };
  EXPECT_EQ(times("<polyline"), 6) << "two contenders in three panels";
  EXPECT_THAT(svg, HasSubstr("above 1 Ronde is faster")) << "a panel for the ratio";
  EXPECT_EQ(times("<svg"), 1);
  EXPECT_EQ(times("</svg>"), 1);
  EXPECT_EQ(times("<g "), times("</g>"));
  for (const char* part : {"microseconds", "GB/s", "8 B", "1 KiB", "1 MiB", "Ronde",
                           "memcpy by every rank", "a &lt;machine&gt; &amp; more"}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
  EXPECT_THAT(svg, Not(HasSubstr("MPI"))) << "the legend names who was measured";
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(Plot, LabelsOfTheSizesStayBelowTheirPanel) {
  std::vector<Sample> samples;
  for (std::uint64_t bytes = 8; bytes <= 2U << 20U; bytes *= 8) {
    samples.push_back(sample_of(kRonde, 0, static_cast<double>(bytes) / 1e3, bytes));
  }
  const std::string svg = plot(summarize(samples), "");
  // The panels are 460 wide.
  EXPECT_NE(svg.find(R"(<text x="460.0" y="398.0" text-anchor="end" font-size="12">2 MiB<)"),
            std::string::npos);
  EXPECT_NE(svg.find(R"(<text x="0.0" y="398.0" text-anchor="start" font-size="12">8 B<)"),
            std::string::npos);
  EXPECT_NE(svg.find(R"(text-anchor="middle" font-size="12">32 KiB<)"), std::string::npos);
}

// Lines of the grid and points rarely met.
TEST(Plot, HasALineOfTheGridAtEachSize) {
  std::vector<Sample> samples;
  std::size_t sizes = 0;
  for (std::uint64_t bytes = 8; bytes <= 64U << 20U; bytes *= 4, ++sizes) {
    samples.push_back(sample_of(kRonde, 0, static_cast<double>(bytes) / 1e3, bytes));
  }
  const std::string svg = plot(summarize(samples), "");
  EXPECT_THAT(svg, Not(HasSubstr("ratio"))) << "there is nothing to compare with";
  const std::regex dot("M([0-9.]+),([0-9.]+)L\\1,\\2(?=[M\"])");
  std::size_t dots = 0;
  for (std::sregex_iterator at(svg.begin(), svg.end(), dot); at != std::sregex_iterator(); ++at) {
    ++dots;
    EXPECT_THAT(svg, HasSubstr("M" + (*at)[1].str() + ",0.0L" + (*at)[1].str() + ",380.0"));
  }
  EXPECT_EQ(dots, 4 * sizes) << "in two panels: a dot, and a range of one repetition";
}

// Once --model had no picture.
TEST(Bars, HasABarForEachContender) {
  std::vector<Sample> samples;
  for (const char* contender : {"ronde", "ronde-flat", "mpi", "memcpy"}) {
    samples.push_back(sample_of(contender, 0, contender[0] == 'm' ? 20'000 : 10'000, 4096));
    samples.back().key.model = "gpt<2>";
    samples.back().tensors = samples.size() == 1 ? 148 : 1;
  }
  const std::string svg = bars(summarize(samples), "a <machine> & more");
  for (const char* part :
       {"gpt&lt;2&gt;", "tensor by tensor", "one flat tensor", "MPI as it comes", "10.0 ms<",
        "20.0 ms (2.00 x)", "a &lt;machine&gt; &amp; more", "width=\"560.0\"", "width=\"280.0\""}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
  EXPECT_THAT(bars({}, ""), HasSubstr("</svg>"));
}

TEST(Plot, OfOneSizeOrNothingIsStillAPicture) {
  for (const auto& samples : {std::vector<Sample>{}, {sample_of(kRonde, 0, 1)}}) {
    const std::string svg = plot(summarize(samples), "");
    EXPECT_THAT(svg, HasSubstr("</svg>"));
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
  }
}

}  // namespace
}  // namespace ronde::perf
