// SPDX-License-Identifier: Apache-2.0
// The flags of a program as one table: each row says where a value goes, and what is valid there.
//
//   std::size_t epochs = 5;
//   double rate = 0.1;
//   FlagTable flags("learn", "Learns a line.");
//   flags.add({{"epochs", whole(epochs, 1, 1000), "passes over the data"},
//              {"learning-rate", positive(rate, 1.0), "step size"}});
//
// Headers alone, for programs and what only they link: nothing of libronde.so includes them. Boost
// reads the words, in parse.h; ronderun, which does without Boost, has these values and its own
// parser.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/words/number_text.h"

namespace ronde::base::flags {

// An error of the user's command line: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Where the text of a flag goes. The functions below make one for a variable of the program, which
// must outlive the table, and whose value is the flag's default.
struct FlagValue {
  std::string text;                              // the default, and then what the user gives
  std::function<bool(const std::string&)> read;  // returns false for a text that is not valid
  std::string valid{};                           // in words: "a number from 0 to 1"
  bool is_switch = false;                        // "on" where the flag has no value
};

// Any text.
[[nodiscard]] inline FlagValue text(std::string& target) {
  return {target, [&target](const std::string& given) { return target = given, true; }};
}

// Reads a number that is the whole text, and for which `holds` is true.
template <typename Number, typename Target, typename Holds>
[[nodiscard]] auto number_reader(Target& target, Holds holds) {
  return [&target, holds = std::move(holds)](const std::string& given) {
    Number number{};
    const char* const end = given.data() + given.size();
    const auto [stop, error] = std::from_chars(given.data(), end, number);
    if (error != std::errc() || stop != end || !holds(number)) return false;
    target = static_cast<Target>(number);
    return true;
  };
}

// A finite number for which `holds` is true.
[[nodiscard]] inline FlagValue real(double& target, std::function<bool(double)> holds,
                                    std::string valid) {
  auto read = number_reader<double>(target, [holds = std::move(holds)](double number) {
    return std::isfinite(number) && holds(number);
  });
  return {exact_text(target), std::move(read), std::move(valid)};  // it reads the default, too
}
[[nodiscard]] inline FlagValue real(double& target, double from, double to, std::string valid) {
  return real(
      target, [=](double number) { return number >= from && number <= to; }, std::move(valid));
}
// A number above 0 and at most `most`.
[[nodiscard]] inline FlagValue positive(double& target, double most) {
  return real(
      target, [most](double number) { return number > 0.0 && number <= most; },
      "a number above 0 and at most " + exact_text(most));
}
// A number from 0 to below 1.
[[nodiscard]] inline FlagValue share(double& target) {
  return real(
      target, [](double number) { return number >= 0.0 && number < 1.0; },
      "a number from 0 to below 1");
}

// The type of a flag's bounds; a bool's flag takes 0 and 1.
template <std::integral Number>
using Wide = std::conditional_t<std::is_signed_v<Number>, std::int64_t, std::uint64_t>;

template <std::integral Number>
[[nodiscard]] FlagValue whole(Number& target, Wide<Number> least, Wide<Number> most) {
  auto read = number_reader<Wide<Number>>(
      target, [=](Wide<Number> number) { return number >= least && number <= most; });
  return {std::to_string(target), std::move(read),
          "a whole number from " + std::to_string(least) + " to " + std::to_string(most)};
}

template <typename Choice>
using Choices = std::vector<std::pair<std::string, Choice>>;

// One of several words, each of which stands for a value.
template <typename Choice>
[[nodiscard]] FlagValue one_of(Choice& target, Choices<Choice> choices) {
  FlagValue value{.text = {}, .read = {}, .valid = "one of:"};
  for (const auto& [word, meaning] : choices) {
    if (meaning == target) value.text = word;
    value.valid += ' ' + word;
  }
  value.read = [&target, choices = std::move(choices)](const std::string& given) {
    for (const auto& [word, meaning] : choices) {
      if (given == word) return target = meaning, true;
    }
    return false;
  };
  return value;
}
[[nodiscard]] inline FlagValue one_of(std::string& target, const std::vector<std::string>& words) {
  Choices<std::string> choices;
  for (const std::string& word : words) choices.emplace_back(word, word);
  return one_of(target, std::move(choices));
}
[[nodiscard]] inline FlagValue on_off(bool& target) {
  return one_of(target, Choices<bool>{{"on", true}, {"off", false}});
}
// A flag that is "on" where it is named; --name=off works, too.
[[nodiscard]] inline FlagValue on_where_named(bool& target) {
  FlagValue value = on_off(target);
  value.is_switch = true;
  return value;
}

// "auto", which leaves the target empty, or what `make` takes:
//   automatic(rate, [](double& target) { return positive(target, 1.0); })
template <typename Number, typename Make>
[[nodiscard]] FlagValue automatic(std::optional<Number>& target, const Make& make) {
  const auto number = std::make_shared<Number>();
  FlagValue value = make(*number);
  value.text = "auto";
  value.read = [&target, number, read = std::move(value.read)](const std::string& given) {
    const bool is_number = given != "auto";
    if (is_number && !read(given)) return false;
    target = is_number ? std::optional(*number) : std::nullopt;
    return true;
  };
  return value;
}

struct Flag {
  std::string name;
  FlagValue value;
  std::string help;
  char letter = 0;     // -n; a table in which no flag has one takes long names alone
  bool given = false;  // by the user, to the last parse()
};

// Thread safety: belongs to one thread.
class FlagTable {
 public:
  using Values = std::vector<std::pair<std::string, std::string>>;

  FlagTable(std::string program, std::string summary)
      : program_(std::move(program)), summary_(std::move(summary)) {}

  void add(std::initializer_list<Flag> flags) {
    flags_.insert(flags_.end(), flags.begin(), flags.end());
  }
  // Something that read() calls once all values are there, in the order of these calls: it throws
  // UsageError for values that do not fit together.
  void check(std::function<void()> call) { checks_.push_back(std::move(call)); }

  // Puts the texts of all flags where they belong. Throws UsageError that names the flag, the value
  // and what is valid.
  void read() const {
    for (const Flag& flag : flags_) {
      if (flag.value.read(flag.value.text)) continue;
      throw UsageError("--" + flag.name + ' ' +
                       (flag.value.text.empty() ? "\"\"" : flag.value.text) +
                       " is not valid: use " + flag.value.valid);
    }
    for (const auto& check : checks_) check();
  }

  // In a check: whether the user has given this flag; false for one that is not there, too.
  [[nodiscard]] bool given(const std::string& name) const {
    const auto flag = std::ranges::find(flags_, name, &Flag::name);
    return flag != flags_.end() && flag->given;
  }
  // In a check: a value in place of the default, for a flag that the user has not given.
  void otherwise(const std::string& name, const std::string& text) {
    const auto flag = std::ranges::find(flags_, name, &Flag::name);
    if (flag == flags_.end() || flag->given) return;
    if (!flag->value.read(text)) throw std::logic_error("--" + name + " cannot be " + text);
    flag->value.text = text;
  }

  // The program's name and all flags, as "--name", with their values.
  [[nodiscard]] Values values() const {
    Values all{{"program", program_}};
    for (const Flag& flag : flags_) all.emplace_back("--" + flag.name, flag.value.text);
    return all;
  }
  // Those of these flags alone, in this order.
  [[nodiscard]] Values values_of(const std::vector<std::string>& names) const {
    Values some;
    for (const std::string& name : names) some.emplace_back("--" + name, text_of(name));
    return some;
  }
  // As it was given.
  [[nodiscard]] const std::string& text_of(const std::string& name) const {
    const auto flag = std::ranges::find(flags_, name, &Flag::name);
    if (flag == flags_.end()) throw std::logic_error("there is no flag --" + name + ": add it");
    return flag->value.text;
  }

  [[nodiscard]] const std::string& program() const noexcept { return program_; }
  [[nodiscard]] const std::string& summary() const noexcept { return summary_; }
  [[nodiscard]] const std::vector<Flag>& flags() const noexcept { return flags_; }
  [[nodiscard]] std::vector<Flag>& flags() noexcept { return flags_; }

 private:
  std::string program_;
  std::string summary_;
  std::vector<Flag> flags_;
  std::vector<std::function<void()>> checks_;
};

}  // namespace ronde::base::flags
