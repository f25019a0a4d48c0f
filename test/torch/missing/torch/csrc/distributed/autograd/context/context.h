// SPDX-License-Identifier: Apache-2.0
// Debian's libtorch-dev leaves this header out, which that of c10d's Reducer includes for a
// pointer and the type of a callback.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace torch::distributed::autograd {

struct DistAutogradContext {
  using GradCallback = std::function<bool(at::Tensor&)>;
};
using ContextPtr = std::shared_ptr<DistAutogradContext>;

}  // namespace torch::distributed::autograd
