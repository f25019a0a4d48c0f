// SPDX-License-Identifier: Apache-2.0
// Status and Result: what an error remembers.
#include "base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>
#include <string>

namespace ronde::base {
namespace {

TEST(Status, SuccessSaysSo) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), Code::kOk);
  EXPECT_EQ(status.message(), "ok");
  EXPECT_EQ(status.place(), "");
  EXPECT_EQ(status.to_string(), "ok");
  EXPECT_FALSE(status.rank().has_value());
  EXPECT_TRUE(status.with_rank(3).ok());
}

TEST(Status, AnErrorSaysWhatAndWhere) {
  const Status status = Status::error(Code::kMismatch, "no");
  const auto line = std::to_string(__LINE__ - 1);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_EQ(status.message(), "no");
  EXPECT_EQ(status.place(), "test/unit/base/status_test.cc:" + line);
  EXPECT_EQ(status.to_string(), "no [mismatch, test/unit/base/status_test.cc:" + line + "]");
  EXPECT_FALSE(status.rank().has_value());
}

TEST(Status, ACauseExplains) {
  const Status root = Status::error(Code::kSystem, "disk is full").with_rank(2);
  const Status middle = Status::error(Code::kTransport, "cannot write", root);
  const Status top = Status::error(Code::kInternal, "cannot save", middle);
  EXPECT_EQ(top.code(), Code::kInternal);
  EXPECT_EQ(top.message(), "cannot save: cannot write: disk is full");
  EXPECT_EQ(top.place(), root.place());
  EXPECT_EQ(top.rank(), 2);
}

TEST(Status, TheRankAtFault) {
  const Status status = Status::error(Code::kPeerFailed, "gone");
  const Status known = status.with_rank(7);
  EXPECT_EQ(known.rank(), 7);
  EXPECT_EQ(known.message(), "gone");
  EXPECT_EQ(known.place(), status.place());
  EXPECT_FALSE(status.rank().has_value()) << "copies share nothing that changes";
}

TEST(Status, AnErrorOfAnotherRankKeepsItsPlace) {
  const Status status = Status::remote(Code::kDeadline, "late", "train.cc:40", 3);
  EXPECT_EQ(status.place(), "train.cc:40");
  EXPECT_EQ(status.rank(), 3);
  EXPECT_FALSE(Status::remote(Code::kDeadline, "late", "", -1).rank().has_value());
}

TEST(Status, ErrnoInWords) {
  const Status status = Status::system("opening /dev/shm", EACCES);
  EXPECT_EQ(status.code(), Code::kSystem);
  EXPECT_THAT(status.message(),
              testing::MatchesRegex("opening /dev/shm: .*[Pp]ermission denied.*"));
  EXPECT_EQ(Status::system("mapping", ENOMEM).code(), Code::kOutOfMemory);
}

TEST(Status, EveryCodeHasItsOwnName) {
  std::set<std::string> names;
  for (std::int32_t code = 0; code <= static_cast<std::int32_t>(Code::kInternal); ++code) {
    names.insert(code_name(static_cast<Code>(code)));
  }
  EXPECT_EQ(names.size(), 12U);
  EXPECT_EQ(names.count("unknown code"), 0U);
  EXPECT_STREQ(code_name(static_cast<Code>(99)), "unknown code");
}

// The C ABI promises these numbers.
TEST(Status, TheCodesNeverChange) {
  EXPECT_EQ(static_cast<int>(Code::kOk), 0);
  EXPECT_EQ(static_cast<int>(Code::kInvalidArgument), 1);
  EXPECT_EQ(static_cast<int>(Code::kMismatch), 2);
  EXPECT_EQ(static_cast<int>(Code::kDuplicateName), 3);
  EXPECT_EQ(static_cast<int>(Code::kClosed), 4);
  EXPECT_EQ(static_cast<int>(Code::kPeerFailed), 5);
  EXPECT_EQ(static_cast<int>(Code::kDeadline), 6);
  EXPECT_EQ(static_cast<int>(Code::kUnsupported), 7);
  EXPECT_EQ(static_cast<int>(Code::kOutOfMemory), 8);
  EXPECT_EQ(static_cast<int>(Code::kSystem), 9);
  EXPECT_EQ(static_cast<int>(Code::kTransport), 10);
  EXPECT_EQ(static_cast<int>(Code::kInternal), 11);
}

Status fail_if(bool condition) {
  return condition ? Status::error(Code::kUnsupported, "asked to") : Status();
}

Status pass_on(bool condition, bool* reached_the_end) {
  RONDE_RETURN_IF_ERROR(fail_if(condition));
  *reached_the_end = true;
  return {};
}

TEST(Status, ReturnIfErrorReturnsErrorsOnly) {
  bool reached_the_end = false;
  EXPECT_EQ(pass_on(true, &reached_the_end).code(), Code::kUnsupported);
  EXPECT_FALSE(reached_the_end);
  EXPECT_TRUE(pass_on(false, &reached_the_end).ok());
  EXPECT_TRUE(reached_the_end);
}

TEST(Result, HoldsAValueOrAnError) {
  Result<std::string> good = std::string("yes");
  EXPECT_TRUE(good.ok());
  EXPECT_TRUE(good.status().ok());
  EXPECT_EQ(*good, "yes");
  EXPECT_EQ(good->size(), 3U);
  good.value() += "!";
  EXPECT_EQ(good.value(), "yes!");

  const Result<std::string> bad = Status::error(Code::kClosed, "no");
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().message(), "no");
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(4);
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 4);
}

TEST(ResultDeathTest, MisuseIsABug) {
  const Result<int> bad = Status::error(Code::kClosed, "no");
  EXPECT_DEATH((void)bad.value(), "value\\(\\) of a failed Result");
  EXPECT_DEATH(Result<int>(Status()).status().ignore(), "a Result needs a value or an error");
  EXPECT_DEATH(Status::error(Code::kOk, "fine").ignore(), "an error needs a code other than ok");
}

}  // namespace
}  // namespace ronde::base
