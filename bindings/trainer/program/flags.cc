// SPDX-License-Identifier: Apache-2.0
// How Boost.Program_options is set up. Boost converts "-1" to an unsigned number and "nan" to a
// floating one silently, so values stay text until they are read here.
#include "bindings/trainer/program/flags.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <cmath>
#include <iostream>
#include <ronde/ronde.hpp>

#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer {

namespace po = boost::program_options;

FlagValue text(std::string& target) {
  return {target, [&target](const std::string& given) { return target = given, true; }};
}

FlagValue real(double& target, std::function<bool(double)> holds, std::string valid) {
  auto read = [&target, holds = std::move(holds)](const std::string& given) {
    double number = 0.0;
    const char* const end = given.data() + given.size();
    const auto [stop, error] = std::from_chars(given.data(), end, number);
    if (error != std::errc() || stop != end || !std::isfinite(number)) return false;
    if (!holds(number)) return false;
    target = number;
    return true;
  };
  return {exact_text(target), std::move(read), std::move(valid)};  // read() reads the default, too
}

FlagValue positive(double& target, double most) {
  return real(
      target, [most](double value) { return value > 0.0 && value <= most; },
      "a number above 0 and at most " + exact_text(most));
}

FlagValue share(double& target) {
  return real(
      target, [](double value) { return value >= 0.0 && value < 1.0; },
      "a number from 0 to below 1");
}

FlagValue one_of(std::string& target, const std::vector<std::string>& words) {
  Choices<std::string> choices;
  for (const std::string& word : words) choices.emplace_back(word, word);
  return one_of(target, std::move(choices));
}

FlagValue on_off(bool& target) {
  return one_of(target, Choices<bool>{{"on", true}, {"off", false}});
}

FlagValue on_where_named(bool& target) {
  FlagValue value = on_off(target);
  value.is_switch = true;
  return value;
}

void FlagTable::add(std::initializer_list<Flag> flags) {
  flags_.insert(flags_.end(), flags.begin(), flags.end());
}

bool FlagTable::parse(int argc, const char* const* argv) {
  po::options_description options("Flags");
  options.add_options()("help", "print this text and stop")("version",
                                                            "print the version and stop");
  for (Flag& flag : flags_) {
    std::string& text = flag.value.text;
    auto* const value = po::value(&text)->default_value(text)->value_name("VALUE");
    if (flag.value.is_switch) value->implicit_value("on");
    options.add_options()(flag.name.c_str(), value, flag.help.c_str());
  }
  // Only whole names are allowed: an abbreviation would change its meaning when a flag is added.
  constexpr int kStyle = po::command_line_style::allow_long |
                         po::command_line_style::long_allow_adjacent |
                         po::command_line_style::long_allow_next;
  // The guides' flags have underscores: --steps_to_validate.
  std::vector<std::string> words(argv + 1, argv + argc);
  for (std::string& word : words) {
    if (!word.starts_with("--")) continue;
    std::replace(word.begin(), word.begin() + std::ssize(word.substr(0, word.find('='))), '_', '-');
  }
  const std::string see_help = ": see " + program_ + " --help";
  try {
    po::variables_map variables;
    po::store(po::command_line_parser(words)
                  .options(options)
                  .positional(po::positional_options_description())
                  .style(kStyle)
                  .run(),
              variables);
    if (variables.count("help") != 0) {
      std::cout << summary_ << "\n\nUsage: " << program_ << " [flags]\n\n" << options << std::flush;
      return false;
    }
    if (variables.count("version") != 0) {
      std::cout << program_ << " (Ronde " << ronde_version() << ")\n" << std::flush;
      return false;
    }
    po::notify(variables);
    for (Flag& flag : flags_) flag.given = !variables[flag.name].defaulted();
  } catch (const po::too_many_positional_options_error&) {
    throw UsageError("every argument must be a flag that begins with --" + see_help);
  } catch (const po::error& error) {
    throw UsageError(error.what() + see_help);
  }
  for (const auto& [name, value, help, given] : flags_) {
    if (value.read(value.text)) continue;
    throw UsageError("--" + name + ' ' + (value.text.empty() ? "\"\"" : value.text) +
                     " is not valid: use " + value.valid);
  }
  for (const auto& check : checks_) check();
  return true;
}

bool FlagTable::given(const std::string& name) const {
  const auto flag = std::ranges::find(flags_, name, &Flag::name);
  return flag != flags_.end() && flag->given;
}

void FlagTable::otherwise(const std::string& name, const std::string& text) {
  const auto flag = std::ranges::find(flags_, name, &Flag::name);
  if (flag == flags_.end() || flag->given) return;
  if (!flag->value.read(text)) throw std::logic_error("--" + name + " cannot be " + text);
  flag->value.text = text;
}

Flags FlagTable::values() const {
  Flags all{{"program", program_}};
  for (const Flag& flag : flags_) all.emplace_back("--" + flag.name, flag.value.text);
  return all;
}

Flags FlagTable::values_of(const std::vector<std::string>& names) const {
  Flags some;
  for (const std::string& name : names) {
    const auto flag = std::ranges::find(flags_, name, &Flag::name);
    if (flag == flags_.end()) throw std::logic_error("there is no flag --" + name + ": add it");
    some.emplace_back("--" + name, flag->value.text);
  }
  return some;
}

}  // namespace ronde::trainer
