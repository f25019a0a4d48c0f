// SPDX-License-Identifier: Apache-2.0
// Compares where a tensor was declared to lie with what the device plug-in says about its pointers.
#include "runtime/tensors/device_check.h"

#include <cstddef>
#include <map>
#include <utility>

namespace ronde::runtime {

using base::Code;
using base::Status;
using collectives::Device;

namespace {

Status wrong_device(const std::string& name, const std::string& what,
                    Code code = Code::kInvalidArgument) {
  return Status::error(code, "'" + name + "': " + what);
}

std::string device_text(std::int32_t device) {
  return "memory of device " + std::to_string(device);
}

// A barrier has no memory, so the text names the device alone.
std::string declared_as(const Signature& is) {
  return "it is declared as " + (row(is.operation).is_barrier()
                                     ? "of device " + std::to_string(is.device)
                                     : device_text(is.device));
}

// Checks one pointer of a tensor. Managed memory counts as lying wherever it is declared to be.
Status check_pointer(const std::string& name, const std::string& which, const void* pointer,
                     bool declared_device, Device& device) {
  const auto is = device.classify(pointer);
  if (is.status().code() == Code::kClosed) return is.status();
  if (!is.ok()) {
    return wrong_device(name, "the " + which + ": " + is.status().message(), is.status().code());
  }
  const bool managed = is->kind == RONDE_MEMORY_MANAGED;
  if (!declared_device) {
    if (managed || is->kind == RONDE_MEMORY_HOST) return {};
    return wrong_device(name, "the " + which + " is declared as host memory and is " +
                                  device_text(is->device) + ": set device to " +
                                  std::to_string(is->device));
  }
  const std::string declared = "the " + which + " is declared as " + device_text(device.number());
  if (is->kind == RONDE_MEMORY_HOST) {
    return wrong_device(name, declared + " and is host memory: set device to RONDE_DEVICE_CPU");
  }
  if (managed || is->device == device.number()) return {};
  return wrong_device(name, declared + " and is " + device_text(is->device) +
                                ": a rank reduces what is on its own device");
}

base::Result<collectives::ReadyMarkPtr> mark_now(const Readiness& waits_for, Device& device) {
  RONDE_RETURN_IF_ERROR(device.check_stream(waits_for.stream));
  return device.mark(waits_for.stream, waits_for.event);
}

const std::string& name_of_view(const LocalTensor& tensor, std::size_t view) {
  const auto& members = tensor.signature.members;
  return members.empty() ? tensor.name : members[view].name;
}

Status check_memory(const LocalTensor& tensor, bool declared_device, Device& device) {
  for (std::size_t i = 0; i < tensor.views.size(); ++i) {
    const base::TensorView& view = tensor.views[i];
    if (view.elements.value() == 0) continue;
    const std::string& name = name_of_view(tensor, i);
    const bool in_place = view.input == view.output;
    if (view.input != nullptr) {
      RONDE_RETURN_IF_ERROR(
          check_pointer(name, in_place ? "tensor" : "input", view.input, declared_device, device));
    }
    if (view.output == nullptr || in_place) continue;
    RONDE_RETURN_IF_ERROR(check_pointer(name, "output", view.output, declared_device, device));
  }
  return {};
}

}  // namespace

Status check_places(const LocalTensor& tensor, Device* device, const std::string& none) {
  const Signature& is = tensor.signature;
  if (!on_device(is)) {
    return device == nullptr ? Status() : check_memory(tensor, false, *device);
  }
  if (device == nullptr) {
    return wrong_device(tensor.name,
                        declared_as(is) + ", but this engine serves no device: " + none,
                        Code::kUnsupported);
  }
  if (is.device != device->number()) {
    return wrong_device(tensor.name, declared_as(is) + ", but this rank uses device " +
                                         std::to_string(device->number()));
  }
  return check_memory(tensor, true, *device);
}

Status mark_ready(LocalTensor& tensor, Device& device) {
  // The members of a group share a few streams, so one mark serves all that name the same.
  std::map<std::pair<void*, void*>, collectives::ReadyMarkPtr> known;
  for (std::size_t i = 0; i < tensor.readiness.size(); ++i) {
    const Readiness& waits_for = tensor.readiness[i];
    collectives::ReadyMarkPtr& mark = known[{waits_for.stream, waits_for.event}];
    if (mark == nullptr) {
      auto marked = mark_now(waits_for, device);
      Status why = marked.status();
      if (why.code() == Code::kClosed) return why;
      if (!marked.ok()) return wrong_device(name_of_view(tensor, i), why.message(), why.code());
      mark = std::move(*marked);
    }
    tensor.ready.push_back(mark);
  }
  return {};
}

}  // namespace ronde::runtime
