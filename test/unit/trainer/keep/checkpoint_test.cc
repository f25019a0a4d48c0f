// SPDX-License-Identifier: Apache-2.0
// One checkpoint: what is written comes back, what is damaged is refused by name, what cannot be
// written leaves what was there.
#include "bindings/trainer/keep/checkpoint.h"
#include "bindings/trainer/keep/checkpoint_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/fsuid.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include "test/unit/trainer/keep/checkpoint_files.h"

namespace ronde::trainer {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

CheckpointState parsed(const std::string& text) { return from_state_json(text, "s.json").first; }
std::string error_in(const std::string& text) {
  return error_of([&] { (void)parsed(text); });
}

// The text with another value, and the checksum that fits it.
std::string edited(const std::string& text, const std::string& from, const std::string& to) {
  const std::size_t end = text.rfind("  \"checksum\": ");
  std::string body = text.substr(0, end);
  EXPECT_NE(body.find(from), std::string::npos) << from;
  body.replace(body.find(from), from.size(), to);
  return body + "  \"checksum\": \"" + checksum_text(body) + "\"\n}\n";
}

TEST(StateJson, ComesBackAndCanBeRead) {
  CheckpointState state = state_of(123);
  state.global_step = std::numeric_limits<std::uint64_t>::max();
  state.numbers = {{"early_stopping/best", 0.1}, {"a \"name\"\n", -0.0}};
  const std::string text = to_state_json(state, "crc32:12345678");
  EXPECT_EQ(parsed(text), state);
  EXPECT_TRUE(std::signbit(parsed(text).numbers.at("a \"name\"\n")));
  EXPECT_EQ(from_state_json(text, "x").second, "crc32:12345678");
  EXPECT_THAT(text, AllOf(StartsWith("{\n  \"format\": 1,\n  \"ronde_version\": \""),
                          HasSubstr("\n  \"step\": 18446744073709551615,\n"),
                          HasSubstr("\n    \"early_stopping/best\": 0.1\n"),
                          HasSubstr("\"--model\": \"mlp\",\n    \"--data\": \"\",\n")));
  EXPECT_EQ(parsed(to_state_json({}, "")), CheckpointState{});
}

TEST(StateJson, NumbersComeBackBitForBit) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const double number = std::bit_cast<double>(random());
    if (!std::isfinite(number)) continue;
    CheckpointState state;
    state.numbers = {{"x", number}};
    state.epoch_sums = {number, std::numeric_limits<double>::denorm_min(), 0x1p-1060};
    const CheckpointState back = parsed(to_state_json(state, ""));
    ASSERT_EQ(std::bit_cast<std::uint64_t>(back.numbers.at("x")),
              std::bit_cast<std::uint64_t>(number));
    ASSERT_EQ(back, state);
  }
}

TEST(StateJson, WhatCannotBeWritten) {
  CheckpointState state;
  state.numbers = {{"early_stopping/best", std::numeric_limits<double>::infinity()}};
  EXPECT_EQ(error_of<TrainerError>([&] { (void)to_state_json(state, ""); }),
            "the number early_stopping/best is not finite");
  state = {};
  state.flags = {{"--data", "\xff"}};
  EXPECT_THAT(error_of<TrainerError>([&] { (void)to_state_json(state, ""); }),
              HasSubstr("no text in UTF-8"));
}

TEST(StateJson, DamageIsAnError) {
  const std::string text = to_state_json(state_of(12), "crc32:12345678");
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_THAT(error_in(text.substr(0, size)), StartsWith("s.json: it ")) << size;
  }
  EXPECT_NE(error_in(text + "\n"), "no error");
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      EXPECT_THAT(error_in(damaged), StartsWith("s.json: it ")) << damaged;
    }
  }
  EXPECT_NE(error_in(std::string(1'000'000, '[')), "no error");
}

TEST(StateJson, OtherVersions) {
  const std::string text = to_state_json(state_of(12), "");
  EXPECT_EQ(parsed(edited(text, "\"step\": 12", "\"new\": [1, {}],\n  \"step\": 12")),
            state_of(12));
  EXPECT_THAT(error_in(edited(text, "\"format\": 1", "\"format\": 2")),
              AllOf(StartsWith("s.json: it has format 2, Ronde "), HasSubstr("reads format 1")));
  EXPECT_THAT(error_in(edited(text, "\"step\": 12", "\"step\": -12")),
              HasSubstr("no count \"step"));
  EXPECT_THAT(error_in(edited(text, "\"step\": 12", "\"step\": 1.5")),
              HasSubstr("no count \"step"));
  EXPECT_THAT(error_in(edited(text, "\"step\": 12,", "")), HasSubstr("no count \"step\""));
  EXPECT_THAT(error_in(edited(text, "\"--seed\": \"1\"", "\"--seed\": 1")),
              HasSubstr("no text \"--seed\""));
  EXPECT_THAT(error_in(edited(text, "\"numbers\": {}", "\"numbers\": []")),
              HasSubstr("no object \"numbers\""));
  EXPECT_THAT(error_in(edited(text, "\"numbers\": {}", "\"numbers\": {\"a\": null}")),
              HasSubstr("no number \"a\""));
}

TEST(ChecksumText, KnownAnswers) {
  EXPECT_EQ(checksum_text("123456789"), "crc32:cbf43926");
  EXPECT_EQ(checksum_text(""), "crc32:00000000");
}

TEST(FlagsThatDiffer, NamesEachWithBothValues) {
  CheckpointState saved;
  saved.flags = {{"--model", "mlp"}, {"--seed", "1"}, {"--data", ""}, {"--clip", "2"}};
  EXPECT_EQ(flags_that_differ(saved, saved.flags), "");
  EXPECT_EQ(flags_that_differ(
                saved, {{"--seed", "1"}, {"--model", "cnn"}, {"--data", "x"}, {"--rate", ""}}),
            "--model was mlp and is now cnn; --data was \"\" and is now x; --clip was 2 and is now "
            "nothing; --rate was nothing and is now \"\"");
}

class CheckpointTest : public CheckpointFiles {
 protected:
  void write(std::uint64_t step) const {
    write_checkpoint(disk(), checkpoint_path(folder_, step), state_of(step),
                     bytes_of(model_of(step)));
  }
  [[nodiscard]] Checkpoint read(std::uint64_t step) const {
    return read_checkpoint(disk(), checkpoint_path(folder_, step));
  }
};

TEST_F(CheckpointTest, ComesBack) {
  write(7);
  const Checkpoint back = read(7);
  EXPECT_EQ(back.state, state_of(7));
  EXPECT_EQ(read_checkpoint_state(disk(), checkpoint_path(folder_, 7)), state_of(7));
  SmallModel model;
  copy_tensors(back.tensors, model.tensors(), "here");
  EXPECT_EQ(model, model_of(7));
}

TEST_F(CheckpointTest, ListsStepsAlone) {
  EXPECT_THAT(CheckpointDirectory::steps(disk(), folder_ + "/none"), ElementsAre());
  for (const char* name :
       {"step-10", "step-9", "step-0", "step-1.3.tmp", "step-2.3.old.tmp", "step-4.damaged",
        "step-", "step-07", "step-+7", "step--7", "step-7x", "xstep-7", "logs",
        "step-99999999999999999999", "step-18446744073709551615"}) {
    std::filesystem::create_directory(folder_ + "/" + name);
  }
  EXPECT_THAT(CheckpointDirectory::steps(disk(), folder_), ElementsAre(0, 9, 10, UINT64_MAX));
  overwrite(folder_ + "/file", "");
  EXPECT_THAT(error_of([&] { (void)CheckpointDirectory::steps(disk(), folder_ + "/file"); }),
              HasSubstr("/file: Not a directory"));
}

TEST_F(CheckpointTest, DamageIsAnErrorThatNamesTheFile) {
  write(7);
  const auto error = [this] { return error_of<Damaged>([this] { (void)read(7); }); };
  for (const std::string& file : {tensors_file(7), state_file(7)}) {
    const std::string whole = read_file(disk(), file);
    for (std::size_t at = 0; at < whole.size(); at += 7) {
      overwrite(file, whole.substr(0, at));
      EXPECT_THAT(error(), StartsWith(file + ": it")) << at;
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
      overwrite(file, damaged);
      EXPECT_THAT(error(), StartsWith(file + ": it")) << at;
    }
    std::filesystem::remove(file);
    EXPECT_EQ(error(), file + ": No such file or directory");
    overwrite(file, whole);
    EXPECT_EQ(error(), "no error");
  }
}

// Root may read everything, so this thread stops being root for files.
class FilesOfNobody {
 public:
  FilesOfNobody() : before_(::setfsuid(kNobody)) {}
  FilesOfNobody(const FilesOfNobody&) = delete;
  FilesOfNobody& operator=(const FilesOfNobody&) = delete;
  ~FilesOfNobody() { ::setfsuid(static_cast<uid_t>(before_)); }

 private:
  static constexpr uid_t kNobody = 65534;
  int before_;
};

// That may be mended, unlike damage.
TEST_F(CheckpointTest, WhatMayNotBeReadIsNotDamaged) {
  namespace fs = std::filesystem;
  write(1);
  fs::permissions(state_file(1), fs::perms::none);
  const FilesOfNobody nobody;
  EXPECT_THROW((void)read(1), FileError);
  EXPECT_THAT(error_of([&] { (void)read(1); }), HasSubstr("state.json: Permission denied"));
}

TEST_F(CheckpointTest, NumbersThatAreNotFiniteAreRefusedFirst) {
  CheckpointState state = state_of(7);
  state.numbers["x"] = NAN;
  const std::string folder = checkpoint_path(folder_, 7);
  EXPECT_THAT(error_of<TrainerError>([&] { write_checkpoint(disk(), folder, state, ""); }),
              HasSubstr("x is not finite"));
}

TEST(MakeDirectories, WhereNoDirectoryCanBe) {
  const TemporaryFolder folder;
  make_directories(disk(), folder.path() + "/a/b/c");
  EXPECT_TRUE(std::filesystem::is_directory(folder.path() + "/a/b/c"));
  const std::string file = folder.path() + "/file";
  write_file(disk(), file, "");
  EXPECT_EQ(error_of([&] { make_directories(disk(), file + "/a/b"); }),
            file + "/a/b: Not a directory");
}

}  // namespace
}  // namespace ronde::trainer
