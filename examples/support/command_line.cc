// SPDX-License-Identifier: Apache-2.0
// How Boost.Program_options is set up, and how each kind of value is checked.
#include "examples/support/command_line.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <cmath>
#include <iostream>
#include <ronde/ronde.hpp>
#include <sstream>
#include <system_error>

namespace ronde::examples {

namespace po = boost::program_options;

namespace {

// Reads the whole text as a number.
template <typename Number>
bool parse_number(const std::string& text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

}  // namespace

CommandLine::CommandLine(std::string program, std::string summary)
    : program_(std::move(program)), summary_(std::move(summary)) {}

void CommandLine::add_flag(const std::string& name, const std::string& default_value,
                           const std::string& help) {
  flags_.push_back({name, default_value, help});
}

void CommandLine::add_switch(const std::string& name, const std::string& help) {
  flags_.push_back({name, "off", help, true});
}

bool CommandLine::parse(int argc, const char* const* argv) {
  po::options_description options("Flags");
  options.add_options()("help", "print this text and stop")("version",
                                                            "print the version and stop");
  for (Flag& flag : flags_) {
    auto* const value = po::value(&flag.value)->default_value(flag.value)->value_name("VALUE");
    if (flag.is_switch) value->implicit_value("on");
    options.add_options()(flag.name.c_str(), value, flag.help.c_str());
  }
  // Only whole names are allowed: an abbreviation would change its meaning when a flag is added.
  constexpr int kStyle = po::command_line_style::allow_long |
                         po::command_line_style::long_allow_adjacent |
                         po::command_line_style::long_allow_next;
  try {
    po::variables_map variables;
    po::store(po::command_line_parser(argc, argv)
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
  } catch (const po::too_many_positional_options_error&) {
    throw UsageError("every argument must be a flag that begins with --: see " + program_ +
                     " --help");
  } catch (const po::error& error) {
    throw UsageError(std::string(error.what()) + ": see " + program_ + " --help");
  }
  return true;
}

std::string CommandLine::text(const std::string& name) const {
  const auto flag = std::find_if(flags_.begin(), flags_.end(),
                                 [&name](const Flag& each) { return each.name == name; });
  if (flag == flags_.end()) throw std::logic_error("there is no flag --" + name + ": add it");
  return flag->value;
}

std::string CommandLine::choice(const std::string& name,
                                const std::vector<std::string>& choices) const {
  const std::string value = text(name);
  if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
    std::string all;
    for (const std::string& each : choices) all += " " + each;
    reject(name, choices.size() == 1 ? all.substr(1) : "one of:" + all);
  }
  return value;
}

std::uint64_t CommandLine::integer(const std::string& name, std::uint64_t least,
                                   std::uint64_t most) const {
  std::uint64_t number = 0;
  if (!parse_number(text(name), number) || number < least || number > most) {
    reject(name, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return number;
}

double CommandLine::real(const std::string& name, const std::function<bool(double)>& valid,
                         const std::string& range) const {
  double number = 0.0;
  if (!parse_number(text(name), number) || !std::isfinite(number) || !valid(number)) {
    reject(name, range);
  }
  return number;
}

double CommandLine::positive(const std::string& name, double most) const {
  std::ostringstream range;
  range << "a number above 0 and at most " << most;
  return real(name, [most](double value) { return value > 0.0 && value <= most; }, range.str());
}

double CommandLine::share(const std::string& name) const {
  return real(
      name, [](double value) { return value >= 0.0 && value < 1.0; }, "a number from 0 to below 1");
}

std::vector<std::pair<std::string, std::string>> CommandLine::flags() const {
  std::vector<std::pair<std::string, std::string>> all{{"program", program_}};
  for (const Flag& flag : flags_) all.emplace_back("--" + flag.name, flag.value);
  return all;
}

void CommandLine::reject(const std::string& name, const std::string& valid) const {
  const std::string value = text(name);
  throw UsageError("--" + name + " " + (value.empty() ? "\"\"" : value) + " is not valid: use " +
                   valid);
}

}  // namespace ronde::examples
