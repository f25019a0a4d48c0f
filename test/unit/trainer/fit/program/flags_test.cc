// SPDX-License-Identifier: Apache-2.0
// A table of flags: defaults, what is taken and what is refused, and what a picture of losses has.
#include "bindings/trainer/fit/program/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bindings/trainer/fit/program/training.h"
#include "test/unit/trainer/error_of.h"

namespace ronde::trainer {
namespace {

using testing::HasSubstr;

struct Settings {
  std::string name = "none";
  std::size_t epochs = 5;
  int threads = 1;
  double rate = 0.0005;
  double momentum = 0.9;
  bool overlap = true;
  bool verbose = false;
  std::optional<double> decay;
  std::string model = "mlp";
};

class Table {
 public:
  Table() {
    flags.add({{"name", text(all.name), ""},
               {"epochs", whole(all.epochs, 1, 100), ""},
               {"threads", whole(all.threads, 1, 4), ""},
               {"learning-rate", positive(all.rate, 1.0), ""},
               {"momentum", share(all.momentum), ""},
               {"overlap", on_off(all.overlap), ""},
               {"verbose", on_where_named(all.verbose), ""},
               {"decay", automatic(all.decay, [](double& to) { return positive(to, 1.0); }), ""},
               {"model", one_of(all.model, {"mlp", "cnn"}), ""}});
  }
  void parse(std::vector<const char*> words) {
    words.insert(words.begin(), "learn");
    EXPECT_TRUE(flags.parse(static_cast<int>(words.size()), words.data()));
  }

  Settings all;
  FlagTable flags{"learn", "Learns."};
};

std::string refusal(const char* flag, const char* value) {
  Table table;
  return error_of([&] { table.parse({flag, value}); });
}

TEST(Flags, HaveTheValuesOfTheirVariablesWhereNothingIsGiven) {
  Table table;
  table.parse({});
  EXPECT_EQ(table.all.epochs, 5U);
  EXPECT_EQ(table.all.rate, 0.0005);
  EXPECT_FALSE(table.all.decay);
  const Flags expected{{"--learning-rate", "0.0005"}, {"--decay", "auto"}, {"--verbose", "off"}};
  EXPECT_EQ(table.flags.values_of({"learning-rate", "decay", "verbose"}), expected);
  EXPECT_EQ(table.flags.values().front(),
            (std::pair<std::string, std::string>("program", "learn")));
  EXPECT_THROW(static_cast<void>(table.flags.values_of({"rate"})), std::logic_error);
}

TEST(Flags, KeepAllDigitsOfADefault) {
  double rate = 1.0 / 3.0;
  FlagTable flags("learn", "Learns.");
  flags.add({{"rate", positive(rate, 1.0), ""}});
  const char* const words[] = {"learn"};
  EXPECT_TRUE(flags.parse(1, words));
  EXPECT_EQ(rate, 1.0 / 3.0);
}

TEST(Flags, GoWhereTheTableSays) {
  Table table;
  table.parse({"--name=a b", "--epochs", "7", "--threads=3", "--learning_rate", "3e-5",
               "--momentum=0", "--overlap=off", "--verbose", "--decay=0.5", "--model=cnn"});
  EXPECT_EQ(table.all.name, "a b");
  EXPECT_EQ(table.all.epochs, 7U);
  EXPECT_EQ(table.all.threads, 3);
  EXPECT_EQ(table.all.rate, 3e-5);
  EXPECT_EQ(table.all.momentum, 0.0);
  EXPECT_FALSE(table.all.overlap);
  EXPECT_TRUE(table.all.verbose);
  EXPECT_EQ(table.all.decay, 0.5);
  EXPECT_EQ(table.all.model, "cnn");
  table.parse({"--name=a_b", "--decay=auto"});  // underscores of a value stay
  EXPECT_EQ(table.all.name, "a_b");
  EXPECT_FALSE(table.all.decay);
}

TEST(Flags, SayWhatIsValid) {
  for (const char* const epochs : {"0", "101", "-1", "1x", "", "1e1", "99999999999999999999"}) {
    EXPECT_THAT(refusal("--epochs", epochs), HasSubstr("use a whole number from 1 to 100"))
        << epochs;
  }
  for (const char* const rate : {"0", "-1", "1.5", "nan", "inf", "x"}) {
    EXPECT_THAT(refusal("--learning-rate", rate), HasSubstr("use a number above 0 and at most 1"))
        << rate;
  }
  EXPECT_THAT(refusal("--momentum", "1"), HasSubstr("use a number from 0 to below 1"));
  EXPECT_THAT(refusal("--decay", "2"), HasSubstr("--decay 2 is not valid"));
  EXPECT_EQ(refusal("--model", "rnn"), "--model rnn is not valid: use one of: mlp cnn");
  EXPECT_EQ(refusal("--model", ""), "--model \"\" is not valid: use one of: mlp cnn");
  EXPECT_THAT(refusal("--epoch", "1"), HasSubstr("see learn --help"));
  EXPECT_THAT(refusal("epochs", "1"), HasSubstr("every argument must be a flag"));
}

TEST(Flags, AreCheckedTogetherOnceAllAreRead) {
  Table table;
  table.flags.check([&table] {
    if (table.all.epochs > 10 && table.all.model == "cnn") throw UsageError("too long");
  });
  table.parse({"--epochs=11"});
  EXPECT_EQ(error_of([&] { table.parse({"--epochs=11", "--model=cnn"}); }), "too long");
  try {
    throw UsageError("");
  } catch (const std::exception& error) {
    EXPECT_EQ(exit_code_of(error), kExitUsage);
  }
}

TEST(Flags, HaveOtherDefaultsWhereACheckSaysSo) {
  Table table;
  table.flags.check([&table] {
    EXPECT_TRUE(table.flags.given("epochs"));
    EXPECT_FALSE(table.flags.given("threads"));
    EXPECT_FALSE(table.flags.given("no-such-flag"));
    table.flags.otherwise("epochs", "9");
    table.flags.otherwise("threads", "3");
    table.flags.otherwise("no-such-flag", "3");
  });
  table.parse({"--epochs=7"});
  EXPECT_EQ(table.all.epochs, 7U);
  EXPECT_EQ(table.all.threads, 3);
  EXPECT_EQ(table.flags.values_of({"threads"}), (Flags{{"--threads", "3"}}));
  EXPECT_THROW(table.flags.otherwise("momentum", "2"), std::logic_error);
}

TEST(LossPicture, HasAPointForEachEpoch) {
  const std::array<double, 3> losses{1.0, 0.5, 0.25};
  const std::string picture = loss_picture(losses);
  EXPECT_TRUE(picture.starts_with("<svg"));
  std::size_t circles = 0;
  for (std::size_t at = picture.find("<circle"); at != std::string::npos;
       at = picture.find("<circle", at + 1)) {
    ++circles;
  }
  EXPECT_EQ(circles, 3U);
  EXPECT_THAT(picture, HasSubstr("60.0,60.0 320.0,200.0 580.0,270.0 "));
  EXPECT_THAT(loss_picture({}), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace ronde::trainer
