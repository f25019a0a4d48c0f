// SPDX-License-Identifier: Apache-2.0
// What a call that should be refused says.
#pragma once

#include <functional>
#include <string>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

// The text of its TrainerError; "no error" where there is none.
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const TrainerError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace ronde::trainer
