// SPDX-License-Identifier: Apache-2.0
// Every field of a request is checked and translated here, apart from the calls that take requests.
#include "bindings/c/request.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "base/text.h"
#include "runtime/tensors/submission.h"

namespace ronde::bindings {

using base::Code;
using base::Result;
using base::Status;
using runtime::Operation;
using runtime::Submission;

// The enumerations of the C ABI and of the runtime must have the same values.
static_assert(RONDE_BOOL == static_cast<int>(base::DType::kBool));
static_assert(RONDE_F32 == static_cast<int>(base::DType::kF32));
static_assert(RONDE_AVERAGE == static_cast<int>(base::ReduceOp::kAverage));
static_assert(RONDE_PRODUCT == static_cast<int>(base::ReduceOp::kProduct));
static_assert(RONDE_BXOR == static_cast<int>(base::ReduceOp::kBitXor));
static_assert(RONDE_COMPRESSION_F16 == static_cast<int>(base::Compression::kF16));
// There is no padding at the end: a younger field would hide in it, in a struct of the same size.
static_assert(sizeof(ronde_request) == offsetof(ronde_request, weight) + sizeof(double));

Status null_argument(const char* what) {
  return Status::error(Code::kInvalidArgument, std::string(what) + " is a null pointer");
}

template <>
ronde_request defaults_of<ronde_request>() {
  ronde_request request{};
  request.struct_size = sizeof(request);
  request.dtype = RONDE_F32;
  request.op = RONDE_AVERAGE;
  request.prescale = 1.0;
  request.postscale = 1.0;
  request.device = RONDE_DEVICE_CPU;
  request.compression = RONDE_COMPRESSION_NONE;
  request.step = -1;
  request.weight = 1.0;
  return request;
}

namespace {

// The last part of a path is enough to find the call, and is the same on every rank.
std::string place_of(const ronde_request& request) {
  if (request.file == nullptr) return "";
  const char* slash = std::strrchr(request.file, '/');
  return std::string(slash == nullptr ? request.file : slash + 1) + ":" +
         std::to_string(request.line);
}

Status check_unused(const ronde_request& request, const std::string& name) {
  const auto unsupported = [&](const std::string& what) {
    return Status::error(Code::kUnsupported, "'" + name + "': " + what);
  };
  if (request.device < RONDE_DEVICE_CPU) {
    return unsupported("device " + std::to_string(request.device) +
                       ": set it to the number of a device, or to RONDE_DEVICE_CPU");
  }
  const bool of_host = request.device == RONDE_DEVICE_CPU;
  if (of_host && (request.stream != nullptr || request.ready_event != nullptr)) {
    return unsupported("streams and events belong to devices: leave them NULL, or set device");
  }
  constexpr std::uint64_t kKnown =
      RONDE_FLAG_WILL_WAIT | RONDE_FLAG_STEP_AGREES | RONDE_FLAG_WEIGHTED;
  if ((request.flags & ~kKnown) != 0) {
    return unsupported("unknown flags");
  }
  if (request.reserved != 0) return unsupported("reserved must be 0");
  return {};
}

// Whether the arrays of a request are as long as the request says, and there where it says so.
Status check_lengths(const ronde_request& request, const std::string& name) {
  const auto wrong = [&](const std::string& what) {
    return Status::error(Code::kInvalidArgument, "'" + name + "': " + what);
  };
  if (request.dimensions < 0 || (request.dimensions > 0 && request.shape == nullptr)) {
    return wrong("dimensions is " + std::to_string(request.dimensions) +
                 ": give it the length of shape");
  }
  if (request.dimensions == 0 && request.shape != nullptr) {
    return wrong(
        "shape is set and dimensions is 0: give it the length of shape, or leave shape "
        "NULL for a scalar");
  }
  if (request.split_count < 0 || (request.split_count > 0) != (request.splits != nullptr)) {
    return wrong("split_count is " + std::to_string(request.split_count) +
                 ": give it the length of splits, or 0 with splits NULL");
  }
  return {};
}

Result<runtime::StepNumber> step_of(const ronde_request& request) {
  const bool agrees = (request.flags & RONDE_FLAG_STEP_AGREES) != 0;
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  if (request.step < -1 || request.step > kMost || (agrees && request.step < 0)) {
    return Status::error(Code::kInvalidArgument,
                         std::string("'") + request.name + "': step is " +
                             std::to_string(request.step) +
                             ": give it a number from 0 to 2^62, or, without "
                             "RONDE_FLAG_STEP_AGREES, -1");
  }
  if (request.step < 0) return runtime::StepNumber();
  return agrees ? runtime::StepNumber::agreed(request.step)
                : runtime::StepNumber::counted(request.step);
}

base::TensorView memory_of(Operation operation, const ronde_request& request) {
  const base::OperationRow& is = row(operation);
  const bool alone = request.input == nullptr;
  base::TensorView memory;
  memory.output = static_cast<std::byte*>(request.output);
  // A block in place is not where the input begins, so it cannot replace it.
  memory.input = alone && is.out != base::Extent::kBlock
                     ? memory.output
                     : static_cast<const std::byte*>(request.input);
  // What is given as the input alone is no room for a result.
  if (alone && is.makes_result()) memory.output = nullptr;
  return memory;
}

}  // namespace

Result<base::Nanoseconds> deadline_of(const std::string& name, std::int64_t deadline_ns) {
  if (deadline_ns >= 0) return base::Nanoseconds(deadline_ns);
  return Status::error(Code::kInvalidArgument,
                       "'" + name + "': deadline_ns is " + std::to_string(deadline_ns) +
                           ": give it the nanoseconds from now on, or 0 for that of the engine");
}

Result<Submission> translate(Operation operation, const ronde_request* given) {
  RONDE_ASSIGN_OR_RETURN(const auto request, read_struct(given, "ronde_request"));
  if (request.name == nullptr) return null_argument("name");
  Submission submission;
  submission.name = request.name;
  RONDE_RETURN_IF_ERROR(check_unused(request, submission.name));
  submission.place = place_of(request);
  submission.will_wait = (request.flags & RONDE_FLAG_WILL_WAIT) != 0;
  RONDE_ASSIGN_OR_RETURN(submission.step, step_of(request));
  RONDE_ASSIGN_OR_RETURN(submission.deadline, deadline_of(request.name, request.deadline_ns));
  auto& signature = submission.signature;
  signature.operation = operation;
  signature.device = request.device;
  if (request.device >= 0) submission.readiness = {{request.stream, request.ready_event}};
  if (row(operation).is_barrier()) {
    if (request.device >= 0) signature.operation = Operation::kDeviceBarrier;
    return submission;
  }

  const auto wrong = [&](const std::string& what) {
    return Status::error(Code::kInvalidArgument, "'" + submission.name + "': " + what);
  };
  const auto dtype = base::dtype_from_value(request.dtype);
  if (!dtype) return wrong("dtype " + std::to_string(request.dtype) + " is no ronde_dtype");
  const auto op = base::reduce_op_from_value(request.op);
  if (!op) return wrong("op " + std::to_string(request.op) + " is no ronde_op");
  RONDE_RETURN_IF_ERROR(check_lengths(request, submission.name));
  signature.dtype = *dtype;
  signature.op = *op;
  signature.root = request.root;
  signature.priority = request.priority;
  signature.prescale = request.prescale;
  signature.postscale = request.postscale;
  signature.weighted = (request.flags & RONDE_FLAG_WEIGHTED) != 0;
  if (signature.weighted && !row(operation).reduces) {
    return wrong("RONDE_FLAG_WEIGHTED is set, but it averages nothing: leave the flag out");
  }
  if (!signature.weighted && request.weight != 1.0) {
    return wrong("its weight is " + base::number_text(request.weight, 17) +
                 " without RONDE_FLAG_WEIGHTED: set the flag on every rank, or leave weight at 1");
  }
  if (signature.weighted) submission.weights = {request.weight};
  const auto compression = base::compression_from_value(request.compression);
  if (!compression) {
    return wrong("compression " + std::to_string(request.compression) + " is no ronde_compression");
  }
  signature.compression = *compression;
  if (request.splits != nullptr) {
    submission.splits.assign(request.splits, request.splits + request.split_count);
  }
  if (request.shape != nullptr) {
    signature.shape.assign(request.shape, request.shape + request.dimensions);
  }
  submission.views.front() = memory_of(operation, request);
  return submission;
}

Result<Submission> translate_group(Operation operation, const ronde_request* requests,
                                   int32_t count) {
  if (requests == nullptr) return null_argument("requests");
  if (count < 1) {
    return Status::error(Code::kInvalidArgument,
                         "a group of " + std::to_string(count) + " requests: give it at least one");
  }
  // The caller's structs may be smaller or larger than ours.
  const std::size_t stride = requests->struct_size;
  const auto* next = reinterpret_cast<const std::byte*>(requests);
  std::vector<Submission> tensors;
  for (int32_t i = 0; i < count; ++i) {
    const auto* request = reinterpret_cast<const ronde_request*>(next);
    if (request->struct_size != stride || stride % alignof(ronde_request) != 0) {
      return Status::error(Code::kInvalidArgument, "requests[" + std::to_string(i) +
                                                       "] has another struct_size than the "
                                                       "first: fill each with ronde_request_init");
    }
    RONDE_ASSIGN_OR_RETURN(auto tensor, translate(operation, request));
    tensors.push_back(std::move(tensor));
    next += stride;
  }
  return runtime::group_of(std::move(tensors));
}

}  // namespace ronde::bindings
