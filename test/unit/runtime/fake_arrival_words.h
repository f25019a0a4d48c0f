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
#include "runtime/negotiator.h"

namespace ronde::runtime {

// Thread safety: none.
class FakeArrivalWords final : public ArrivalWords {
 public:
  enum class Arrival { kArrived, kLast, kStale };

  explicit FakeArrivalWords(std::int32_t ranks) : ranks_(base::narrow<std::size_t>(ranks)) {}

  // A rank counts itself in; kLast: it must report the entry.
  Arrival arrive(std::int32_t rank, std::int32_t entry, std::uint32_t generation) {
    Word& word = at(entry);
    if (word.generation != generation) return Arrival::kStale;
    ++word.count;
    word.arrived_at[base::narrow<std::size_t>(rank)] = generation;
    EXPECT_LE(word.count, ranks_) << "entry " << entry << " was not reset";
    return word.count == ranks_ ? Arrival::kLast : Arrival::kArrived;
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
    EXPECT_EQ(word.count, ranks_) << "reset of entry " << entry << ", which is not complete";
    word.count = 0;
    word.arrived_at.assign(ranks_, std::nullopt);
  }
  std::uint32_t count(std::int32_t entry) override { return at(entry).count; }
  // A closed generation still knows who had arrived at it; older ones are forgotten.
  bool has_arrived(std::int32_t rank, std::int32_t entry) override {
    if (base::narrow<std::size_t>(rank) >= ranks_) return false;  // of another host
    const Word& word = at(entry);
    const auto& arrived_at = word.arrived_at[base::narrow<std::size_t>(rank)];
    return arrived_at && (*arrived_at == word.generation || *arrived_at + 1 == word.generation);
  }

  [[nodiscard]] std::string text() const {
    std::ostringstream text;
    for (const auto& [entry, word] : words_) {
      text << entry << ':' << word.generation << '/' << word.count;
      for (const auto& arrived_at : word.arrived_at) {
        text << ',' << (arrived_at ? std::to_string(*arrived_at) : "-");
      }
      text << ' ';
    }
    return text.str();
  }

  // Runs when the negotiator closes a generation, just before it is closed: what other ranks do
  // between the negotiator's look at a count and its next step.
  std::function<void(std::int32_t entry)> before_close;

 private:
  struct Word {
    std::uint32_t generation = 0;
    std::uint32_t count = 0;
    std::vector<std::optional<std::uint32_t>> arrived_at;
  };
  Word& at(std::int32_t entry) {
    Word& word = words_[entry];
    word.arrived_at.resize(ranks_);
    return word;
  }

  std::size_t ranks_;
  std::map<std::int32_t, Word> words_;
};

}  // namespace ronde::runtime
