// SPDX-License-Identifier: Apache-2.0
// The arrival words over plain arrays, and the ranks' side of them, so that the negotiator is
// tested without a board. It keeps exactly what the interface promises, and fails the test when the
// negotiator breaks a promise in return.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "runtime/negotiate/negotiator.h"

namespace ronde::runtime {

// Thread safety: none.
class FakeArrivalWords final : public ArrivalWords {
 public:
  enum class Arrival { kArrived, kLast, kStale };

  explicit FakeArrivalWords(std::int32_t ranks)
      : ranks_(base::narrow<std::size_t>(ranks)), expected_(ranks_) {}

  // A rank counts itself in; kLast: it must report the entry.
  Arrival arrive(std::int32_t rank, std::int32_t entry, std::uint32_t generation,
                 StepNumber step = {}) {
    Word& word = at(entry);
    if (word.generation != generation) return Arrival::kStale;
    ++word.count;
    word.steps[base::narrow<std::size_t>(rank)] = step;
    word.marks[base::narrow<std::size_t>(rank)] = {generation,
                                                   word.heard[base::narrow<std::size_t>(rank)]};
    EXPECT_LE(word.count, expected_) << "entry " << entry << " was not reset";
    return word.count == expected_ ? Arrival::kLast : Arrival::kArrived;
  }

  std::uint32_t close_generation(std::int32_t entry, std::uint32_t generation) override {
    if (before_close) before_close(entry);
    Word& word = at(entry);
    EXPECT_GT(generation, word.generation) << "a generation of entry " << entry << " comes again";
    word.generation = generation;
    return std::exchange(word.count, 0);
  }
  void reset(std::int32_t entry) override {
    Word& word = at(entry);
    EXPECT_EQ(word.count, expected_) << "reset of entry " << entry << ", which is not complete";
    word.count = 0;
  }
  std::uint32_t count(std::int32_t entry) override { return at(entry).count; }
  // A closed generation still knows who had arrived at it; older ones are forgotten.
  bool has_arrived(std::int32_t rank, std::int32_t entry, std::uint64_t last_batch) override {
    if (base::narrow<std::size_t>(rank) >= ranks_) return false;  // a rank of another host
    const Word& word = at(entry);
    const auto& mark = word.marks[base::narrow<std::size_t>(rank)];
    return mark && mark->heard >= last_batch &&
           (mark->generation == word.generation || mark->generation + 1 == word.generation);
  }

  StepSpan steps(std::int32_t entry, const Joined& joined) override {
    EXPECT_EQ(at(entry).count, expected_) << "entry " << entry << " is not complete";
    StepSpan steps;
    for (std::int32_t rank = 0; std::cmp_less(rank, ranks_); ++rank) {
      if (joined.has(rank)) continue;
      steps.add(rank, step_of(rank, entry));
    }
    return steps;
  }
  ArrivalSpan arrivals(std::int32_t entry, const Joined& joined) override {
    ArrivalSpan arrivals;
    for (std::int32_t rank = 0; std::cmp_less(rank, ranks_); ++rank) {
      if (!joined.has(rank)) arrivals.add(rank, times[{rank, entry}]);
    }
    return arrivals;
  }
  StepNumber step_of(std::int32_t rank, std::int32_t entry) override {
    if (base::narrow<std::size_t>(rank) >= ranks_) return {};
    return at(entry).steps[base::narrow<std::size_t>(rank)];
  }

  // The rank receives a batch, and may then arrive at its entries again.
  void hear(std::int32_t rank, const BatchDecision& batch) {
    for (const BatchItem& item : batch.items) {
      if (item.entry < 0) continue;
      at(item.entry).heard[base::narrow<std::size_t>(rank)] = batch.sequence;
    }
  }
  void all_hear(const BatchDecision& batch) {
    for (std::int32_t rank = 0; std::cmp_less(rank, ranks_); ++rank) hear(rank, batch);
  }

  [[nodiscard]] std::string text() const {
    std::ostringstream text;
    for (const auto& [entry, word] : words_) {
      text << entry << ':' << word.generation << '/' << word.count;
      for (std::int32_t rank = 0; std::cmp_less(rank, ranks_); ++rank) {
        const auto& mark = word.marks[base::narrow<std::size_t>(rank)];
        text << ',';
        if (!mark) continue;
        text << mark->generation
             << (word.heard[base::narrow<std::size_t>(rank)] == mark->heard ? "" : "old");
      }
      text << ' ';
    }
    return text.str();
  }

  // So many ranks arrive from now on: the others have joined. The negotiator has closed all
  // entries.
  void expect(std::size_t ranks) { expected_ = ranks; }

  // When ranks have arrived, by rank and entry.
  std::map<std::pair<std::int32_t, std::int32_t>, ArrivalTime> times;

  // Runs when the negotiator closes a generation, just before it is closed: what other ranks do
  // between the negotiator's look at a count and its next step.
  std::function<void(std::int32_t entry)> before_close;

 private:
  struct Mark {
    std::uint32_t generation = 0;
    std::uint64_t heard = 0;
  };
  struct Word {
    std::uint32_t generation = 0;
    std::uint32_t count = 0;
    std::vector<std::optional<Mark>> marks;  // by rank
    std::vector<std::uint64_t> heard;        // by rank: the last batch with this entry
    std::vector<StepNumber> steps;           // by rank
  };
  Word& at(std::int32_t entry) {
    Word& word = words_[entry];
    word.marks.resize(ranks_);
    word.heard.resize(ranks_);
    word.steps.resize(ranks_);
    return word;
  }

  std::size_t ranks_;
  std::size_t expected_;
  std::map<std::int32_t, Word> words_;
};

}  // namespace ronde::runtime
