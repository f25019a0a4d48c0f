// SPDX-License-Identifier: Apache-2.0
// Hashes of what the ranks hold, compared.
#include "bindings/trainer/optim/replicas.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

std::string grouped_by_value(const std::vector<std::string>& value_by_rank) {
  std::vector<std::string> groups;
  for (std::size_t first = 0; first < value_by_rank.size(); ++first) {
    const std::string& value = value_by_rank[first];
    const auto begin = value_by_rank.begin();
    if (std::find(begin, begin + static_cast<std::ptrdiff_t>(first), value) !=
        begin + static_cast<std::ptrdiff_t>(first)) {
      continue;
    }
    std::string ranks;
    for (std::size_t rank = first; rank < value_by_rank.size(); ++rank) {
      if (value_by_rank[rank] != value) continue;
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    }
    groups.push_back(value + (ranks.find(',') == std::string::npos ? " on rank " : " on ranks ") +
                     ranks);
  }
  std::string text;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (i > 0) text += i + 1 == groups.size() ? " and " : ", ";
    text += groups[i];
  }
  return text;
}

// Each step is reversible, so that two hashes of numbers that differ in one word differ. Eight
// chains side by side, since each step of one waits for the one before.
std::uint64_t hash_of(std::span<const float> values) {
  std::array<std::uint64_t, 8> chains{};
  const auto mix = [](std::uint64_t& hash, std::uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 32U;
  };
  std::array<std::uint64_t, 8> words{};
  constexpr std::size_t kBlock = sizeof words / sizeof(float);
  const std::size_t whole = values.size() / kBlock * kBlock;
  for (std::size_t at = 0; at < whole; at += kBlock) {
    std::memcpy(words.data(), values.data() + at, sizeof words);
    for (std::size_t i = 0; i < words.size(); ++i) mix(chains[i], words[i]);
  }
  words = {};
  std::ranges::copy(std::as_bytes(values.subspan(whole)),
                    std::as_writable_bytes(std::span(words)).begin());
  std::uint64_t hash = values.size();
  for (const std::uint64_t word : words) mix(hash, word);
  for (const std::uint64_t chain : chains) mix(hash, chain);
  return hash;
}

std::string difference_of(Engine& engine, std::span<const StateTensor> tensors) {
  std::vector<std::uint64_t> mine;
  for (const StateTensor& tensor : tensors) mine.push_back(hash_of(tensor.values));
  const auto all = engine.allgather_blocking("replicas/tensors", mine);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::vector<std::string> hashes;
    for (std::size_t at = i; at < all.size(); at += tensors.size()) {
      char text[17];
      std::snprintf(text, sizeof text, "%016" PRIx64, all[at]);
      hashes.emplace_back(text);
    }
    if (std::ranges::count(hashes, hashes.front()) == std::ssize(hashes)) continue;
    return tensors[i].name + " is " + grouped_by_value(hashes);
  }
  return "";
}

void require_listed(const Tape& tape, std::span<Parameter* const> parameters,
                    std::span<const StateTensor> statistics) {
  const auto require = [](const std::vector<std::string>& unlisted, const char* list,
                          const char* consequence) {
    if (unlisted.empty()) return;
    std::string names;
    for (const std::string& name : unlisted) names += (names.empty() ? "" : ", ") + name;
    throw TrainerError(names + (unlisted.size() == 1 ? " is" : " are") +
                           " used but not listed by " + list + ": " + consequence,
                       kExitConfiguration);
  };
  std::vector<std::string> unlisted;
  for (const Parameter* const used : tape.used_parameters()) {
    const auto found = std::ranges::find(parameters, used);
    if (found == parameters.end()) unlisted.push_back(used->name());
  }
  require(
      unlisted, "parameters()",
      "it would neither be trained nor be the same on all ranks; list it there, before the model "
      "and the optimiser are made");
  for (const StateTensor& used : tape.used_statistics()) {
    const auto is_used = [&](const StateTensor& one) {
      return one.values.data() == used.values.data();
    };
    if (std::ranges::none_of(statistics, is_used)) unlisted.push_back(used.name);
  }
  require(unlisted, "statistics()",
          "it would neither be the same on all ranks nor be saved; give the model a public "
          "statistics(), and the optimiser what it lists");
}

}  // namespace ronde::trainer
