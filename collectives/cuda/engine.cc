// SPDX-License-Identifier: Apache-2.0
// Batches and copies on a GPU: see engine.h; how it starts is in engine_open.cc.
#include "collectives/cuda/engine.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

namespace ronde::collectives::cuda {

namespace {

using base::Code;
using base::DType;
using base::Result;
using base::Status;

// Less than the second that abort may take.
constexpr std::chrono::milliseconds kAbortWait{800};

Stream stream_of(void* stream) { return static_cast<Stream>(stream); }

void keep_one_of_each(std::vector<void*>& pointers) {
  std::sort(pointers.begin(), pointers.end(), std::less<>());
  pointers.erase(std::unique(pointers.begin(), pointers.end()), pointers.end());
}

Status refused(const std::string& why) { return Status::error(Code::kInvalidArgument, why); }

}  // namespace

Engine::~Engine() {
  // Nothing of what ends now is anybody's business.
  core_->bell->silence();
  issuer_.reset();
}

void Engine::give_up(const std::string& why) {
  core_->failure.give_up(why);
  if (issuer_ != nullptr) return issuer_->wake();
  // Copies wait for nobody but this rank's own streams.
  core_->failure.end();
  core_->bell->ring();
}

void Engine::abort(const std::string& why) {
  give_up(why);
  core_->failure.wait_for_end(kAbortWait);
}

Result<MemoryPlace> Engine::place_of(const void* pointer) {
  const DeviceScope scope(*core_->cuda);
  RONDE_RETURN_IF_ERROR(scope.status());
  return core_->cuda->place_of(pointer);
}

Status Engine::check_stream(Stream stream) {
  const DeviceScope scope(*core_->cuda);
  RONDE_RETURN_IF_ERROR(scope.status());
  const auto captured = core_->cuda->is_captured(stream);
  if (!captured.ok()) return refused("not a stream of this device: " + captured.status().message());
  if (*captured) {
    return refused(
        "the stream is under graph capture: end the capture before the tensor is submitted");
  }
  const auto device = core_->cuda->device_of(stream);
  if (!device.ok()) return refused("not a stream of this device: " + device.status().message());
  if (*device == device_) return {};
  return refused("the stream is one of device " + std::to_string(*device) +
                 ", and this rank uses device " + std::to_string(device_));
}

// Events are read now: they may be gone, or recorded again, when the call has returned.
Status Engine::wait_for_tensors(std::span<const ronde_plugin_tensor> tensors, Stream stream) {
  CudaApi& cuda = *core_->cuda;
  std::vector<void*> events;
  std::vector<void*> streams;
  for (const ronde_plugin_tensor& tensor : tensors) {
    const bool has_event = tensor.ready_event != nullptr;
    (has_event ? events : streams).push_back(has_event ? tensor.ready_event : tensor.stream);
  }
  keep_one_of_each(events);
  keep_one_of_each(streams);
  for (void* const event : events) {
    RONDE_RETURN_IF_ERROR(cuda.wait(stream, static_cast<Event>(event)));
  }
  for (void* const of : streams) {
    auto now = EventLease::take(core_->pools);
    if (!now.ok()) return now.status();
    RONDE_RETURN_IF_ERROR(cuda.record(now->get(), stream_of(of)));
    RONDE_RETURN_IF_ERROR(cuda.wait(stream, now->get()));
  }
  return {};
}

Result<std::shared_ptr<Task>> Engine::execute(const ronde_plugin_batch& batch) {
  if (core_->failure.given_up()) return core_->failure.status();
  if (issuer_ == nullptr) return refused("the devices of the ranks cannot reach each other");
  const auto layout = layout_of(batch, group_);
  if (!layout.ok()) return layout.status();
  const DeviceScope scope(*core_->cuda);
  RONDE_RETURN_IF_ERROR(scope.status());
  auto task = std::make_shared<Task>();
  task->sequence = batch.sequence;
  task->deadline = base::SteadyClock().after(core_->stall_failure);
  auto buffer = BlockLease::take(core_->pools, base::narrow<std::size_t>(layout->buffer_bytes));
  if (!buffer.ok()) return buffer.status();
  task->buffer = std::move(*buffer);
  for (EventLease* const event : {&task->ready, &task->done}) {
    auto lease = EventLease::take(core_->pools);
    if (!lease.ok()) return lease.status();
    *event = std::move(*lease);
  }
  task->plan = plan_of(batch, *layout, group_, task->buffer.get());
  const auto count = base::narrow<std::size_t>(batch.tensor_count);
  RONDE_RETURN_IF_ERROR(wait_for_tensors({batch.tensors, count}, core_->gate));
  RONDE_RETURN_IF_ERROR(core_->cuda->record(task->ready.get(), core_->gate));
  issuer_->put(task);
  return task;
}

Result<bool> Engine::poll(Task& task) {
  if (task.state.load() == Task::State::kOver) return true;
  if (task.state.load() == Task::State::kIssued) {
    const DeviceScope scope(*core_->cuda);
    const auto over =
        scope.status().ok() ? core_->cuda->is_over(task.done.get()) : Result<bool>(scope.status());
    if (!over.ok()) {
      give_up(over.status().message());
    } else if (*over && !core_->failure.given_up()) {
      // In this order: a kernel that was aborted looks as if it were over, but not before.
      task.state.store(Task::State::kOver);
      return true;
    }
  }
  if (core_->failure.ended()) return core_->failure.status();
  return false;
}

Status Engine::wait_on(const Task& task, Stream stream) {
  if (issuer_ != nullptr && task.state.load() == Task::State::kQueued) {
    RONDE_RETURN_IF_ERROR(issuer_->wait_until_issued(task));
  }
  const DeviceScope scope(*core_->cuda);
  RONDE_RETURN_IF_ERROR(scope.status());
  return core_->cuda->wait(stream, task.done.get());
}

Result<void*> Engine::allocate_host(std::size_t bytes) {
  const DeviceScope scope(*core_->cuda);
  RONDE_RETURN_IF_ERROR(scope.status());
  auto memory = core_->cuda->allocate_host(std::max<std::size_t>(bytes, 1));
  // Nothing was done, and nobody waits for it: less may be had.
  if (!memory.ok()) return refused(memory.status().message());
  return memory;
}

void Engine::free_host(void* memory) {
  const DeviceScope scope(*core_->cuda);
  if (scope.status().ok()) core_->cuda->free_host(memory);
}

Result<std::shared_ptr<Task>> Engine::copy_out(const ronde_plugin_copy& copy) {
  return put_copy(copy, true);
}

Result<std::shared_ptr<Task>> Engine::copy_in(const ronde_plugin_copy& copy) {
  return put_copy(copy, false);
}

Result<std::shared_ptr<Task>> Engine::put_copy(const ronde_plugin_copy& copy, bool out) {
  if (core_->failure.given_up()) return core_->failure.status();
  const ronde_plugin_tensor& tensor = *copy.tensor;
  const auto dtype = base::dtype_from_value(copy.dtype);
  if (!dtype) return refused("there is no dtype " + std::to_string(copy.dtype));
  if (copy.begin < 0 || copy.elements < 0 || copy.begin > tensor.elements - copy.elements) {
    return refused("elements " + std::to_string(copy.begin) + " and " +
                   std::to_string(copy.elements) + " more of a tensor of " +
                   std::to_string(tensor.elements));
  }
  const DeviceScope scope(*core_->cuda);
  RONDE_RETURN_IF_ERROR(scope.status());
  auto done = EventLease::take(core_->pools);
  if (!done.ok()) return done.status();
  auto task = std::make_shared<Task>();
  task->done = std::move(*done);
  const Stream stream = out ? core_->out : core_->in;
  // Going in, a tensor that came out before has been waited for.
  if (out || tensor.input == nullptr || tensor.ready_event != nullptr) {
    RONDE_RETURN_IF_ERROR(wait_for_tensors({&tensor, 1}, stream));
  }
  const auto bytes = base::narrow<std::size_t>(copy.elements * base::size_of(*dtype));
  const std::int64_t offset = copy.begin * base::size_of(*dtype);
  if (bytes > 0 && out) {
    const auto* const from = static_cast<const std::byte*>(tensor.input) + offset;
    RONDE_RETURN_IF_ERROR(core_->cuda->copy(copy.host, from, bytes, stream));
  } else if (bytes > 0) {
    auto* const to = static_cast<std::byte*>(tensor.output) + offset;
    RONDE_RETURN_IF_ERROR(core_->cuda->copy(to, copy.host, bytes, stream));
  }
  RONDE_RETURN_IF_ERROR(core_->cuda->record(task->done.get(), stream));
  task->state.store(Task::State::kIssued);
  RONDE_RETURN_IF_ERROR(core_->ring_after(task->done.get()));
  return task;
}

}  // namespace ronde::collectives::cuda
