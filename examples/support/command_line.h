// SPDX-License-Identifier: Apache-2.0
// The flags of an example program: parsed with Boost.Program_options, checked here. Boost converts
// "-1" to an unsigned number and "nan" to a floating one silently; values stay text until they are
// checked, so that each error names the flag, the value and what is valid.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ronde::examples {

// An error of the user's command line: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Thread safety: belongs to one thread.
class CommandLine {
 public:
  CommandLine(std::string program, std::string summary);

  void add_flag(const std::string& name, const std::string& default_value, const std::string& help);

  // A flag that is "on" where it is named and "off" elsewhere; --name=off works, too.
  void add_switch(const std::string& name, const std::string& help);

  // Returns false if --help or --version was given, and has printed it. Throws UsageError.
  [[nodiscard]] bool parse(int argc, const char* const* argv);

  // These return the value of a flag, and throw UsageError if it is not valid.
  [[nodiscard]] std::string text(const std::string& name) const;
  [[nodiscard]] std::string choice(const std::string& name,
                                   const std::vector<std::string>& choices) const;
  [[nodiscard]] std::uint64_t integer(const std::string& name, std::uint64_t least,
                                      std::uint64_t most) const;
  // A finite number for which `valid` holds; `range` says in words which those are.
  [[nodiscard]] double real(const std::string& name, const std::function<bool(double)>& valid,
                            const std::string& range) const;

  // A number above 0 and at most `most`.
  [[nodiscard]] double positive(const std::string& name, double most) const;
  // A number from 0 to below 1.
  [[nodiscard]] double share(const std::string& name) const;

  // Returns the program's name and all flags with their values, to compare them between ranks.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> flags() const;

  [[nodiscard]] const std::string& program() const noexcept { return program_; }

 private:
  struct Flag {
    std::string name;
    std::string value;
    std::string help;
    bool is_switch = false;
  };
  [[noreturn]] void reject(const std::string& name, const std::string& valid) const;

  std::string program_;
  std::string summary_;
  std::vector<Flag> flags_;
};

}  // namespace ronde::examples
