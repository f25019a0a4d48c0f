// SPDX-License-Identifier: Apache-2.0
// The handle of one operation on one rank, shared by the caller and the engine, and the memory of
// its result.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/status.h"
#include "base/tensor.h"
#include "collectives/device/device.h"
#include "runtime/drive/agent.h"
#include "runtime/tensors/waiting_habit.h"

namespace ronde::runtime {

// Releases a result's memory.
struct FreeOutput {
  std::int32_t device = -1;
  void (*free)(std::int32_t device, void* memory) = nullptr;  // nullptr: the memory is the host's
  pid_t owner = 0;  // the process that allocated memory of the device
  void operator()(std::byte* memory) const {
    if (free == nullptr) {
      delete[] memory;
    } else if (::getpid() == owner) {  // a forked child does not own memory of the device
      free(device, memory);
    }
  }
};

// Memory for a result, on the host or on a device; owned by this object, or lent by the caller. It
// is not set to zeros first: a page that was never written costs nothing, and the operation writes
// every byte.
//
// Thread safety: none.
class OutputBuffer {
 public:
  // Throws std::bad_alloc.
  void allocate(std::size_t size) {
    bytes_ = {new std::byte[size], FreeOutput{}};
    size_ = size;
  }
  // The result lies in memory of the caller.
  void lend(std::byte* memory, std::size_t size) {
    bytes_ = {memory, FreeOutput{.free = [](std::int32_t, void*) {}, .owner = ::getpid()}};
    size_ = size;
  }
  // Takes ownership of memory of a device.
  void adopt(const collectives::DeviceMemory& memory, std::size_t size) {
    bytes_ = {memory.memory, FreeOutput{memory.device, memory.free, ::getpid()}};
    size_ = size;
  }
  [[nodiscard]] std::byte* data() const { return bytes_.get(); }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::unique_ptr<std::byte[], FreeOutput> bytes_;
  std::size_t size_ = 0;
};

// Thread safety: the engine writes status and output before it finishes the completion; a thread
// that saw completion.done() may read them.
struct Work {
  std::string name;  // of the tensor, for error texts
  Completion completion;
  // What its submitter does next is remembered here: nullptr from the first wait() or poll() on,
  // and where nothing is to be learnt. The balance and the time are the submission's.
  std::atomic<WaitingHabit*> habit{nullptr};
  base::Nanoseconds balance{0};
  base::Instant submitted{};
  base::Nanoseconds deadline{};  // of the submission; 0: RONDE_STALL_FAILURE_SECONDS
  // For a device tensor: `issued` is done when streams can be made to wait for the work, or when
  // the work is finished. They wait for `on_device`, which is written before `issued` is done;
  // where it is nullptr, wait for the completion.
  bool of_device = false;
  bool of_message = false;  // between two ranks: whoever waits looks for it, beside the agent
  bool may_be_far = false;  // of a message that comes from another host, or goes there
  Completion issued;
  collectives::DeviceWorkPtr on_device;
  base::Status status;
  // Set where the work failed: whether a caller has asked for the result.
  std::shared_ptr<std::atomic<bool>> heard;
  // The result of an allgather or an all-to-all, whose size only the runtime knows.
  OutputBuffer output;
  base::Shape output_shape;
  base::DType output_dtype = base::DType::kF32;
  // A join ends when all ranks have joined, and says which of them was the last.
  bool joins = false;
  std::int32_t last_joined = -1;
  std::int32_t message_source = -1;  // of a receive: the rank that has sent it
  std::int32_t message_target = -1;  // of a send; this and the next for the timeline
  std::int64_t message_tag = 0;
  std::int64_t message_bytes = 0;
  base::Instant began{};                      // 0: the timeline was off
  std::vector<std::int64_t> received_splits;  // all-to-all: the rows that came from each rank
};

}  // namespace ronde::runtime
