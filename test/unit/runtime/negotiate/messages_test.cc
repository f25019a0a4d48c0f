// SPDX-License-Identifier: Apache-2.0
// The bytes of announcements and decisions: what goes in comes out, and nothing else comes in.
#include "runtime/negotiate/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "test/unit/runtime/negotiate/sample_messages.h"

namespace ronde::runtime {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Signature some_signature() {
  Signature signature;
  signature.operation = Operation::kBroadcast;
  signature.dtype = base::DType::kBf16;
  signature.op = base::ReduceOp::kMax;
  signature.root = 3;
  signature.device = 2;
  signature.priority = -7;
  signature.prescale = 0.5;
  signature.postscale = 0.25;
  signature.compression = base::Compression::kF16;
  signature.shape = {2, 0, 5};
  return signature;
}

Signature some_group() {
  Signature signature = some_signature();
  signature.shape = {7};
  signature.members = {{"a", {2, 0}}, {"b", {}}, {"", {3, 2}}};
  return signature;
}

Signature some_splits() {
  Signature signature = some_signature();
  signature.operation = Operation::kReduceScatter;
  signature.splits = {0, 2, 0};
  return signature;
}

template <typename T>
T again(const T& value) {
  if constexpr (std::is_constructible_v<Announcement, T>) {
    const auto decoded = decode_announcement(encode(Announcement(value)));
    EXPECT_TRUE(decoded.ok()) << decoded.status().to_string();
    return std::get<T>(*decoded);
  } else {
    const auto decoded = decode_decision(encode(Decision(value)));
    EXPECT_TRUE(decoded.ok()) << decoded.status().to_string();
    return std::get<T>(*decoded);
  }
}

void expect_same(const Signature& a, const Signature& b) {
  EXPECT_TRUE(a == b) << describe(a) << " against " << describe(b);
  EXPECT_EQ(a.priority, b.priority);
}

TEST(Messages, AnnouncementsComeOutAsTheyWentIn) {
  const std::string odd("line\n\0\xff", 7);
  const auto request = again(RequestAnnouncement{odd, "train.cc:40", some_signature()});
  EXPECT_EQ(request.name, odd);
  EXPECT_EQ(request.place, "train.cc:40");
  expect_same(request.signature, some_signature());
  for (const Signature& signature : {some_group(), some_splits()}) {
    expect_same(again(RequestAnnouncement{"w", "", signature}).signature, signature);
  }
  EXPECT_TRUE(again(ClosingAnnouncement{true}).forced);
  EXPECT_FALSE(again(ClosingAnnouncement{false}).forced);
  const auto stalled =
      again(StalledAnnouncement{{{"w", 31'000'000'000}, {odd, 30'000'000'000}}, false, true});
  ASSERT_EQ(stalled.tensors.size(), 2U);
  EXPECT_EQ(stalled.tensors[0].name, "w");
  EXPECT_EQ(stalled.tensors[0].waited_ns, 31'000'000'000);
  EXPECT_EQ(stalled.tensors[1].name, odd);
  EXPECT_FALSE(stalled.in_batch);
  EXPECT_TRUE(stalled.failed);
  EXPECT_TRUE(again(StalledAnnouncement{{}, true, false}).in_batch);
  EXPECT_FALSE(stalled.own_deadline);
  EXPECT_TRUE(again(StalledAnnouncement{{}, false, true, true}).own_deadline);
  const auto standing = again(StandingAnnouncement{true, 7, 8, {{"w", "a.cc:1"}, {odd, ""}}, 9});
  EXPECT_TRUE(standing.stands);
  EXPECT_EQ(standing.moves, 7U);
  EXPECT_EQ(standing.batches, 8U);
  ASSERT_EQ(standing.tensors.size(), 2U);
  EXPECT_EQ(standing.tensors[0].place, "a.cc:1");
  EXPECT_EQ(standing.tensors[1].name, odd);
  EXPECT_EQ(standing.more, 9);
}

TEST(Messages, DecisionsComeOutAsTheyWentIn) {
  Signature gathered = some_signature();
  gathered.operation = Operation::kAllgather;
  const AgreedTensor tensor{gathered, {2, 0, 7}};
  const auto bind = again(BindDecision{5, 0xFFFFFFFFU, "w", tensor});
  EXPECT_EQ(bind.entry, 5);
  EXPECT_EQ(bind.generation, 0xFFFFFFFFU);
  EXPECT_EQ(bind.name, "w");
  EXPECT_EQ(bind.tensor, tensor);
  EXPECT_EQ(again(EvictDecision{9}).entry, 9);
  const auto error = again(ErrorDecision{"w", base::Code::kMismatch, "text", "place", 2});
  EXPECT_EQ(error.name, "w");
  EXPECT_EQ(error.code, base::Code::kMismatch);
  EXPECT_EQ(error.text, "text");
  EXPECT_EQ(error.place, "place");
  EXPECT_EQ(error.rank, 2);
  const auto notice = again(NoticeDecision{"text", true});
  EXPECT_EQ(notice.text, "text");
  EXPECT_TRUE(notice.in_batch);
  EXPECT_EQ(again(DepartedDecision{3}).rank, 3);
  BatchDecision batch;
  batch.sequence = 1ULL << 40;
  batch.items.push_back({4, {}, {}});
  batch.items.push_back({-1, "unplanned", tensor});
  const auto batched = again(batch);
  EXPECT_EQ(batched.sequence, 1ULL << 40);
  ASSERT_EQ(batched.items.size(), 2U);
  EXPECT_EQ(batched.items[0].entry, 4);
  EXPECT_EQ(batched.items[1].entry, -1);
  EXPECT_EQ(batched.items[1].name, "unplanned");
  EXPECT_EQ(batched.items[1].tensor, tensor);
}

TEST(Messages, AnEntryOfThePlanCostsFourBytes) {
  BatchDecision batch;
  const std::size_t empty = encode(Decision(batch)).size();
  for (std::int32_t i = 0; i < 100; ++i) batch.items.push_back({i, {}, {}});
  EXPECT_EQ(encode(Decision(batch)).size(), empty + 400);
}

TEST(Messages, RandomOnesEncodeTheSameAgain) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 5000; ++i) {
    const Bytes announced = encode(random_announcement(random));
    const auto announcement = decode_announcement(announced);
    ASSERT_TRUE(announcement.ok()) << announcement.status().to_string();
    EXPECT_EQ(encode(*announcement), announced);
    const Bytes decided = encode(random_decision(random));
    const auto decision = decode_decision(decided);
    ASSERT_TRUE(decision.ok()) << decision.status().to_string();
    EXPECT_EQ(encode(*decision), decided);
  }
}

TEST(Messages, EveryTruncationAndEveryExtraByteIsRefused) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 300; ++i) {
    Bytes announced = encode(random_announcement(random));
    Bytes decided = encode(random_decision(random));
    announced.push_back(std::byte{0});
    decided.push_back(std::byte{0});
    EXPECT_FALSE(decode_announcement(announced).ok());
    EXPECT_FALSE(decode_decision(decided).ok());
    for (std::size_t length = 0; length + 1 < announced.size(); ++length) {
      EXPECT_FALSE(decode_announcement(std::span(announced).first(length)).ok()) << length;
    }
    for (std::size_t length = 0; length + 1 < decided.size(); ++length) {
      EXPECT_FALSE(decode_decision(std::span(decided).first(length)).ok()) << length;
    }
  }
}

TEST(Messages, TheErrorSaysWhatAndWhere) {
  const Bytes nothing;
  const auto status = decode_decision(nothing).status();
  EXPECT_EQ(status.code(), base::Code::kInternal);
  EXPECT_EQ(status.message(),
            "control message of 0 bytes is damaged: it has an early end at byte 0");
  Bytes longer = encode(Decision(EvictDecision{1}));
  longer.push_back(std::byte{1});
  EXPECT_THAT(decode_decision(longer).status().message(),
              HasSubstr("more bytes than the message needs at byte 5"));
}

TEST(Messages, AnAnnouncementIsNoDecisionAndTheOtherWayRound) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    EXPECT_FALSE(decode_decision(encode(random_announcement(random))).ok());
    EXPECT_FALSE(decode_announcement(encode(random_decision(random))).ok());
  }
}

// Sets one byte of a message.
Bytes with(Bytes bytes, std::size_t at, unsigned value) {
  bytes.at(at) = static_cast<std::byte>(value);
  return bytes;
}

TEST(Messages, ValuesThatNothingEncodesAreRefused) {
  EXPECT_FALSE(decode_announcement(with(encode(Announcement(ClosingAnnouncement{})), 1, 2)).ok());
  const Bytes request = encode(Announcement(RequestAnnouncement{"", "", some_signature()}));
  ASSERT_TRUE(decode_announcement(request).ok());
  constexpr std::size_t kSignature = 9;  // after the kind and two empty texts
  EXPECT_THAT(decode_announcement(with(request, kSignature, 7)).status().message(),
              HasSubstr("an unknown operation"));
  EXPECT_THAT(decode_announcement(with(request, kSignature + 1, 13)).status().message(),
              HasSubstr("an unknown dtype"));
  EXPECT_THAT(decode_announcement(with(request, kSignature + 2, 8)).status().message(),
              HasSubstr("reduce operation"));
  EXPECT_THAT(decode_announcement(with(request, kSignature + 31, 3)).status().message(),
              HasSubstr("an unknown compression"));
  const Bytes error = encode(Decision(ErrorDecision{"", base::Code::kMismatch, "", "", 0}));
  EXPECT_FALSE(decode_decision(with(error, 5, 0)).ok());
  EXPECT_FALSE(decode_decision(with(error, 5, 12)).ok());
  EXPECT_FALSE(decode_decision(with(error, 8, 0x80)).ok());
}

TEST(Messages, ShapesWithoutASizeAreRefused) {
  for (const base::Shape& shape :
       {base::Shape{-1}, base::Shape{1LL << 62}, base::Shape{1LL << 40, 1LL << 40}}) {
    Signature signature;
    signature.shape = shape;
    EXPECT_THAT(decode_announcement(encode(Announcement(RequestAnnouncement{"w", "", signature})))
                    .status()
                    .message(),
                HasSubstr("a shape without a size"));
    Signature group;
    group.members = {{"fine", {1}}, {"not", shape}};
    EXPECT_THAT(decode_announcement(encode(Announcement(RequestAnnouncement{"w", "", group})))
                    .status()
                    .message(),
                HasSubstr("a shape without a size"));
  }
}

TEST(Messages, PartsThatDoNotBelongToEachOtherAreRefused) {
  const auto refusal = [](const Signature& signature) {
    return decode_announcement(encode(Announcement(RequestAnnouncement{"w", "", signature})))
        .status()
        .message();
  };
  for (const std::vector<std::int64_t>& splits :
       {std::vector<std::int64_t>{1, 2}, std::vector<std::int64_t>{3, -1},
        std::vector<std::int64_t>{1LL << 62, 1LL << 62, 1LL << 62, 1LL << 62, 2}}) {
    Signature signature = some_splits();
    signature.splits = splits;
    EXPECT_THAT(refusal(signature), HasSubstr("splits that do not add up to the rows"));
  }
  for (const base::Shape& shape : {base::Shape{6}, base::Shape{}, base::Shape{7, 1}}) {
    Signature signature = some_group();
    signature.shape = shape;
    EXPECT_THAT(refusal(signature), HasSubstr("a group of another size than its members"));
  }
  for (const Operation operation :
       {Operation::kAllgather, Operation::kReduceScatter, Operation::kAllToAll}) {
    Signature signature;
    signature.operation = operation;
    EXPECT_THAT(refusal(signature), HasSubstr("rows without a dimension"));
  }
}

// payload_of() relies on this check, because it adds up the rows of all ranks without one.
TEST(Messages, RowsWithoutASizeAreRefused) {
  Signature signature;
  signature.operation = Operation::kAllgather;
  signature.shape = {1, 2};
  for (const std::vector<std::int64_t>& rows :
       {std::vector<std::int64_t>{1, -1}, std::vector<std::int64_t>{1LL << 62, 1LL << 62},
        std::vector<std::int64_t>{1LL << 61, 1}}) {
    const BindDecision bind{0, 1, "g", {signature, rows}};
    EXPECT_FALSE(decode_decision(encode(Decision(bind))).ok());
    BatchDecision batch;
    batch.items.push_back({-1, "g", {signature, rows}});
    EXPECT_FALSE(decode_decision(encode(Decision(batch))).ok());
  }
}

// A length of four thousand million must be refused before memory is asked for.
TEST(Messages, LengthsBeyondTheMessageAreRefused) {
  Bytes notice = encode(Decision(NoticeDecision{"text", false}));
  for (std::size_t i = 1; i < 5; ++i) notice[i] = std::byte{0xFF};
  EXPECT_THAT(decode_decision(notice).status().message(), HasSubstr("an early end"));
  // The last three lengths of a request are those of shape, splits and members; its step
  // and the text about what is not finite follow.
  const Bytes request = encode(Announcement(RequestAnnouncement{"", "", {}}));
  for (const std::size_t from_end : {24U, 20U, 16U}) {
    Bytes longer = request;
    for (std::size_t i = 0; i < 4; ++i) longer[longer.size() - from_end + i] = std::byte{0xFF};
    EXPECT_THAT(decode_announcement(longer).status().message(),
                HasSubstr(from_end == 16 ? "a group that is longer than the message"
                                         : "a list that is longer than the message"));
  }
  Bytes batch = encode(Decision(BatchDecision{}));
  for (std::size_t i = batch.size() - 4; i < batch.size(); ++i) batch[i] = std::byte{0xFF};
  EXPECT_FALSE(decode_decision(batch).ok());
}

}  // namespace
}  // namespace ronde::runtime
