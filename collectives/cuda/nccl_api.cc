// SPDX-License-Identifier: Apache-2.0
// How NCCL is loaded, and which versions are refused.
#include "collectives/cuda/nccl_api.h"

#include <dlfcn.h>

namespace ronde::collectives::cuda {

using base::Code;
using base::Status;

namespace {

// Looks functions up, and remembers the first that is missing.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <class Function>
  void find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(library_, name));
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

}  // namespace

std::string nccl_version_text(int version) {
  // Before 2.9 the digits were grouped otherwise; such old versions are refused.
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

base::Result<NcclApi> load_nccl(const std::string& library) {
  // NCCL is never closed: its threads may outlive its users.
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* const why = ::dlerror();
    return Status::error(Code::kUnsupported, std::string("there is no NCCL: ") +
                                                 (why != nullptr ? why : library.c_str()));
  }
  NcclApi api;
  Symbols symbols(handle);
  symbols.find(api.get_version, "ncclGetVersion");
  symbols.find(api.get_unique_id, "ncclGetUniqueId");
  symbols.find(api.get_error_string, "ncclGetErrorString");
  symbols.find(api.get_last_error, "ncclGetLastError");
  symbols.find(api.comm_init_rank_config, "ncclCommInitRankConfig");
  symbols.find(api.comm_get_async_error, "ncclCommGetAsyncError");
  symbols.find(api.comm_finalize, "ncclCommFinalize");
  symbols.find(api.comm_destroy, "ncclCommDestroy");
  symbols.find(api.comm_abort, "ncclCommAbort");
  symbols.find(api.group_start, "ncclGroupStart");
  symbols.find(api.group_end, "ncclGroupEnd");
  symbols.find(api.all_reduce, "ncclAllReduce");
  symbols.find(api.broadcast, "ncclBroadcast");
  symbols.find(api.reduce, "ncclReduce");
  symbols.find(api.send, "ncclSend");
  symbols.find(api.recv, "ncclRecv");
  symbols.find(api.red_op_create_pre_mul_sum, "ncclRedOpCreatePreMulSum");
  symbols.find(api.red_op_destroy, "ncclRedOpDestroy");
  if (!symbols.missing().empty()) {
    return Status::error(Code::kUnsupported,
                         library + " has no function " + symbols.missing() + ": is it NCCL?");
  }
  if (api.get_version(&api.version) != ncclSuccess || api.version < kOldestNccl) {
    return Status::error(Code::kUnsupported, library + " is NCCL " +
                                                 nccl_version_text(api.version) + "; at least " +
                                                 nccl_version_text(kOldestNccl) + " is needed");
  }
  return api;
}

}  // namespace ronde::collectives::cuda
