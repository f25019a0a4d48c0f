// SPDX-License-Identifier: Apache-2.0
// A negotiator with ranks that receive every decision at once, for the tests of single cases.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/negotiate/negotiator.h"
#include "test/unit/runtime/negotiate/fake_arrival_words.h"

namespace ronde::runtime {

inline const base::Bytes kPlenty{1 << 30};

inline Signature plain(base::Shape shape = {4}) {
  Signature signature;
  signature.shape = std::move(shape);
  return signature;
}

inline Signature gather(std::int64_t rows) {
  Signature signature;
  signature.operation = Operation::kAllgather;
  signature.shape = {rows, 2};
  return signature;
}

// Thread safety: none.
struct Job {
  Job(std::int32_t rank_count, std::int64_t capacity)
      : ranks(rank_count), words(rank_count), negotiator(rank_count, capacity, words) {}

  void request(std::int32_t rank, const std::string& name, const Signature& signature = plain(),
               StepNumber step = {}) {
    negotiator.on_request(rank, {name, "place " + std::to_string(rank), signature, step});
  }

  // False: the entry is closed, or there is none, and the rank has to send a full request.
  bool arrive(std::int32_t rank, const std::string& name, StepNumber step = {}) {
    const auto planned = plan.find(name);
    if (planned == plan.end()) return false;
    const BindDecision& bind = planned->second;
    const auto arrival = words.arrive(rank, bind.entry, bind.generation, step);
    if (arrival == FakeArrivalWords::Arrival::kLast) reports.push_back(bind.entry);
    if (!delay_reports) deliver_reports();
    return arrival != FakeArrivalWords::Arrival::kStale;
  }
  void deliver_reports() {
    for (const std::int32_t entry : std::exchange(reports, {})) negotiator.on_entry_ready(entry);
  }

  // Takes what was decided, and follows the plan.
  std::vector<Decision> decisions() {
    std::vector<Decision> taken = negotiator.take_decisions();
    for (const Decision& decision : taken) {
      if (const auto* bind = std::get_if<BindDecision>(&decision)) plan[bind->name] = *bind;
      if (const auto* evict = std::get_if<EvictDecision>(&decision)) {
        std::erase_if(plan, [&](const auto& row) { return row.second.entry == evict->entry; });
      }
    }
    return taken;
  }

  // The names of the next batch, in order.
  std::vector<std::string> batch(base::Bytes limit = kPlenty) {
    std::vector<std::string> names;
    const auto decided = negotiator.next_batch(limit);
    if (!decided) return names;
    words.all_hear(*decided);
    for (const BatchItem& item : decided->items) {
      if (item.entry < 0) {
        names.push_back(item.name);
        continue;
      }
      for (const auto& [name, bind] : plan) {
        if (bind.entry == item.entry) names.push_back(name);
      }
    }
    return names;
  }

  // Takes a tensor through its first step, so that it is in the plan.
  void bind(const std::string& name, const Signature& signature = plain()) {
    for (std::int32_t rank = 0; rank < ranks; ++rank) request(rank, name, signature);
    (void)decisions();
    EXPECT_TRUE(plan.contains(name));
    EXPECT_EQ(batch(), std::vector<std::string>{name});
  }

  std::int32_t ranks;
  FakeArrivalWords words;
  Negotiator negotiator;
  std::map<std::string, BindDecision> plan;
  bool delay_reports = false;
  std::vector<std::int32_t> reports;
};

}  // namespace ronde::runtime
