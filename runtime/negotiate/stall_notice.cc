// SPDX-License-Identifier: Apache-2.0
// How late tensors are grouped, compared and put into words. What is compared pair by pair is
// bounded, because the coordinator does it between two steps.
#include "runtime/negotiate/stall_notice.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <map>
#include <utility>

#include "base/text.h"
#include "runtime/tensors/signature.h"

namespace ronde::runtime {

namespace {

using Ranks = std::vector<std::int32_t>;

constexpr std::size_t kMostGroupsCompared = 16;
constexpr std::size_t kMostNamesCompared = 64;  // of each group
constexpr std::size_t kMostAlike = 3;
constexpr std::size_t kMostGroupsNamed = 3;
constexpr std::size_t kMostLettersCompared = 64;  // after what both begin and end with

std::optional<std::int32_t> first_in_both(const Ranks& one, const Ranks& other) {
  for (const std::int32_t rank : one) {
    if (std::binary_search(other.begin(), other.end(), rank)) return rank;
  }
  return std::nullopt;
}

bool cross(const StalledTensor& one, const StalledTensor& other) {
  return first_in_both(one.ready, other.missing) && first_in_both(other.ready, one.missing);
}

// How many letters must be left out, added, changed or swapped with their neighbour to make one of
// the other; more than `most`: at least that many. Only cells that are at most `most` off the
// diagonal can lead to so few.
std::size_t distance(std::string_view one, std::string_view other, std::size_t most) {
  using Row = std::array<std::size_t, kMostLettersCompared + 1>;
  std::array<Row, 3> rows{};
  for (std::size_t i = 0; i <= one.size(); ++i) {
    Row& row = rows.at(i % 3);
    const Row& last = rows.at((i + 2) % 3);
    const Row& before_last = rows.at((i + 1) % 3);
    const std::size_t low = i > most ? i - most : 0;
    const std::size_t high = std::min(other.size(), i + most);
    if (low > 0) row[low - 1] = most + 1;
    if (high < other.size()) row[high + 1] = most + 1;
    for (std::size_t j = low; j <= high; ++j) {
      if (i == 0 || j == 0) {
        row[j] = i + j;
        continue;
      }
      const bool same = one[i - 1] == other[j - 1];
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return rows.at(one.size() % 3)[other.size()];
}

// The tensor that the lower rank has submitted comes first, whoever reported first.
StallVerdict::Pair in_order(std::span<const StalledTensor> late, std::size_t one,
                            std::size_t other) {
  const auto mine = first_in_both(late[one].ready, late[other].missing);
  const auto theirs = first_in_both(late[other].ready, late[one].missing);
  if (mine < theirs) return {one, other};
  return {other, one};
}

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

// In lower case, with one sign for all punctuation.
std::string folded(std::string_view name) {
  std::string result(name);
  for (char& letter : result) {
    const auto code = static_cast<unsigned char>(letter);
    if (std::ispunct(code) != 0) letter = '.';
    if (std::isupper(code) != 0) letter = static_cast<char>(std::tolower(code));
  }
  return result;
}

// Digits alone, with a blank wherever there are other letters in between.
std::string numbers_of(std::string_view name) {
  std::string result;
  for (const char letter : name) {
    if (is_digit(letter)) {
      result += letter;
    } else if (!result.empty() && result.back() != ' ') {
      result += ' ';
    }
  }
  if (!result.empty() && result.back() == ' ') result.pop_back();
  return result;
}

// A name in the form in which it is compared.
struct FoldedName {
  explicit FoldedName(std::string_view name)
      : letters(folded(name)),
        numbers(numbers_of(name)),
        most(std::min<std::size_t>(letters.size() / 6, 2)) {}
  std::string letters;
  std::string numbers;
  std::size_t most;  // letters that may differ
};

// What can be told without comparing their letters.
bool may_be_nearly_equal(const FoldedName& one, const FoldedName& other) {
  const std::size_t longer = std::max(one.letters.size(), other.letters.size());
  const std::size_t shorter = std::min(one.letters.size(), other.letters.size());
  return longer - shorter <= std::min(one.most, other.most) && one.numbers == other.numbers;
}

// For names that may be.
bool nearly_equal(const FoldedName& one, const FoldedName& other) {
  const std::string_view first = one.letters;
  const std::string_view second = other.letters;
  if (first == second) return true;
  const std::size_t shorter = std::min(first.size(), second.size());
  std::size_t head = 0;
  while (head < shorter && first[head] == second[head]) ++head;
  std::size_t tail = 0;
  while (tail < shorter - head &&
         first[first.size() - 1 - tail] == second[second.size() - 1 - tail]) {
    ++tail;
  }
  const std::string_view a = first.substr(head, first.size() - head - tail);
  const std::string_view b = second.substr(head, second.size() - head - tail);
  if (std::max(a.size(), b.size()) > kMostLettersCompared) return false;
  const std::size_t most = std::min(one.most, other.most);
  return distance(a, b, most) <= most;
}

// Finds nearly equal names of two groups. It folds each name once, and compares at most
// kMostNamesPaired pairs in all.
class NameSearch {
 public:
  using Groups = std::vector<std::vector<std::size_t>>;
  NameSearch(std::span<const StalledTensor> late, const Groups& groups)
      : late_(late), groups_(groups) {}

  std::vector<StallVerdict::Pair> alike(std::size_t group, std::size_t other, std::size_t most) {
    std::vector<StallVerdict::Pair> pairs;
    const std::vector<FoldedName>& ours = names_of(group);
    const std::vector<FoldedName>& theirs = names_of(other);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      for (std::size_t j = 0; j < theirs.size(); ++j) {
        if (pairs.size() == most) return pairs;
        if (!may_be_nearly_equal(ours[i], theirs[j])) continue;
        if (paired_ == kMostNamesPaired) return pairs;
        ++paired_;
        if (nearly_equal(ours[i], theirs[j])) {
          pairs.push_back(in_order(late_, groups_[group][i], groups_[other][j]));
        }
      }
    }
    return pairs;
  }
  [[nodiscard]] std::size_t paired() const { return paired_; }

 private:
  const std::vector<FoldedName>& names_of(std::size_t group) {
    std::vector<FoldedName>& names = names_[group];
    if (!names.empty()) return names;
    const std::size_t count = std::min(groups_[group].size(), kMostNamesCompared);
    for (std::size_t i = 0; i < count; ++i) names.emplace_back(late_[groups_[group][i]].name);
    return names;
  }

  std::span<const StalledTensor> late_;
  const Groups& groups_;
  std::map<std::size_t, std::vector<FoldedName>> names_;
  std::size_t paired_ = 0;
};

std::string group_phrase(std::span<const StalledTensor> late, const std::vector<std::size_t>& group,
                         const PlaceOf& place_of) {
  const StalledTensor& first = late[group.front()];
  base::Nanoseconds longest = first.waited;
  base::Nanoseconds shortest = first.waited;
  for (const std::size_t index : group) {
    longest = std::max(longest, late[index].waited);
    shortest = std::min(shortest, late[index].waited);
  }
  const std::string text = late_phrase(first.name, group.size(), longest, shortest);
  if (first.missing.empty()) {
    return text + ": a rank may have stopped in the middle of submitting " +
           (group.size() == 1 ? "it" : "them");
  }
  return text + " for " + base::ranks_phrase(first.missing) + place_of(first.missing) +
         ", submitted on " + base::ranks_phrase(first.ready);
}

}  // namespace

base::Nanoseconds gathering_time(const base::Config& config) {
  return std::min<base::Nanoseconds>(config.stall_warning / 10, std::chrono::seconds(1));
}

bool nearly_equal(std::string_view one, std::string_view other) {
  const FoldedName first(one);
  const FoldedName second(other);
  return may_be_nearly_equal(first, second) && nearly_equal(first, second);
}

StallVerdict judge_stall(std::span<const StalledTensor> late) {
  StallVerdict verdict;
  std::map<std::pair<Ranks, Ranks>, std::size_t> known;
  for (std::size_t i = 0; i < late.size(); ++i) {
    const auto [group, fresh] =
        known.emplace(std::pair(late[i].ready, late[i].missing), verdict.groups.size());
    if (fresh) verdict.groups.emplace_back();
    verdict.groups[group->second].push_back(i);
  }
  NameSearch search(late, verdict.groups);
  const std::size_t compared = std::min(verdict.groups.size(), kMostGroupsCompared);
  for (std::size_t i = 0; i < compared; ++i) {
    for (std::size_t j = i + 1; j < compared; ++j) {
      const StalledTensor& one = late[verdict.groups[i].front()];
      const StalledTensor& other = late[verdict.groups[j].front()];
      if (!cross(one, other)) continue;
      std::vector<StallVerdict::Pair> alike;
      if (!first_in_both(one.ready, other.ready)) {
        alike = search.alike(i, j, kMostAlike - verdict.alike.size());
      }
      verdict.alike.insert(verdict.alike.end(), alike.begin(), alike.end());
      if (alike.empty() && !verdict.crossed) {
        verdict.crossed = in_order(late, verdict.groups[i].front(), verdict.groups[j].front());
      }
    }
  }
  verdict.names_paired = search.paired();
  return verdict;
}

std::string late_phrase(const std::string& first, std::size_t count, base::Nanoseconds longest,
                        base::Nanoseconds shortest) {
  const bool same = longest - shortest <= longest / 8;
  return "'" + first + "'" +
         (count == 1 ? " has" : " and " + std::to_string(count - 1) + " more have") + " waited " +
         (same ? "" : "up to ") + base::seconds_text(longest);
}

std::string stall_notice(std::span<const StalledTensor> late, const StallVerdict& verdict,
                         const PlaceOf& place_of) {
  std::string text;
  std::size_t named = 0;
  for (std::size_t i = 0; i < std::min(verdict.groups.size(), kMostGroupsNamed); ++i) {
    text += (i == 0 ? "" : "; ") + group_phrase(late, verdict.groups[i], place_of);
    named += verdict.groups[i].size();
  }
  if (named < late.size()) {
    text += "; and " + std::to_string(late.size() - named) + " more wait for other ranks";
  }
  for (const auto& [first, second] : verdict.alike) {
    text += "; '" + late[first].name + "' on " + base::ranks_phrase(late[first].ready) + " and '" +
            late[second].name + "' on " + base::ranks_phrase(late[second].ready) +
            " are nearly equal: is one misspelt?";
  }
  if (verdict.crossed) {
    const StalledTensor& one = late[verdict.crossed->first];
    const StalledTensor& other = late[verdict.crossed->second];
    text += "; the names cross: rank " + std::to_string(*first_in_both(one.ready, other.missing)) +
            " has submitted '" + one.name + "' and not '" + other.name + "', rank " +
            std::to_string(*first_in_both(other.ready, one.missing)) + " '" + other.name +
            "' and not '" + one.name + "'";
    for (const StalledTensor* const tensor : {&one, &other}) {
      if (!tensor->steps.empty()) text += "; of '" + tensor->name + "' " + tensor->steps;
    }
  }
  return text;
}

}  // namespace ronde::runtime
