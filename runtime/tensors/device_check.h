// SPDX-License-Identifier: Apache-2.0
// Checks that a tensor lies where the caller declared it, and records what it waits for, before the
// tensor is announced. Calls the device plug-in, nothing else.
//
// Thread safety: every function may be called from any thread (Device allows it); the tensor must
// not be in the table yet.
#pragma once

#include <string>

#include "base/status.h"
#include "collectives/device/device.h"
#include "runtime/tensors/tensor_table.h"

namespace ronde::runtime {

// `device` is this rank's; where it is nullptr, `none` says why there is none. Returns an error
// that names the tensor (in a group: the member), what was declared and what the memory is:
// kInvalidArgument, or kUnsupported without a device. Only a device can tell its memory from the
// host's, so without one host memory is not checked. kTransport: the device cannot tell, which ends
// the job.
base::Status check_places(const LocalTensor& tensor, collectives::Device* device,
                          const std::string& none);

// Records what the streams and events of a tensor stand for now; check_places() must have passed
// for it and `device`. Returns kInvalidArgument for a stream that cannot be used; kTransport ends
// the job.
base::Status mark_ready(LocalTensor& tensor, collectives::Device& device);

}  // namespace ronde::runtime
