// SPDX-License-Identifier: Apache-2.0
// The flags of a program as one table: each row says where a value goes, and what is valid there.
//
//   std::size_t epochs = 5;
//   double rate = 0.1;
//   FlagTable flags("learn", "Learns a line.");
//   flags.add({{"epochs", whole(epochs, 1, 1000), "passes over the data"},
//              {"learning-rate", positive(rate, 1.0), "step size"}});
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/loop/agreement.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

inline constexpr int kExitUsage = 2;

// An error of the user's command line.
class UsageError : public TrainerError {
 public:
  explicit UsageError(const std::string& message) : TrainerError(message, kExitUsage) {}
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
[[nodiscard]] FlagValue text(std::string& target);
// A finite number for which `holds` is true.
[[nodiscard]] FlagValue real(double& target, std::function<bool(double)> holds, std::string valid);
// A number above 0 and at most `most`.
[[nodiscard]] FlagValue positive(double& target, double most);
// A number from 0 to below 1.
[[nodiscard]] FlagValue share(double& target);

template <std::integral Number>
[[nodiscard]] FlagValue whole(Number& target, std::uint64_t least, std::uint64_t most) {
  const auto read = [&target, least, most](const std::string& given) {
    std::uint64_t number = 0;
    const char* const end = given.data() + given.size();
    const auto [stop, error] = std::from_chars(given.data(), end, number);
    if (error != std::errc() || stop != end || number < least || number > most) return false;
    target = static_cast<Number>(number);
    return true;
  };
  return {std::to_string(target), read,
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
[[nodiscard]] FlagValue one_of(std::string& target, const std::vector<std::string>& words);
[[nodiscard]] FlagValue on_off(bool& target);
// A flag that is "on" where it is named; --name=off works, too.
[[nodiscard]] FlagValue on_where_named(bool& target);

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
  bool given = false;  // by the user, to the last parse()
};

// Thread safety: belongs to one thread.
class FlagTable {
 public:
  FlagTable(std::string program, std::string summary)
      : program_(std::move(program)), summary_(std::move(summary)) {}

  void add(std::initializer_list<Flag> flags);
  // Something that parse() calls once all values are there, in the order of these calls: it throws
  // UsageError for values that do not fit together.
  void check(std::function<void()> call) { checks_.push_back(std::move(call)); }

  // Returns false if --help or --version was given, and has printed it. Throws UsageError that
  // names the flag, the value and what is valid.
  [[nodiscard]] bool parse(int argc, const char* const* argv);

  // In a check: whether the user has given this flag; false for one that is not there, too.
  [[nodiscard]] bool given(const std::string& name) const;
  // In a check: a value in place of the default, for a flag that the user has not given.
  void otherwise(const std::string& name, const std::string& text);

  // The program's name and all flags, as "--name", with their values.
  [[nodiscard]] Flags values() const;
  // Those of these flags alone, in this order.
  [[nodiscard]] Flags values_of(const std::vector<std::string>& names) const;
  [[nodiscard]] const std::string& program() const noexcept { return program_; }

 private:
  std::string program_;
  std::string summary_;
  std::vector<Flag> flags_;
  std::vector<std::function<void()>> checks_;
};

}  // namespace ronde::trainer
