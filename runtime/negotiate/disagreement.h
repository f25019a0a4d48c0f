// SPDX-License-Identifier: Apache-2.0
// Do the ranks mean the same tensor? A pure comparison, and the text for when they do not.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/tensors/signature.h"

namespace ronde::runtime {

// What one rank said about a tensor, and where in its program it said so.
struct Statement {
  Signature signature;
  std::string place;
};

// statements[r] is rank r's. An error (kMismatch) names the tensor and groups the ranks by what
// they said:
//   'fc1/weight': the ranks disagree: ranks 0-2 said allreduce(sum, f32, [128, 784]) at
//   train.cc:40, rank 3 said allreduce(sum, f32, [128, 785]) at train.cc:40. Make the calls agree
// and, of a group, the member:
//   'group of fc1/weight': the ranks disagree about tensor 2 of the group: ranks 0-2 said
//   'fc1/bias' [128], rank 3 said nothing: its group has 1 tensor. Make the calls agree
base::Result<AgreedTensor> agree_on(const std::string& name,
                                    const std::vector<Statement>& statements);

}  // namespace ronde::runtime
