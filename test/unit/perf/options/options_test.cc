// SPDX-License-Identifier: Apache-2.0
// The command line of ronde-perf: values, sizes, and the line for each kind of mistake.
#include "examples/perf/options/options.h"
#include "examples/perf/options/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ronde::perf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Options parse(std::vector<const char*> words) {
  words.insert(words.begin(), "ronde-perf");
  return parse_options(static_cast<int>(words.size()), words.data());
}

std::string error_of(const std::vector<const char*>& words) {
  try {
    (void)parse(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Options, TakeTheFlagsOfNcclTests) {
  const Options options = parse({"-b", "1K", "-e", "4M", "-f", "2", "-n", "7", "-w", "3", "-d",
                                 "half", "-o", "max", "-c", "0", "--root=1"});
  EXPECT_EQ(options.least_bytes, 1024U);
  EXPECT_EQ(options.most_bytes, 4U << 20U);
  EXPECT_EQ(options.step_factor, 2U);
  EXPECT_EQ(iterations_for(options, 1U << 30U), 7U);
  EXPECT_EQ(warm_up_for(options, 1U << 30U), 3U);
  ASSERT_EQ(options.dtypes.size(), 1U);
  EXPECT_EQ(options.dtypes[0]->name, "half");
  ASSERT_EQ(options.ops.size(), 1U);
  EXPECT_EQ(options.ops[0]->name, "max");
  EXPECT_FALSE(options.check);
  EXPECT_EQ(options.root, 1);
}

TEST(Options, AskForTheVersion) {  // There was no such flag
  EXPECT_TRUE(parse({"--version"}).version);
  EXPECT_FALSE(parse({}).version);
}

TEST(Options, AllMeansEvery) {
  const Options options = parse({"-d", "all", "-o", "all"});
  EXPECT_EQ(options.dtypes.size(), 13U);
  EXPECT_EQ(options.ops.size(), 8U);
}

TEST(Options, NameContendersWithCommas) {
  EXPECT_THAT(parse({"--against", "mpi,mpi-best,memcpy,mpi"}).against,
              ElementsAre("mpi", "mpi-best", "memcpy"));
  EXPECT_TRUE(parse({}).against.empty());
}

TEST(Options, SizesStepByFactorOrByBytes) {
  EXPECT_THAT(sizes_of(parse({"-b", "8", "-e", "100", "-f", "4"})), ElementsAre(8, 32, 100));
  // -e 64M ended at 32 MiB.
  EXPECT_EQ(sizes_of(parse({"-e", "64M"})).back(), 64U << 20U);
  EXPECT_THAT(sizes_of(parse({"-b", "8", "-e", "19", "-i", "4"})), ElementsAre(8, 12, 16, 19));
  EXPECT_THAT(sizes_of(parse({"-b", "8", "-e", "20", "-i", "4"})), ElementsAre(8, 12, 16, 20));
  EXPECT_THAT(sizes_of(parse({"-b", "64M", "-e", "64M"})), ElementsAre(64U << 20U));
  EXPECT_THAT(sizes_of(parse({"-b", "64", "-e", "1M", "-f", "1"})), ElementsAre(64));
  EXPECT_THAT(sizes_of(parse({"-b", "0", "-e", "1"})), ElementsAre(1)) << "never for ever";
  EXPECT_THAT(sizes_of(parse({"--operation", "barrier"})), ElementsAre(0));
}

TEST(Options, ShortVectorsAreMeasuredMoreOften) {
  const Options options = parse({});
  EXPECT_EQ(iterations_for(options, 8), 1000U);
  EXPECT_EQ(iterations_for(options, 1U << 20U), 200U);
  EXPECT_EQ(iterations_for(options, 64U << 20U), 20U);
  EXPECT_EQ(iterations_for(options, 1U << 30U), 5U);
}

TEST(Options, RefuseWhatIsNotValid) {
  EXPECT_THAT(error_of({"-b", "-1"}), HasSubstr("--minbytes"));
  EXPECT_THAT(error_of({"-b", "1.5M"}), HasSubstr("--minbytes 1.5M is not valid: use a whole"));
  EXPECT_THAT(error_of({"-e", "K"}), HasSubstr("--maxbytes K is not valid"));
  EXPECT_THAT(error_of({"-e", "99999999999999999999"}), HasSubstr("is not valid"));
  EXPECT_THAT(error_of({"-e", "99999999999G"}), HasSubstr("is not valid"));
  EXPECT_THAT(error_of({"-b", "2K", "-e", "1K"}), HasSubstr("above --maxbytes 1K"));
  EXPECT_THAT(error_of({"-b", "1", "-e", "1G", "-i", "1"}), HasSubstr("more than 10000 sizes"));
  EXPECT_THAT(error_of({"-f", "0"}), HasSubstr("--stepfactor 0 is not valid"));
  EXPECT_THAT(error_of({"-n", "nan"}), HasSubstr("--iters nan is not valid"));
  EXPECT_THAT(error_of({"-d", "float16"}), HasSubstr("one of: all int8"));
  EXPECT_THAT(error_of({"-o", "mean"}), HasSubstr("one of: all sum"));
  EXPECT_THAT(error_of({"-d", "float", "-o", "band"}), HasSubstr("not defined"));
  EXPECT_THAT(error_of({"-d", "bool"}), HasSubstr("not defined")) << "sum is the default";
  EXPECT_THAT(error_of({"--operation", "model"}), HasSubstr("one of: allreduce"));
  EXPECT_THAT(error_of({"--model", "alexnet"}), HasSubstr("one of: resnet50"));
  EXPECT_THAT(error_of({"--place", "here"}), HasSubstr("in, out or both"));
  EXPECT_THAT(error_of({"--against", "mpi,gloo"}),
              HasSubstr("mpi, mpi-best, memcpy, floor and line"));
  EXPECT_THAT(error_of({"--timeout", "0"}), HasSubstr("seconds from 1"));
  EXPECT_THAT(error_of({"--timeout", "nan"}), HasSubstr("seconds from 1"));
  EXPECT_THAT(error_of({"--json", "-", "--csv", "-"}), HasSubstr("standard output"));
  EXPECT_THAT(error_of({"--svg", "-"}), HasSubstr("name of a file"));
  EXPECT_EQ(error_of({"--svg", "x.svg", "--model", "gpt2"}), "accepted")
      << "a picture of the model";
  EXPECT_THAT(error_of({"--svg", "x.svg", "--operation", "barrier"}), HasSubstr("leave it out"));
  EXPECT_THAT(error_of({"--baseline", "x"}), HasSubstr("add --against"));
  EXPECT_THAT(error_of({"-b", "0", "-e", "0"}), HasSubstr("--maxbytes 0 leaves nothing"));
  EXPECT_THAT(error_of({"positional"}), HasSubstr("--help"));
  EXPECT_THAT(error_of({"--no-such-flag", "1"}), HasSubstr("--help"));
  EXPECT_THAT(error_of({"--iter", "1"}), HasSubstr("--help")) << "abbreviations are refused";
  EXPECT_THAT(error_of({"-n"}), HasSubstr("--help"));
}

TEST(Options, RefuseFlagsThatDoNotGoTogether) {
  EXPECT_THAT(error_of({"--operation", "allgather", "--place", "in"}),
              HasSubstr("--place in is not valid with --operation allgather"));
  EXPECT_THAT(error_of({"--operation", "all_to_all", "--place", "in"}), HasSubstr("--place out"));
  EXPECT_EQ(error_of({"--operation", "allgather", "--place", "both"}), "accepted");
  EXPECT_EQ(error_of({"--operation", "broadcast", "--place", "in"}), "accepted");

  EXPECT_THAT(error_of({"--svg", "x.svg", "-d", "all"}), HasSubstr("one --datatype and one --op"));
  EXPECT_THAT(error_of({"--svg", "x.svg", "-o", "all"}), HasSubstr("one --datatype and one --op"));
  EXPECT_EQ(error_of({"--svg", "x.svg", "-o", "all", "--operation", "broadcast"}), "accepted");

  EXPECT_THAT(error_of({"--json", "x", "--csv", "x"}), HasSubstr("--json and --csv both write x"));
  EXPECT_THAT(error_of({"--json", "x", "--svg", "./x"}), HasSubstr("--json and --svg both write"));
  EXPECT_THAT(error_of({"--csv", "a/../x", "--svg", "x"}), HasSubstr("--csv and --svg both"));
  EXPECT_EQ(error_of({"--json", "x", "--csv", "y", "--svg", "z"}), "accepted");

  EXPECT_THAT(error_of({"--baseline", "x", "--against", "mpi", "--repetitions", "4"}),
              HasSubstr("--repetitions 4 is too few for --baseline"));
  EXPECT_EQ(error_of({"--baseline", "x", "--against", "mpi"}), "accepted");
}

TEST(Options, ADeviceTakesWhatItCanDo) {
  EXPECT_EQ(parse({}).device, "cpu");
  EXPECT_EQ(parse({"--device", "cuda", "--against", "memcpy", "--model", "gpt2"}).device, "cuda");
  EXPECT_THAT(error_of({"--device", "tpu"}), HasSubstr("--device tpu is not valid"));
  for (const char* each : {"mpi", "mpi-best", "floor", "line"}) {
    EXPECT_THAT(error_of({"--device", "cuda", "--against", each}), HasSubstr("in host memory"));
  }
  EXPECT_THAT(error_of({"--device", "cuda", "--buffer", "1"}), HasSubstr("--buffer 1"));
  EXPECT_THAT(error_of({"--device", "cuda", "-d", "int32", "-o", "band"}),
              HasSubstr("cannot be done on a GPU"));
  EXPECT_THAT(error_of({"--device", "cuda", "-d", "bool", "-o", "max"}),
              HasSubstr("cannot be done on a GPU"));
  EXPECT_THAT(error_of({"--device", "cuda", "-d", "int16"}), HasSubstr("cannot be done on a GPU"));
  // What is only moved has no reduction.
  EXPECT_EQ(error_of({"--device", "cuda", "-d", "bool", "--operation", "broadcast"}), "accepted");
  EXPECT_EQ(error_of({"--device", "cuda", "-d", "all", "-o", "all"}), "accepted");
}

TEST(Options, AGpuReducesEveryOtherType) {
  std::size_t pairs = 0;
  for (const DType& dtype : all_dtypes()) {
    for (const Op& op : all_ops()) pairs += valid_on_gpu(dtype, op) ? 1U : 0U;
  }
  // 13 dtypes without bool, int16 and uint16; sum prod min max avg, the bytes without avg.
  EXPECT_EQ(pairs, 10U * 5U - 2U);
}

// They are rows of the library's table.
TEST(Options, OperationsHaveTheirNames) {
  EXPECT_EQ(operation_names(), "allreduce broadcast allgather barrier reduce_scatter all_to_all");
  EXPECT_EQ(name_of(Operation::kBarrier), "barrier");
  EXPECT_EQ(name_of(Operation::kReduceScatter), "reduce_scatter");
  EXPECT_EQ(name_of(Operation::kAllToAll), "all_to_all");
  EXPECT_EQ(name_of(Operation::kModel), "model");
  EXPECT_THAT(help_text(), HasSubstr("allreduce broadcast allgather barrier"));
}

TEST(Options, HelpExplainsTheColumns) {
  EXPECT_TRUE(parse({"--help"}).help);
  for (const char* part : {"--minbytes", "--against", "busbw", "slowest rank", "ratio_to_ronde"}) {
    EXPECT_THAT(help_text(), HasSubstr(part));
  }
}

}  // namespace
}  // namespace ronde::perf
