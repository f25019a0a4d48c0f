// SPDX-License-Identifier: Apache-2.0
// The flags of a training program: a table of flags whose errors end the program as others do.
#pragma once

#include <string>

#include "base/flags/flags.h"
#include "bindings/trainer/fit/agreement.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

using base::flags::automatic;
using base::flags::Choices;
using base::flags::Flag;
using base::flags::FlagValue;
using base::flags::on_off;
using base::flags::on_where_named;
using base::flags::one_of;
using base::flags::positive;
using base::flags::real;
using base::flags::share;
using base::flags::text;
using base::flags::whole;

inline constexpr int kExitUsage = 2;

// An error of the user's command line.
class UsageError : public TrainerError {
 public:
  explicit UsageError(const std::string& message) : TrainerError(message, kExitUsage) {}
};

// Thread safety: belongs to one thread.
class FlagTable : public base::flags::FlagTable {
 public:
  using base::flags::FlagTable::FlagTable;

  // Returns false if --help or --version was given, and has printed it. Throws UsageError.
  [[nodiscard]] bool parse(int argc, const char* const* argv);
};

}  // namespace ronde::trainer
