// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/fit/program/flags.h"

#include <iostream>
#include <ronde/ronde.hpp>

#include "base/flags/parse.h"

namespace ronde::trainer {

bool FlagTable::parse(int argc, const char* const* argv) try {
  using base::flags::Asked;
  const Asked asked = base::flags::parse(*this, argc, argv);
  if (asked == Asked::kHelp) std::cout << base::flags::help_text(*this) << std::flush;
  if (asked == Asked::kVersion) {
    std::cout << program() << " (Ronde " << ronde_version() << ")\n" << std::flush;
  }
  return asked == Asked::kNothing;
} catch (const base::flags::UsageError& error) {
  throw UsageError(error.what());
}

}  // namespace ronde::trainer
