// SPDX-License-Identifier: Apache-2.0
// Messages of every kind, for the tests of their encoding: fixed ones and random ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "runtime/negotiate/messages.h"

namespace ronde::runtime {

inline std::int64_t draw(std::mt19937_64& random, std::int64_t from, std::int64_t to) {
  return std::uniform_int_distribution<std::int64_t>(from, to)(random);
}

inline std::string random_text(std::mt19937_64& random) {
  std::string text(static_cast<std::size_t>(draw(random, 0, 20)), ' ');
  for (char& letter : text) letter = static_cast<char>(draw(random, -128, 127));
  return text;
}

inline base::Shape random_shape(std::mt19937_64& random) {
  base::Shape shape;
  for (std::int64_t i = draw(random, 0, 4); i > 0; --i) shape.push_back(draw(random, 0, 1000));
  return shape;
}

inline Signature random_signature(std::mt19937_64& random) {
  Signature signature;
  signature.operation = static_cast<Operation>(draw(random, 0, 5));
  signature.dtype = static_cast<base::DType>(draw(random, 0, 12));
  signature.op = static_cast<base::ReduceOp>(draw(random, 0, 7));
  signature.root = static_cast<std::int32_t>(draw(random, -2, 100));
  signature.device = static_cast<std::int32_t>(draw(random, -1, 8));
  signature.priority = static_cast<std::int32_t>(draw(random, -1000, 1000));
  const double factors[] = {1.0,
                            0.5,
                            -0.0,
                            1e300,
                            std::numeric_limits<double>::quiet_NaN(),
                            std::numeric_limits<double>::infinity()};
  signature.prescale = factors[draw(random, 0, 5)];
  signature.postscale = factors[draw(random, 0, 5)];
  signature.compression = static_cast<base::Compression>(draw(random, 0, 2));
  signature.shape = random_shape(random);
  if (row(signature.operation).has_rows() && signature.shape.empty()) signature.shape = {3};
  if (signature.operation == Operation::kReduceScatter && draw(random, 0, 1) == 0) {
    signature.shape[0] = 0;
    for (std::int64_t i = draw(random, 1, 4); i > 0; --i) {
      signature.splits.push_back(draw(random, 0, 100));
      signature.shape[0] += signature.splits.back();
    }
  }
  if (signature.operation == Operation::kAllreduce && draw(random, 0, 1) == 0) {
    signature.shape = {0};
    for (std::int64_t i = draw(random, 1, 4); i > 0; --i) {
      signature.members.push_back({random_text(random), {draw(random, 0, 99), draw(random, 0, 9)}});
      const base::Shape& shape = signature.members.back().shape;
      signature.shape[0] += shape[0] * shape[1];
    }
  }
  return signature;
}

inline AgreedTensor random_tensor(std::mt19937_64& random) {
  AgreedTensor tensor{random_signature(random), {}};
  if (tensor.signature.operation == Operation::kAllgather) {
    for (std::int64_t i = draw(random, 1, 4); i > 0; --i) {
      tensor.first_dimensions.push_back(draw(random, 0, 1000));
    }
  }
  return tensor;
}

inline std::vector<std::int32_t> random_ranks(std::mt19937_64& random) {
  std::vector<std::int32_t> ranks;
  for (std::int64_t i = draw(random, 0, 4); i > 0; --i) {
    ranks.push_back(static_cast<std::int32_t>(draw(random, -1, 100)));
  }
  return ranks;
}

inline GivenUpAnnouncement random_given_up(std::mt19937_64& random) {
  return {static_cast<base::Code>(draw(random, 1, 11)), random_text(random), random_text(random)};
}

inline Announcement random_announcement(std::mt19937_64& random) {
  switch (draw(random, 0, 7)) {
    case 0:
      return RequestAnnouncement{random_text(random), random_text(random), random_signature(random),
                                 StepNumber::of_word(random())};
    case 1:
      return ClosingAnnouncement{draw(random, 0, 1) == 1, StepNumber::of_word(random())};
    case 2:
      return SetAnnouncement{random_text(random), random_ranks(random),
                             random_text(random), draw(random, -1, 1'000'000'000),
                             random_text(random), draw(random, 0, 1'000'000'000)};
    case 3:
      return SetEndedAnnouncement{static_cast<std::int32_t>(draw(random, -1, 100))};
    case 4: {
      StandingAnnouncement standing{.stands = draw(random, 0, 1) == 1,
                                    .moves = random(),
                                    .batches = random(),
                                    .more = draw(random, 0, 1000)};
      for (std::int64_t i = draw(random, 0, 3); i > 0; --i) {
        standing.tensors.push_back({random_text(random), random_text(random)});
        standing.sets.push_back({static_cast<std::int32_t>(draw(random, -1, 100)), random()});
      }
      return standing;
    }
    case 5:
      return random_given_up(random);
    case 6:
      return FrameAnnouncement{static_cast<std::int32_t>(draw(random, -1, 100)),
                               static_cast<std::int32_t>(draw(random, -1, 100)),
                               static_cast<std::int32_t>(draw(random, -1, 100)),
                               std::vector<std::byte>(random() % 20, std::byte{7})};
    default: {
      StalledAnnouncement stalled{{}, draw(random, 0, 1) == 1, draw(random, 0, 1) == 1};
      stalled.own_deadline = draw(random, 0, 1) == 1;
      for (std::int64_t i = draw(random, 0, 3); i > 0; --i) {
        stalled.tensors.push_back({random_text(random), draw(random, -5, 1'000'000'000'000)});
      }
      return stalled;
    }
  }
}

inline Decision random_decision(std::mt19937_64& random) {
  const auto entry = static_cast<std::int32_t>(draw(random, 0, 1 << 20));
  switch (draw(random, 0, 10)) {
    case 0:
      return BindDecision{entry, static_cast<std::uint32_t>(draw(random, 0, 0xFFFFFFFF)),
                          random_text(random), random_tensor(random)};
    case 1:
      return EvictDecision{entry};
    case 2:
      return ErrorDecision{random_text(random), static_cast<base::Code>(draw(random, 1, 11)),
                           random_text(random), random_text(random),
                           static_cast<std::int32_t>(draw(random, -1, 100))};
    case 3:
      return NoticeDecision{random_text(random), draw(random, 0, 1) == 1};
    case 4: {
      BatchDecision batch;
      batch.sequence = random();
      for (std::int64_t i = draw(random, 0, 5); i > 0; --i) {
        BatchItem item;
        item.entry = static_cast<std::int32_t>(draw(random, -1, 100));
        if (item.entry < 0) item = {-1, random_text(random), random_tensor(random)};
        batch.items.push_back(std::move(item));
      }
      return batch;
    }
    case 5:
      return SetDecision{entry, random_text(random), random_ranks(random),
                         std::vector<std::int64_t>(3, draw(random, -1, 1'000'000'000))};
    case 6:
      return SetRefusedDecision{random_text(random),
                                random_ranks(random),
                                static_cast<base::Code>(draw(random, 1, 11)),
                                random_text(random),
                                random_text(random),
                                static_cast<std::int32_t>(draw(random, -1, 100))};
    case 7:
      return SetEndedDecision{entry};
    case 8:
      return FrameDecision{entry, entry, entry,
                           std::vector<std::byte>(random() % 20, std::byte{7})};
    case 9:
      return GivenUpDecision{static_cast<std::int32_t>(draw(random, -1, 100)),
                             random_given_up(random)};
    default:
      return DepartedDecision{entry, StepNumber::of_word(random()), draw(random, 0, 1) == 0};
  }
}

}  // namespace ronde::runtime
