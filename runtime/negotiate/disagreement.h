// SPDX-License-Identifier: Apache-2.0
// Compares what the ranks submitted under one name, and words the error where they differ. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/tensors/signature.h"
#include "runtime/tensors/step_number.h"

namespace ronde::runtime {

// How one rank submitted a tensor, and where in its program.
struct Statement {
  Signature signature;
  std::string place;
  StepNumber step{};
  bool absent = false;       // the rank has joined, and agrees with what the others say
  std::string not_finite{};  // of its contribution, if something is (RONDE_CHECK=finite)
};

// Returns what the ranks agreed on; statements[r] is rank r's. Otherwise the error (kMismatch)
// names the tensor and groups the ranks by what they submitted:
//   'fc1/weight': the ranks disagree: ranks 0-2 submitted allreduce(sum, f32, [128, 784]) at
//   train.cc:40, rank 3 submitted allreduce(sum, f32, [128, 785]) at train.cc:40. Make the calls
//   agree
// For a group it names the member:
//   'group of fc1/weight': the ranks disagree about tensor 2 of the group: ranks 0-2 submitted
//   'fc1/bias' [128], rank 3 submitted nothing: its group has 1 tensor. Make the calls agree
// kInvalidArgument: they agree on something that cannot be gathered, or a rank, which the error
// has, gives what is not finite.
base::Result<AgreedTensor> agree_on(const std::string& name,
                                    const std::vector<Statement>& statements);

}  // namespace ronde::runtime
