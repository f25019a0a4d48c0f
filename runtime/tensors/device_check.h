// SPDX-License-Identifier: Apache-2.0
// Whether a tensor lies where its owner says, and what it waits for, before anybody else hears of
// it.
#pragma once

#include <string>

#include "base/status.h"
#include "collectives/device/device.h"
#include "runtime/tensors/tensor_table.h"

namespace ronde::runtime {

// `device`: this rank's, or nullptr, and then `none` says why there is none. An error names the
// tensor (of a group, the member), what was declared and what it is. Host memory can only be told
// from that of a device by the device. kTransport: the device cannot tell, which ends the job.
base::Status check_places(const LocalTensor& tensor, collectives::Device* device,
                          const std::string& none);

// Of a tensor of `device` whose places are right: notes what its streams and events stand for now.
// A stream that cannot be used is kInvalidArgument; kTransport ends the job.
base::Status mark_ready(LocalTensor& tensor, collectives::Device& device);

}  // namespace ronde::runtime
