// SPDX-License-Identifier: Apache-2.0
// A member alone, on a board in memory, without an engine: what it announces, what it makes of
// decisions; and the order in which a failure is handled.
#include "runtime/member/member.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/member/stand_watch.h"
#include "runtime/member/submitters.h"
#include "runtime/negotiate/deadlock_watch.h"
#include "test/support/memory_host.h"

namespace ronde::runtime {
namespace {

using base::Code;
using base::Status;

// A rank of a host of two, and what its member has told it.
class OneMember final : private Member::Owner {
 public:
  OneMember(const collectives::Board& board, const base::JobShape& shape, std::int32_t rank)
      : context{board, shape, rank, config, clock, log},
        failure(context, {[this](const auto&) { said += "notify "; },
                          [this](const Status& why) {
                            said += failure.failed() ? "late " : "release ";
                            table.shut(why);
                          },
                          [this](const Status& why) {
                            said += failure.failed() ? "end " : "early ";
                            said += why.message();
                          }}) {}

  LocalTensorPtr submit(const std::string& name) {
    auto tensor = std::make_shared<LocalTensor>();
    tensor->name = name;
    tensor->signature.shape = {4};
    const auto ticket = table.insert(tensor);
    EXPECT_TRUE(ticket.ok()) << ticket.status().to_string();
    if (ticket.ok()) member.announce(*tensor, *ticket, {}, true).ignore();
    return tensor;
  }
  Status decide(const Decision& decision) { return member.on_decision(decision); }

  const base::Config config = base::Config::from_environment({}).value();
  base::ManualClock clock;
  const base::Log log{base::LogLevel::kOff, 0};
  const RankContext context;
  std::string said;
  TensorTable table{context.rank};
  FailurePath failure;
  ControlStreams streams{context, [](bool) {}};
  Member member{context, streams, failure, table, *this};

 private:
  Status on_batch(std::uint64_t sequence, TensorTable::Claimed claimed) override {
    said += "batch " + std::to_string(sequence) + ":";
    for (const auto& tensor : claimed.tensors) said += " " + tensor->name;
    return {};
  }
  void on_failed(const LocalTensorPtr& tensor, const Status& why) override {
    said += tensor->name + ": " + why.message() + ". ";
  }
  void on_all_joined(const LocalTensorPtr&, std::int32_t last) override {
    said += "joined " + std::to_string(last) + " ";
  }
  void on_notice(const NoticeDecision& notice) override { said += notice.text; }
  void on_departed() override { said += "departed"; }
};

class MemberTest : public ::testing::Test {
 protected:
  // What the leader reads next of a rank's stream; empty: nothing.
  std::string read(std::int32_t rank) {
    const auto bytes = readers.at(base::narrow<std::size_t>(rank)).poll().value();
    if (!bytes) return "";
    const auto announced = decode_announcement(*bytes).value();
    const auto* const request = std::get_if<RequestAnnouncement>(&announced);
    if (request != nullptr) return request->name;
    const auto* const stand = std::get_if<StandingAnnouncement>(&announced);
    if (stand == nullptr) return "something else";
    if (!stand->stands) return "goes on";
    return "stands, with " + std::to_string(stand->tensors.size());
  }

  // What the first rank reports in a look a second later.
  std::string look() {
    first.clock.advance(kStandingReported);
    standing.check();
    return read(0);
  }

  const base::JobShape shape = base::JobShape::one_host(2);
  std::vector<collectives::Board> boards = testing::make_memory_boards({.ranks = 2,
                                                                        .announce_bytes = 4096,
                                                                        .decision_bytes = 4096,
                                                                        .entries = 4,
                                                                        .slot_bytes = 128});
  std::vector<collectives::StreamReader> readers{boards[0].announce_reader(0),
                                                 boards[0].announce_reader(1)};
  OneMember first{boards[0], shape, 0};
  OneMember second{boards[1], shape, 1};
  Submitters threads;
  std::optional<base::Instant> beside;  // since when something in no table is waited for
  StandWatch standing{first.context,
                      first.member,
                      threads,
                      {.idle = [] { return true; },
                       .sets = [](auto&) { return true; },
                       .beside = [this] { return beside; },
                       .add_beside = [](auto&, const auto&) { return true; }}};
};

Decision bind_of(const std::string& name) {
  BindDecision bind{.entry = 2, .generation = 0, .name = name, .tensor = {}};
  bind.tensor.signature.shape = {4};
  return bind;
}

TEST_F(MemberTest, WhatIsNewIsRequestedAndWhatIsPlannedIsCounted) {
  first.submit("w");
  EXPECT_EQ(read(0), "w");
  for (OneMember* const each : {&first, &second}) EXPECT_TRUE(each->decide(bind_of("w")).ok());
  EXPECT_TRUE(first.decide(BatchDecision{1, {{.entry = 2, .name = {}, .tensor = {}}}}).ok());
  EXPECT_EQ(first.said, "batch 1: w");
  second.submit("w");  // at the entry that it has learnt of
  EXPECT_EQ(read(1), "");
  EXPECT_EQ(boards[0].arrival(2).count, 1U);
  EXPECT_EQ(boards[0].pop_ready(), std::nullopt);
  EXPECT_EQ(second.member.planned_requests(), 1U);
  EXPECT_EQ(first.member.full_requests(), 1U);
}

TEST_F(MemberTest, TheLastRankThatCountsItselfInReportsTheEntry) {
  for (OneMember* const each : {&first, &second}) {
    EXPECT_TRUE(each->decide(bind_of("w")).ok());
    each->submit("w");
  }
  EXPECT_EQ(boards[0].pop_ready(), 2);
}

TEST_F(MemberTest, ABatchThatIsNotTheNextIsAnError) {
  const Status skipped = first.decide(BatchDecision{2, {{.entry = -1, .name = "w", .tensor = {}}}});
  EXPECT_EQ(skipped.message(), "batch 2 came after batch 0");
}

TEST_F(MemberTest, AnErrorEndsItsTensorAndADepartureEndsAll) {
  first.submit("a");
  first.submit("b");
  EXPECT_TRUE(first.decide(ErrorDecision{.name = "a", .text = "ranks disagree", .place = {}}).ok());
  EXPECT_EQ(first.said, "a: ranks disagree. ");
  first.said.clear();
  EXPECT_TRUE(first.decide(DepartedDecision{1, {}}).ok());
  EXPECT_EQ(first.said, "b: rank 1 has closed its engine, so no operation can complete any more. ");
  first.said.clear();
  EXPECT_TRUE(first.decide(DepartedDecision{0, {}}).ok());
  EXPECT_EQ(first.said, "departed");
  const auto late = std::make_shared<LocalTensor>();
  late->name = "c";
  EXPECT_EQ(first.table.insert(late).status().code(), Code::kClosed);
}

TEST_F(MemberTest, AFailureIsSpreadOnceAndReleasesBeforeItEnds) {
  EXPECT_FALSE(first.failure.check());
  second.failure.fail(Status::error(Code::kDeadline, "too late"), 1);
  EXPECT_TRUE(first.failure.check());
  EXPECT_EQ(first.said, "notify release end too late");
  EXPECT_EQ(first.failure.why().code(), Code::kDeadline);
  EXPECT_TRUE(first.failure.check());
  EXPECT_EQ(first.said, "notify release end too late");
}

// As a receive does whose message comes at once, again and again: each look finds a wait, but never
// the one of the look before.
TEST_F(MemberTest, ARankWithoutTensorsThatWaitsForAnInstantDoesNotStandStill) {
  for (int i = 0; i < 5; ++i) {
    const Submitters::Waiting message(threads);
    EXPECT_EQ(look(), "") << i;
  }
}

TEST_F(MemberTest, ARankWithoutTensorsStandsStillWhereItHasWaitedSinceTheLookBefore) {
  {
    const Submitters::Waiting message(threads);
    EXPECT_EQ(look(), "");
    EXPECT_EQ(look(), "stands, with 0");
    EXPECT_EQ(look(), "stands, with 0");
  }
  EXPECT_EQ(look(), "goes on");
  EXPECT_EQ(look(), "");
}

TEST_F(MemberTest, ARankWithATensorStandsStillAtTheFirstLook) {
  first.submit("w");
  EXPECT_EQ(read(0), "w");
  const Submitters::Waiting wait(threads);
  EXPECT_EQ(look(), "stands, with 1");
}

// Another rank may have been told by a post, or a message, of this one just now.
TEST_F(MemberTest, WhereSomethingIsInNoTableTheLookBeforeCountsToo) {
  first.submit("w");
  EXPECT_EQ(read(0), "w");
  beside = base::kNever;
  const Submitters::Waiting wait(threads);
  EXPECT_EQ(look(), "");
  EXPECT_EQ(look(), "stands, with 1");
}

TEST_F(MemberTest, WhatIsInNoTableIsReportedAfterASecond) {
  beside = first.clock.now();
  {
    const Submitters::Waiting line(threads);
    standing.check();  // the look before
    EXPECT_EQ(read(0), "");
    EXPECT_LE(standing.next(), first.clock.now() + kStandingReported);
    EXPECT_EQ(look(), "stands, with 0");
  }
  standing.check();
  EXPECT_EQ(read(0), "");
  standing.look_soon();  // and says so at once
  standing.check();
  EXPECT_EQ(read(0), "goes on");
}

}  // namespace
}  // namespace ronde::runtime
