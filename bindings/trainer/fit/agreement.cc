// SPDX-License-Identifier: Apache-2.0
// Comparing what the ranks say.
#include "bindings/trainer/fit/agreement.h"

#include <algorithm>
#include <span>
#include <sstream>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

constexpr char kSeparator = '\x1f';  // ASCII's "unit separator": nobody types it into a flag

std::string to_text(const Flags& flags) {
  std::string text;
  for (const auto& [name, value] : flags) text += name + kSeparator + value + kSeparator;
  return text;
}

Flags from_text(const std::string& text) {
  Flags flags;
  std::istringstream lines(text);
  std::string name;
  std::string value;
  while (std::getline(lines, name, kSeparator) && std::getline(lines, value, kSeparator)) {
    flags.emplace_back(name, value);
  }
  return flags;
}

std::string value_of(const Flags& flags, const std::string& name) {
  for (const auto& [flag, value] : flags) {
    if (flag == name) return value.empty() ? "\"\"" : value;
  }
  return "nothing";
}

}  // namespace

std::vector<std::string> gather_texts(Replica& replica, const std::string& name,
                                      const std::string& text) {
  const std::span<const char> mine(text.c_str(), text.size() + 1);
  const std::vector<char> all = replica.allgather(name, mine);
  std::vector<std::string> texts;
  for (auto first = all.begin(); first != all.end();) {
    const auto last = std::find(first, all.end(), '\0');
    texts.emplace_back(first, last);
    first = last == all.end() ? last : last + 1;
  }
  return texts;
}

std::string flag_differences(const std::vector<Flags>& flags_by_rank) {
  std::vector<std::string> names;
  for (const Flags& flags : flags_by_rank) {
    for (const auto& [name, value] : flags) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  std::string text;
  for (const std::string& name : names) {
    std::vector<std::string> values;
    values.reserve(flags_by_rank.size());
    for (const Flags& flags : flags_by_rank) values.push_back(value_of(flags, name));
    if (std::all_of(values.begin(), values.end(),
                    [&values](const std::string& value) { return value == values.front(); })) {
      continue;
    }
    text += (text.empty() ? "" : "; ") + name + " is " + grouped_by_value(values);
  }
  return text;
}

void require_same_flags(Replica& replica, const Flags& flags) {
  std::vector<Flags> flags_by_rank;
  for (const std::string& text : gather_texts(replica, "agree/flags", to_text(flags))) {
    flags_by_rank.push_back(from_text(text));
  }
  const std::string differences = flag_differences(flags_by_rank);
  if (differences.empty()) return;
  throw AgreedError("the ranks were started with different flags: " + differences +
                        ": start every rank with the same flags",
                    AgreedError::kEveryRank, kExitConfiguration);
}

void succeed_on_all(Replica& replica, const std::function<void()>& call) {
  std::string failure;
  try {
    call();
  } catch (const std::exception& error) {
    failure = std::to_string(exit_code_of(error)) + ' ' + error.what();
  }
  const std::vector<std::string> failures = gather_texts(replica, "agree/failure", failure);
  for (std::size_t rank = 0; rank < failures.size(); ++rank) {
    if (failures[rank].empty()) continue;
    const std::size_t blank = failures[rank].find(' ');
    throw AgreedError(failures[rank].substr(blank + 1), static_cast<int>(rank),
                      std::stoi(failures[rank]));
  }
}

void require_same_parameters(Replica& replica, const std::string& parameter_hash) {
  const auto hashes = gather_texts(replica, "agree/parameters", parameter_hash);
  if (std::all_of(hashes.begin(), hashes.end(),
                  [&hashes](const std::string& hash) { return hash == hashes.front(); })) {
    return;
  }
  throw AgreedError("the parameters differ between ranks, hash " + grouped_by_value(hashes) +
                        ": please report this as a bug",
                    0);
}

}  // namespace ronde::trainer
