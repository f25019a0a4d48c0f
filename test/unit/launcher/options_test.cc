// SPDX-License-Identifier: Apache-2.0
// Where ronderun's options end, and every way to get them wrong.
#include "launcher/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/config.h"

namespace ronde::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

Options parsed(const Words& words) {
  const auto options = parse_options(words);
  EXPECT_TRUE(options.ok()) << options.status().message();
  return options.ok() ? *options : Options{};
}

std::string refused(const Words& words) {
  const auto options = parse_options(words);
  EXPECT_FALSE(options.ok());
  if (options.ok()) return "";
  EXPECT_EQ(options.status().message().find('\n'), std::string::npos);
  return options.status().message();
}

TEST(OptionsTest, EveryNameOfTheNumberOfRanks) {
  for (const Words& words :
       {Words{"-np", "3", "p"}, {"-n", "3", "p"}, {"--np=3", "p"}, {"--num-proc", "3", "p"}}) {
    EXPECT_EQ(parsed(words).ranks, 3);
    EXPECT_THAT(parsed(words).program, ElementsAre("p"));
  }
}

TEST(OptionsTest, EndAtTheFirstOtherWord) {
  const Options options = parsed({"-np", "2", "./p", "--help", "--dry-run", "-np", "9", "--"});
  EXPECT_EQ(options.ranks, 2);
  EXPECT_FALSE(options.help);
  EXPECT_FALSE(options.dry_run);
  EXPECT_THAT(options.program, ElementsAre("./p", "--help", "--dry-run", "-np", "9", "--"));
}

TEST(OptionsTest, EndAtTwoDashes) {
  EXPECT_THAT(parsed({"-np", "2", "--", "-p", "--", "-v"}).program, ElementsAre("-p", "--", "-v"));
}

TEST(OptionsTest, ASingleDashIsAProgram) {
  EXPECT_THAT(parsed({"-np", "2", "-"}).program, ElementsAre("-"));
}

TEST(OptionsTest, Everything) {
  const Options options = parsed({"--dry-run",
                                  "--verbose",
                                  "-H",
                                  "a:2,b",
                                  "--hostfile=h",
                                  "--bind-to",
                                  "core:overload-allowed",
                                  "--mpi",
                                  "--mpi-args",
                                  "--mca a 'b c'",
                                  "--mpi-args=--tag-output",
                                  "--start=ssh -p 22",
                                  "--agent",
                                  "/opt/r",
                                  "--wdir",
                                  "/w",
                                  "-x",
                                  "A=b=c",
                                  "-x",
                                  "D",
                                  "-x",
                                  "E=",
                                  "-n",
                                  "1",
                                  "p"});
  EXPECT_TRUE(options.dry_run);
  EXPECT_TRUE(options.verbose);
  EXPECT_TRUE(options.mpi);
  EXPECT_EQ(options.hosts, "a:2,b");
  EXPECT_EQ(options.hostfile, "h");
  EXPECT_EQ(options.bind_to, "core:overload-allowed");
  EXPECT_THAT(options.mpi_args, ElementsAre("--mca", "a", "b c", "--tag-output"));
  EXPECT_THAT(options.start, ElementsAre("ssh", "-p", "22"));
  EXPECT_EQ(options.agent, "/opt/r");
  EXPECT_EQ(options.folder, "/w");
  ASSERT_EQ(options.exports.size(), 3U);
  EXPECT_EQ(options.exports[0].name, "A");
  EXPECT_EQ(options.exports[0].value, "b=c");
  EXPECT_EQ(options.exports[1].name, "D");
  EXPECT_EQ(options.exports[1].value, std::nullopt);
  EXPECT_EQ(options.exports[2].value, "");
}

TEST(OptionsTest, HelpAndVersionNeedNothingElse) {
  EXPECT_TRUE(parsed({"--help"}).help);
  EXPECT_TRUE(parsed({"-h"}).help);
  EXPECT_TRUE(parsed({"-v"}).version);
  EXPECT_TRUE(parsed({"--version"}).version);
}

TEST(OptionsTest, OneOptionForEverySetting) {
  for (const base::Setting& setting : base::settings()) {
    if (setting.name == "RONDE_MPI") continue;  // an old name of RONDE_ALONE
    std::string option(setting.name.substr(5));
    for (char& letter : option) {
      letter = letter == '_' ? '-' : static_cast<char>(std::tolower(letter));
    }
    const Options options = parsed({"-" + option, "7", "-n", "1", "p"});
    ASSERT_EQ(options.exports.size(), 1U) << option;
    EXPECT_EQ(options.exports[0].name, setting.name);
    EXPECT_EQ(options.exports[0].value, "7");
    EXPECT_THAT(help_text(), HasSubstr("-" + option + " "));
    EXPECT_THAT(help_text(), HasSubstr(base::valid_values(setting)));
  }
}

TEST(OptionsTest, RefusesNumbersThatAreNone) {
  for (const std::string& text : Words{"0", "-1", "two", "", "1.5", "2x", "99999999999999999999"}) {
    EXPECT_THAT(refused({"-np", text, "p"}),
                HasSubstr("-np " + text + " is not a number of ranks"));
  }
  EXPECT_THAT(refused({"-np", "./p"}), HasSubstr("./p is not a number"));
}

TEST(OptionsTest, RefusesWhatIsMissing) {
  EXPECT_THAT(refused({}), HasSubstr("no program"));
  EXPECT_EQ(parsed({"./p", "-np", "2"}).ranks, std::nullopt) << "the program's own";
  EXPECT_THAT(refused({"--start", "", "p"}), HasSubstr("--start is empty"));
  EXPECT_THAT(refused({"-np", "2"}), HasSubstr("no program"));
  EXPECT_THAT(refused({"-np", "2", "--"}), HasSubstr("no program"));
  EXPECT_THAT(refused({"-np", "2", ""}), HasSubstr("no program"));
  EXPECT_THAT(refused({"-np"}), HasSubstr("-np needs a value"));
  EXPECT_THAT(refused({"-np", "2", "--algorithm"}), HasSubstr("--algorithm needs a value"));
  EXPECT_THAT(refused({"-np", "2", "-H", "", "p"}), HasSubstr("-H is empty"));
  EXPECT_THAT(refused({"-np", "2", "--hostfile=", "p"}), HasSubstr("--hostfile is empty"));
}

TEST(OptionsTest, RefusesUnknownOptionsWithAHint) {
  EXPECT_THAT(refused({"--dryrun", "p"}), HasSubstr("did you mean --dry-run?"));
  EXPECT_THAT(refused({"--algoritm=ring", "p"}), HasSubstr("did you mean --algorithm?"));
  EXPECT_THAT(refused({"--mca", "a", "b", "p"}), HasSubstr("--mpi-args"));
  EXPECT_THAT(refused({"-q", "p"}), HasSubstr("unknown option -q: ronderun --help"));
}

TEST(OptionsTest, StoppingAndRestarting) {
  EXPECT_EQ(parsed({"-np", "1", "p"}).stop_grace, std::chrono::seconds(20));
  EXPECT_EQ(parsed({"-np", "1", "p"}).restarts, 0);
  EXPECT_EQ(parsed({"-np", "1", "--stop-grace", "0", "p"}).stop_grace, std::chrono::seconds(0));
  EXPECT_EQ(parsed({"-np", "1", "--stop-grace=0.5", "p"}).stop_grace,
            std::chrono::milliseconds(500));
  EXPECT_EQ(parsed({"-np", "1", "--restarts", "3", "p"}).restarts, 3);
  EXPECT_EQ(parsed({"-np", "1", "p"}).restart_window, std::chrono::hours(1));
  EXPECT_EQ(parsed({"-np", "1", "--restart-window", "90", "p"}).restart_window,
            std::chrono::seconds(90));
  for (const std::string& text : Words{"0", "-1", "soon", "", "nan", "31536001"}) {
    EXPECT_THAT(refused({"--restart-window", text, "p"}),
                HasSubstr("--restart-window " + text + " is not a time"));
  }
  for (const std::string& text : Words{"-1", "soon", "", "2s", "nan", "inf", "86401"}) {
    EXPECT_THAT(refused({"--stop-grace", text, "p"}),
                HasSubstr("--stop-grace " + text + " is not a time"));
  }
  for (const std::string& text : Words{"-1", "many", "", "1.5", "99999999999999999999"}) {
    EXPECT_THAT(refused({"--restarts", text, "p"}),
                HasSubstr("--restarts " + text + " is not a number of restarts"));
  }
}

TEST(OptionsTest, RefusesBadValues) {
  EXPECT_THAT(refused({"--dry-run=yes", "p"}), HasSubstr("--dry-run takes no value"));
  EXPECT_THAT(refused({"--bind-to", "cores", "p"}),
              HasSubstr("use one of: auto none hwthread core"));
  for (const std::string& text : Words{"", "=", "=a", "1A=b", "A B=c", "A-B"}) {
    EXPECT_THAT(refused({"-x", text, "p"}), HasSubstr("does not name a variable"));
  }
  EXPECT_THAT(refused({"--mpi-args", "a 'b", "p"}), HasSubstr("a quote ' is not closed"));
}

TEST(OptionsTest, SplitsWordsAsAShellDoes) {
  EXPECT_THAT(parsed({"--start", R"( sh  -c 'a "$0" \b' "c 'd' \"e\" \f" \g\ h"" '' )", "p"}).start,
              ElementsAre("sh", "-c", R"(a "$0" \b)", R"(c 'd' "e" \f)", "g h", ""));
}

}  // namespace
}  // namespace ronde::launcher
