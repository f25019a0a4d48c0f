// SPDX-License-Identifier: Apache-2.0
// Marks, batches, copies and memory of an engine that is open; engine_open.cc has its start.
#include "collectives/cuda/engine.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>

namespace ronde::collectives::cuda {

namespace {

using base::Result;
using base::Status;

// Abort may take a second; this leaves time for the rest of it.
constexpr std::chrono::milliseconds kAbortWait{800};
// The device gets this long to allocate memory, which takes it some microseconds.
constexpr std::chrono::seconds kMemoryWait{5};
constexpr auto kBeforeSubmit = "the tensor is submitted";

}  // namespace

Engine::~Engine() {
  // Works that end from now on need no notification.
  core_->bell->silence();
  issuer_.reset();
}

void Engine::give_up(const std::string& why) {
  core_->failure.give_up(why);
  if (issuer_ != nullptr) return issuer_->wake();
  if (core_->failure.ended()) return;
  // Copies wait only for this rank's own streams, and nothing stops them: the memory that they use
  // must not be used for anything else before they are over.
  const DeviceScope scope(*core_->cuda);
  if (scope.status().ok() && !core_->drain(kAbortWait)) {
    core_->bell->log(kWarning, "cuda: copies are still under way after the engine has failed");
  }
  core_->failure.end();
  core_->bell->ring();
}

void Engine::abort(const std::string& why) {
  give_up(why);
  if (issuer_ != nullptr) core_->failure.wait_for_end(kAbortWait);
}

Result<MemoryPlace> Engine::place_of(const void* pointer) {
  const DeviceScope scope(*core_->cuda);
  RONDE_RETURN_IF_ERROR(scope.status());
  return core_->cuda->place_of(pointer);
}

// A stream under capture only records what is put into it, so a wait for it would never end.
Status Engine::refuse_captured(Stream stream, const char* before) {
  const auto captured = core_->cuda->is_captured(stream);
  if (!captured.ok()) return refused("not a stream of this device: " + captured.status().message());
  if (!*captured) return {};
  return refused(std::string("the stream is under graph capture: end the capture before ") +
                 before);
}

Status Engine::check_stream(Stream stream) {
  const DeviceScope scope(*core_->cuda);
  RONDE_RETURN_IF_ERROR(scope.status());
  RONDE_RETURN_IF_ERROR(refuse_captured(stream, kBeforeSubmit));
  const auto device = core_->cuda->device_of(stream);
  if (!device.ok()) return refused("not a stream of this device: " + device.status().message());
  if (*device == device_) return {};
  return refused("the stream is one of device " + std::to_string(*device) +
                 ", and this rank uses device " + std::to_string(device_));
}

// The caller may record its event again before the batch waits for it, so this engine records an
// event of its own after it, in a stream that does nothing else. A mark after a late event is as
// late as that one, which costs little: events come in the order of the work that they follow. CUDA
// reports an event that was recorded under capture as an error when it is queried; to wait for it
// would draw the stream into the capture.
Result<std::unique_ptr<ronde_plugin_mark>> Engine::mark(Stream stream, Event ready_event) {
  const DeviceScope scope(*core_->cuda);
  RONDE_RETURN_IF_ERROR(scope.status());
  CudaApi& cuda = *core_->cuda;
  auto mark = std::make_unique<ronde_plugin_mark>();
  if (ready_event != nullptr) {
    const auto over = cuda.is_over(ready_event);
    if (!over.ok()) return refused("the ready event: " + over.status().message());
    if (*over) return mark;
  } else {
    RONDE_RETURN_IF_ERROR(refuse_captured(stream, kBeforeSubmit));
  }
  RONDE_ASSIGN_OR_RETURN(mark->moment, EventLease::take(core_->pools));
  if (ready_event != nullptr) {
    if (const Status status = cuda.wait(core_->marks, ready_event); !status.ok()) {
      return refused("the ready event: " + status.message());
    }
    RONDE_RETURN_IF_ERROR(cuda.record(mark->moment.get(), core_->marks));
  } else if (const Status status = cuda.record(mark->moment.get(), stream); !status.ok()) {
    return refused("the stream: " + status.message());
  }
  return mark;
}

// The marks may be released when this has returned: an event that a stream waits for may be
// recorded again.
Status Engine::wait_for_tensors(std::span<const ronde_plugin_tensor> tensors, Stream stream) {
  std::vector<Event> moments;
  for (const ronde_plugin_tensor& tensor : tensors) {
    const bool waits = tensor.ready != nullptr && tensor.ready->moment.get() != nullptr;
    if (waits) moments.push_back(tensor.ready->moment.get());
  }
  std::sort(moments.begin(), moments.end(), std::less<>());
  moments.erase(std::unique(moments.begin(), moments.end()), moments.end());
  for (const Event moment : moments) {
    RONDE_RETURN_IF_ERROR(core_->cuda->wait(stream, moment));
  }
  return {};
}

Result<std::shared_ptr<Task>> Engine::execute(const ronde_plugin_batch& batch) {
  if (core_->failure.given_up()) return core_->failure.status();
  if (issuer_ == nullptr) return refused("the devices of the ranks cannot reach each other");
  RONDE_ASSIGN_OR_RETURN(const auto layout, layout_of(batch, group_));
  const DeviceScope scope(*core_->cuda);
  RONDE_RETURN_IF_ERROR(scope.status());
  auto task = std::make_shared<Task>();
  task->sequence = batch.sequence;
  task->deadline = base::SteadyClock().after(core_->stall_failure);
  auto buffer = BlockLease::take(core_->pools, base::narrow<std::size_t>(layout.buffer_bytes));
  if (!buffer.ok()) {
    const auto bytes = base::narrow<std::size_t>(layout.buffer_bytes);
    return no_memory("device memory to pack tensors into", bytes, buffer.status());
  }
  task->buffer = std::move(*buffer);
  for (EventLease* const event : {&task->ready, &task->done}) {
    RONDE_ASSIGN_OR_RETURN(*event, EventLease::take(core_->pools));
  }
  task->plan = plan_of(batch, layout, group_, task->buffer.get());
  const auto count = base::narrow<std::size_t>(batch.tensor_count);
  RONDE_RETURN_IF_ERROR(wait_for_tensors({batch.tensors, count}, core_->gate));
  RONDE_RETURN_IF_ERROR(core_->cuda->record(task->ready.get(), core_->gate));
  issuer_->put(task);
  return task;
}

Result<bool> Engine::poll(Task& task) {
  if (task.state.load() == Task::State::kOver) return true;
  bool under_way = false;
  if (task.state.load() == Task::State::kIssued) {
    const DeviceScope scope(*core_->cuda);
    const auto over =
        scope.status().ok() ? core_->cuda->is_over(task.done.get()) : Result<bool>(scope.status());
    if (!over.ok()) {
      give_up(over.status().message());
    } else if (*over && !core_->failure.given_up()) {
      // The order matters: an aborted kernel looks as if it were over, but not before the abort.
      task.state.store(Task::State::kOver);
      task.buffer = {};  // so that the next batch need not allocate one
      return true;
    }
    under_way = over.ok() && !*over;
  }
  // The issuer watches the deadlines of batches.
  if (under_way && issuer_ == nullptr && base::SteadyClock().now() >= task.deadline) {
    give_up("a copy has not ended on the device in time");
  }
  // A copy that was put into its stream during the abort also uses its memory until it is over.
  const bool waits = under_way && !core_->is_stuck();
  if (core_->failure.ended() && !waits) return core_->failure.status();
  if (core_->failure.has_lasted(core_->shutdown_timeout)) return core_->failure.status();
  return false;
}

Result<bool> Engine::wait_on(const Task& task, Stream stream) {
  const Task::State state = task.state.load();
  if (state != Task::State::kOver && core_->failure.given_up()) return core_->failure.status();
  if (state == Task::State::kQueued) return false;
  const DeviceScope scope(*core_->cuda);
  RONDE_RETURN_IF_ERROR(scope.status());
  RONDE_RETURN_IF_ERROR(refuse_captured(stream, "it waits for a tensor"));
  const Status status = core_->cuda->wait(stream, task.done.get());
  if (!status.ok()) return refused("the stream cannot wait: " + status.message());
  return true;
}

Status Engine::no_memory(const char* what, std::size_t bytes, const Status& why) const {
  return Status::error(why.code(), std::string("no ") + what + ": " + std::to_string(bytes) +
                                       " bytes on device " + std::to_string(device_) + " (" +
                                       why.message() + ")");
}

Result<void*> Engine::allocate_host(std::size_t bytes) {
  const DeviceScope scope(*core_->cuda);
  RONDE_RETURN_IF_ERROR(scope.status());
  auto memory = core_->pools->take_host(std::max<std::size_t>(bytes, 1));
  if (memory.ok()) return memory;
  // Nothing was done, and no rank waits: the caller may ask for less.
  return refused(no_memory("host memory to stage in", bytes, memory.status()).message());
}

void Engine::free_host(void* memory) { core_->pools->give_host(memory); }

// The host waits until the memory is usable, since streams that this engine does not know will use
// it. That takes some microseconds: nothing else is in the stream, and CUDA does not hand out
// memory whose release is still pending in another stream.
Result<void*> Engine::allocate(std::size_t bytes) {
  const DeviceScope scope(*core_->cuda);
  RONDE_RETURN_IF_ERROR(scope.status());
  RONDE_ASSIGN_OR_RETURN(auto there, EventLease::take(core_->pools));
  auto memory = core_->cuda->allocate_in(core_->memory, std::max<std::size_t>(bytes, 1));
  if (!memory.ok()) return no_memory("device memory for a result", bytes, memory.status());
  Status status = core_->cuda->record(there.get(), core_->memory);
  if (status.ok()) status = wait_for_memory(there.get());
  if (status.ok()) return memory;
  core_->cuda->free_in(core_->memory, *memory);
  return no_memory("device memory for a result", bytes, status);
}

Status Engine::wait_for_memory(Event there) {
  const base::SteadyClock clock;
  const base::Instant end =
      clock.after(std::min<base::Nanoseconds>(core_->stall_failure, kMemoryWait));
  while (true) {
    RONDE_ASSIGN_OR_RETURN(const auto over, core_->cuda->is_over(there));
    if (over) return {};
    if (core_->failure.given_up()) return core_->failure.status();
    if (clock.now() >= end) {
      return Status::error(base::Code::kDeadline, "the device did not provide it in time");
    }
    std::this_thread::yield();
  }
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
  RONDE_ASSIGN_OR_RETURN(auto done, EventLease::take(core_->pools));
  auto task = std::make_shared<Task>();
  task->done = std::move(done);
  task->deadline = base::SteadyClock().after(core_->stall_failure);
  const Stream stream = out ? core_->out : core_->in;
  RONDE_RETURN_IF_ERROR(wait_for_tensors({&tensor, 1}, stream));
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
  RONDE_RETURN_IF_ERROR(
      core_->ring_after(task->done.get(), out ? core_->out_chime : core_->in_chime));
  return task;
}

}  // namespace ronde::collectives::cuda
