// SPDX-License-Identifier: Apache-2.0
// NCCL as a table of its functions, which are found when the program runs: one build serves
// machines without NCCL, and tests bring a table of their own.
#pragma once

#include <nccl.h>

#include <string>

#include "base/status.h"

namespace ronde::collectives::cuda {

// Functions are named without their prefix: all_reduce is ncclAllReduce.
struct NcclApi {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclCommFinalize) comm_finalize = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
  decltype(&ncclRedOpCreatePreMulSum) red_op_create_pre_mul_sum = nullptr;
  decltype(&ncclRedOpDestroy) red_op_destroy = nullptr;

  int version = 0;  // 22809 is 2.28.9
};

// The oldest version that we use: it has non-blocking communicators that can be aborted.
inline constexpr int kOldestNccl = 21400;

// A version as text: "2.28.9".
[[nodiscard]] std::string nccl_version_text(int version);

// Loads the library of that name from the places where the loader looks. kUnsupported: there is
// none, or it is too old, or lacks a function, which the text names.
base::Result<NcclApi> load_nccl(const std::string& library = "libnccl.so.2");

}  // namespace ronde::collectives::cuda
