// SPDX-License-Identifier: Apache-2.0
// Copies between a device and host memory that are in progress together.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/numbers.h"
#include "base/status.h"
#include "collectives/device/device.h"

namespace ronde::runtime {

// The device and all memory belong to the caller, and must stay until finished() has returned true
// or the device was aborted. No function blocks.
//
// Thread safety: none; only the agent uses it.
class StagedCopies {
 public:
  // Elements [begin, begin + elements) of a tensor, and where they lie in host memory.
  struct Part {
    std::int64_t begin = 0;
    base::Elements elements;
    std::byte* host = nullptr;
  };

  explicit StagedCopies(collectives::Device& device) : device_(&device) {}

  base::Status out(const ronde_plugin_tensor& tensor, base::DType dtype, const Part& part) {
    return keep(device_->copy_out(copy_of(tensor, dtype, part)));
  }
  base::Status in(const ronde_plugin_tensor& tensor, base::DType dtype, const Part& part) {
    return keep(device_->copy_in(copy_of(tensor, dtype, part)));
  }

  // Whether all copies are finished.
  base::Result<bool> finished() {
    while (!works_.empty()) {
      RONDE_ASSIGN_OR_RETURN(const auto polled, works_.back()->poll());
      if (!polled) return false;
      works_.pop_back();
    }
    return true;
  }

 private:
  static ronde_plugin_copy copy_of(const ronde_plugin_tensor& tensor, base::DType dtype,
                                   const Part& part) {
    ronde_plugin_copy copy{};
    copy.struct_size = sizeof copy;
    copy.tensor = &tensor;
    copy.begin = part.begin;
    copy.elements = part.elements.value();
    copy.dtype = static_cast<std::int32_t>(dtype);
    copy.host = part.host;
    return copy;
  }
  base::Status keep(base::Result<collectives::DeviceWorkPtr> work) {
    RONDE_RETURN_IF_ERROR(work.status());
    works_.push_back(std::move(*work));
    return {};
  }

  collectives::Device* device_;
  std::vector<collectives::DeviceWorkPtr> works_;
};

}  // namespace ronde::runtime
