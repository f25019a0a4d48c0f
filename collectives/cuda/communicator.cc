// SPDX-License-Identifier: Apache-2.0
// How moves become calls of NCCL, and how calls that go on in the background are awaited.
#include "collectives/cuda/communicator.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"

namespace ronde::collectives::cuda {

namespace {

using base::Code;
using base::DType;
using base::ReduceOp;
using base::Result;
using base::Status;

bool is_error(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return ncclInt8;
    case DType::kU32:
      return ncclUint32;
    case DType::kI32:
      return ncclInt32;
    case DType::kU64:
      return ncclUint64;
    case DType::kI64:
      return ncclInt64;
    case DType::kF16:
      return ncclFloat16;
    case DType::kBf16:
      return ncclBfloat16;
    case DType::kF32:
      return ncclFloat32;
    case DType::kF64:
      return ncclFloat64;
    default:
      base::check(dtype == DType::kU8, "a dtype that NCCL has");
      return ncclUint8;
  }
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kAverage:
      return ncclAvg;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kProduct:
      return ncclProd;
    default:
      base::check(op == ReduceOp::kSum, "a reduction that NCCL has");
      return ncclSum;
  }
}

// A multiplier as NCCL reads it: a number of the type of the sum.
class Scalar {
 public:
  Scalar(DType dtype, double value) {
    const auto single = static_cast<float>(value);
    if (dtype == DType::kF64) {
      store(value);
    } else if (dtype == DType::kF16) {
      store(__float2half_rn(single));
    } else if (dtype == DType::kBf16) {
      store(__float2bfloat16_rn(single));
    } else {
      store(single);
    }
  }
  [[nodiscard]] void* get() { return bytes_; }

 private:
  template <class T>
  void store(T value) {
    std::memcpy(bytes_, &value, sizeof value);
  }
  alignas(8) unsigned char bytes_[8] = {};
};

// Waits between two looks, at first without sleep, since most calls end within microseconds. A call
// that has taken 50 ms is the start of a communicator, or lasts for ever.
class Pause {
 public:
  void wait() {
    ++rounds_;
    if (rounds_ < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(rounds_ < kYields + kShortSleeps ? kShortSleep : kLongSleep);
    }
  }

 private:
  static constexpr int kYields = 200;
  static constexpr int kShortSleeps = 1000;
  static constexpr std::chrono::microseconds kShortSleep{50};
  static constexpr std::chrono::microseconds kLongSleep{1000};

  int rounds_ = 0;
};

// Operations made for one group; they may be destroyed once it is in the stream.
class Operations {
 public:
  Operations(const NcclApi& nccl, ncclComm_t handle) : nccl_(nccl), handle_(handle) {}
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;
  ~Operations() {
    for (const ncclRedOp_t op : made_) nccl_.red_op_destroy(op, handle_);
  }
  ncclResult_t make(const Move& move) {
    ncclRedOp_t op = nccl_op(move.fold.op);
    if (move.fold.multiplier != 1.0) {
      Scalar scalar(move.dtype, move.fold.multiplier);
      const auto result = nccl_.red_op_create_pre_mul_sum(&op, scalar.get(), nccl_type(move.dtype),
                                                          ncclScalarHostImmediate, handle_);
      if (result != ncclSuccess) return result;
      made_.push_back(op);
    }
    ops_.push_back(op);
    return ncclSuccess;
  }
  [[nodiscard]] std::span<const ncclRedOp_t> ops() const { return ops_; }

 private:
  const NcclApi& nccl_;
  ncclComm* const handle_;
  std::vector<ncclRedOp_t> ops_;
  std::vector<ncclRedOp_t> made_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::open(const NcclApi& nccl,
                                                         const ncclUniqueId& id, const Group& group,
                                                         const Patience& patience) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t handle = nullptr;
  const auto result = nccl.comm_init_rank_config(&handle, group.size, id, group.rank, &config);
  std::unique_ptr<Communicator> communicator(new Communicator(nccl, handle));
  if (is_error(result)) return communicator->failed("starting", result);
  RONDE_RETURN_IF_ERROR(communicator->ready("starting", patience));
  return communicator;
}

Status Communicator::failed(const char* action, ncclResult_t result) {
  std::string text = std::string("NCCL, ") + action + ": " + nccl_.get_error_string(result);
  const char* const more = handle_ == nullptr ? nullptr : nccl_.get_last_error(handle_);
  if (more != nullptr && *more != '\0') text += std::string(" (") + more + ")";
  std::replace(text.begin(), text.end(), '\n', ' ');
  return Status::error(Code::kTransport, text);
}

Status Communicator::check() {
  if (handle_ == nullptr) return {};
  ncclResult_t state = ncclSuccess;
  const auto result = nccl_.comm_get_async_error(handle_, &state);
  if (result != ncclSuccess) return failed("asking for errors", result);
  return is_error(state) ? failed("running", state) : Status();
}

Status Communicator::ready(const char* action, const Patience& patience) {
  const base::SteadyClock clock;
  Pause pause;
  while (true) {
    ncclResult_t state = ncclSuccess;
    const auto result = nccl_.comm_get_async_error(handle_, &state);
    if (is_error(result)) return failed(action, result);
    if (state == ncclSuccess) return {};
    if (state != ncclInProgress) return failed(action, state);
    if (patience.given_up != nullptr && patience.given_up->load()) {
      return Status::error(Code::kClosed, std::string("NCCL, ") + action + ": given up");
    }
    if (clock.now() >= patience.deadline) {
      return Status::error(Code::kDeadline, std::string("NCCL, ") + action +
                                                ": the other ranks did not join in time");
    }
    pause.wait();
  }
}

Status Communicator::issue(const Move& move, ncclRedOp_t op, Stream stream) {
  const auto count = base::narrow<std::size_t>(move.elements);
  const ncclDataType_t type = nccl_type(move.dtype);
  ncclResult_t result = ncclSuccess;
  switch (move.kind) {
    case MoveKind::kAllreduce:
      result = nccl_.all_reduce(move.from, move.to, count, type, op, handle_, stream);
      break;
    case MoveKind::kBroadcast:
      result = nccl_.broadcast(move.from, move.to, count, type, move.peer, handle_, stream);
      break;
    case MoveKind::kReduce:
      result = nccl_.reduce(move.from, move.to, count, type, op, move.peer, handle_, stream);
      break;
    case MoveKind::kSend:
      result = nccl_.send(move.from, count, type, move.peer, handle_, stream);
      break;
    case MoveKind::kReceive:
      result = nccl_.recv(move.to, count, type, move.peer, handle_, stream);
      break;
  }
  return is_error(result) ? failed("calling", result) : Status();
}

Status Communicator::issue_group(std::span<const Move> moves, std::span<const ncclRedOp_t> ops,
                                 Stream stream) {
  if (const auto result = nccl_.group_start(); is_error(result)) return failed("grouping", result);
  Status status;
  for (std::size_t i = 0; i < moves.size() && status.ok(); ++i) {
    status = issue(moves[i], ops[i], stream);
  }
  // The group is ended after an error too: it belongs to this thread.
  const auto result = nccl_.group_end();
  if (status.ok() && is_error(result)) status = failed("grouping", result);
  return status;
}

Status Communicator::run(std::span<const Move> moves, Stream stream, const Patience& patience) {
  if (moves.empty()) return {};
  if (handle_ == nullptr) return Status::error(Code::kClosed, "NCCL: the communicator is gone");
  Operations operations(nccl_, handle_);
  for (const Move& move : moves) {
    if (const auto result = operations.make(move); result != ncclSuccess) {
      return failed("making an operation", result);
    }
  }
  RONDE_RETURN_IF_ERROR(issue_group(moves, operations.ops(), stream));
  return ready("putting a batch into its stream", patience);
}

void Communicator::abort() {
  if (handle_ == nullptr) return;
  nccl_.comm_abort(std::exchange(handle_, nullptr));
}

void Communicator::close(const Patience& patience) {
  if (handle_ == nullptr) return;
  if (is_error(nccl_.comm_finalize(handle_)) || !ready("closing", patience).ok()) return abort();
  nccl_.comm_destroy(std::exchange(handle_, nullptr));
}

}  // namespace ronde::collectives::cuda
