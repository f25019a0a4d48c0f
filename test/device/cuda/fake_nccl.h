// SPDX-License-Identifier: Apache-2.0
// NCCL between the threads of one process. As the real one with communicators that do not block: a
// group is in its stream only some questions after its end, and waits there for the other ranks.
#pragma once

#include "base/status.h"
#include "collectives/cuda/nccl_api.h"

namespace ronde::fake {

base::Result<collectives::cuda::NcclApi> fake_nccl();

}  // namespace ronde::fake
