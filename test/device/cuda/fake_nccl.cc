// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL that the plug-in calls: they record groups and put them into streams.
#include "test/device/cuda/fake_nccl.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "collectives/kernels/float16.h"
#include "test/device/cuda/fake_cuda.h"
#include "test/device/cuda/fake_hub.h"
#include "test/device/cuda/fake_state.h"
#include "test/device/toy_memory.h"

namespace ronde::fake {
namespace {

using base::DType;
using base::ReduceOp;

struct Pending {
  Group group;
  toy::Stream* stream;
};

}  // namespace

// What kernels in streams still use when the communicator is gone.
struct Shared {
  std::shared_ptr<Hub> hub;
  int rank = 0;
  std::atomic<bool> mismatch{false};
};

}  // namespace ronde::fake

struct ncclComm {
  std::shared_ptr<ronde::fake::Shared> shared = std::make_shared<ronde::fake::Shared>();
  std::deque<ronde::fake::Pending> pending;  // after the end of their group
  int steps_left = 0;
  std::uint64_t groups = 0;
  std::map<int, double> multipliers;  // by operation
  int next_op = ncclNumOps;
};

namespace ronde::fake {
namespace {

State& state() { return State::instance(); }

// The group that a thread is putting together.
struct OpenGroup {
  int depth = 0;
  ncclComm_t comm = nullptr;
  Pending pending{};
};
OpenGroup& open_group() {
  thread_local OpenGroup group;
  return group;
}

DType dtype_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return DType::kI8;
    case ncclInt32:
      return DType::kI32;
    case ncclUint32:
      return DType::kU32;
    case ncclInt64:
      return DType::kI64;
    case ncclUint64:
      return DType::kU64;
    case ncclFloat16:
      return DType::kF16;
    case ncclFloat32:
      return DType::kF32;
    case ncclFloat64:
      return DType::kF64;
    case ncclBfloat16:
      return DType::kBf16;
    default:
      return DType::kU8;
  }
}

double scalar_of(const void* scalar, ncclDataType_t type) {
  std::uint16_t half = 0;
  float single = 0;
  double wide = 0;
  std::memcpy(&half, scalar, sizeof half);
  if (type == ncclFloat64) {
    std::memcpy(&wide, scalar, sizeof wide);
    return wide;
  }
  if (type == ncclFloat16) {
    return __builtin_bit_cast(
        float, collectives::bits_of_f16_widened<std::int32_t, float, std::uint32_t>(half));
  }
  if (type == ncclBfloat16) return __builtin_bit_cast(float, std::uint32_t{half} << 16U);
  std::memcpy(&single, scalar, sizeof single);
  return single;
}

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, Operation operation) {
  OpenGroup& group = open_group();
  // The engine makes calls in groups alone, of one communicator, that is not at work on the last.
  if (group.depth != 1 || !comm->pending.empty() || (group.comm != nullptr && group.comm != comm)) {
    return ncclInvalidUsage;
  }
  group.comm = comm;
  group.pending.stream = &stream_of(stream);
  group.pending.group.push_back(operation);
  return ncclInProgress;
}

Operation operation_of(Operation::Kind kind, const void* from, void* to, std::size_t count,
                       ncclDataType_t type, int peer) {
  auto& memory = toy::Memory::instance();
  Operation operation;
  operation.kind = kind;
  operation.from = from == nullptr ? nullptr : memory.view(from);
  operation.to = to == nullptr ? nullptr : memory.view(to);
  operation.elements = static_cast<std::int64_t>(count);
  operation.dtype = dtype_of(type);
  operation.peer = peer;
  return operation;
}

void set_op(ncclComm_t comm, ncclRedOp_t op, Operation& operation) {
  static constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMax,
                                      ReduceOp::kMin, ReduceOp::kAverage};
  if (op < ncclNumOps) {
    operation.op = kOps[op];
  } else {
    operation.multiplier = comm->multipliers.at(op);
  }
}

// Into the stream, where it waits for the other ranks.
void launch(ncclComm_t comm) {
  Pending pending = std::move(comm->pending.front());
  comm->pending.pop_front();
  state().add("launches", 1);
  state().note("comm: nccl " + std::to_string(pending.group.size()));
  pending.stream->put(
      [shared = comm->shared, number = comm->groups++, group = std::move(pending.group)] {
        if (!shared->hub->run(shared->rank, number, group)) shared->mismatch = true;
      });
}

std::shared_ptr<Hub> hub_of(const ncclUniqueId& id, int size) {
  static std::mutex mutex;
  static auto* const kHubs = new std::map<std::string, std::weak_ptr<Hub>>;
  const std::lock_guard lock(mutex);
  auto& known = (*kHubs)[id.internal];
  auto hub = known.lock();
  if (hub == nullptr) {
    hub = std::make_shared<Hub>(size);
    known = hub;
  }
  return hub;
}

ncclResult_t comm_init(ncclComm_t* result, int size, ncclUniqueId id, int rank,
                       ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidArgument;
  auto comm = std::make_unique<ncclComm>();
  comm->shared->hub = hub_of(id, size);
  comm->shared->rank = rank;
  comm->shared->hub->join();
  comm->steps_left = state().get("steps");
  state().keep(comm.get());
  *result = comm.release();
  return ncclInProgress;
}

ncclResult_t get_async_error(ncclComm_t comm, ncclResult_t* result) {
  *result = ncclSuccess;
  if (state().get("async_error") != 0) {
    *result = ncclRemoteError;
  } else if (comm->shared->mismatch) {
    *result = ncclInvalidArgument;
  } else if (state().get("start_never") != 0 || !comm->shared->hub->complete() ||
             comm->steps_left-- > 0) {
    *result = ncclInProgress;
  } else if (!comm->pending.empty()) {
    launch(comm);
  }
  return ncclSuccess;
}

ncclResult_t group_end() {
  OpenGroup group = std::exchange(open_group(), {});
  if (group.comm == nullptr) return ncclSuccess;
  group.comm->steps_left = state().get("steps");
  group.comm->pending.push_back(std::move(group.pending));
  return ncclInProgress;
}

ncclResult_t abort_comm(ncclComm_t comm) {
  state().add("aborted", 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(state().get("abort_delay")));
  comm->shared->hub->leave(comm->shared->rank);
  delete comm;
  return ncclSuccess;
}

ncclResult_t all_reduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  Operation one = operation_of(Operation::Kind::kAllreduce, from, to, count, type, 0);
  set_op(comm, op, one);
  return add(comm, stream, one);
}

ncclResult_t reduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                    ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  Operation one = operation_of(Operation::Kind::kReduce, from, to, count, type, root);
  set_op(comm, op, one);
  return add(comm, stream, one);
}

ncclResult_t broadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, operation_of(Operation::Kind::kBroadcast, from, to, count, type, root));
}

ncclResult_t send(const void* from, std::size_t count, ncclDataType_t type, int peer,
                  ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, operation_of(Operation::Kind::kSend, from, nullptr, count, type, peer));
}

ncclResult_t receive(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                     cudaStream_t stream) {
  return add(comm, stream, operation_of(Operation::Kind::kReceive, nullptr, to, count, type, peer));
}

ncclResult_t create_op(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                       ncclScalarResidence_t residence, ncclComm_t comm) {
  if (residence != ncclScalarHostImmediate) return ncclInvalidArgument;
  *op = static_cast<ncclRedOp_t>(comm->next_op++);
  comm->multipliers[*op] = scalar_of(scalar, type);
  return ncclSuccess;
}

ncclResult_t get_unique_id(ncclUniqueId* id) {
  static std::atomic<int> next{0};
  std::snprintf(id->internal, sizeof id->internal, "job %d", next++);
  return ncclSuccess;
}

}  // namespace

base::Result<collectives::cuda::NcclApi> fake_nccl() {
  if (state().get("no_nccl") != 0) {
    return base::Status::error(base::Code::kUnsupported, "there is no fake NCCL");
  }
  collectives::cuda::NcclApi api;
  api.get_unique_id = get_unique_id;
  api.get_error_string = [](ncclResult_t result) -> const char* {
    return result == ncclRemoteError ? "a peer has failed" : "a fake error";
  };
  api.get_last_error = [](ncclComm_t) -> const char* { return ""; };
  api.comm_init_rank_config = comm_init;
  api.comm_get_async_error = get_async_error;
  api.comm_finalize = [](ncclComm_t comm) {
    comm->steps_left = state().get("steps");
    return ncclInProgress;
  };
  api.comm_destroy = [](ncclComm_t comm) {
    state().add("destroyed", 1);
    delete comm;
    return ncclSuccess;
  };
  api.comm_abort = abort_comm;
  api.group_start = [] {
    ++open_group().depth;
    return ncclSuccess;
  };
  api.group_end = group_end;
  api.all_reduce = all_reduce;
  api.broadcast = broadcast;
  api.reduce = reduce;
  api.send = send;
  api.recv = receive;
  api.red_op_create_pre_mul_sum = create_op;
  api.red_op_destroy = [](ncclRedOp_t, ncclComm_t) { return ncclSuccess; };
  // Versions that differ between the ranks, if a test wants that.
  api.version = 22809 + (state().get("nccl_version") != 0 ? state().add("asked", 1) : 0);
  return api;
}

}  // namespace ronde::fake
