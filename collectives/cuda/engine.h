// SPDX-License-Identifier: Apache-2.0
// One engine of this back end: the functions of plugin.h, in C++.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/cuda/batch_plan.h"
#include "collectives/cuda/core.h"
#include "collectives/cuda/identity.h"
#include "collectives/cuda/issuer.h"
#include "collectives/device/plugin.h"

// A moment in a stream, as an event of this engine. Without an event: it had passed when it was
// marked.
struct ronde_plugin_mark {
  ronde::collectives::cuda::EventLease moment;
};

namespace ronde::collectives::cuda {

// The level of a warning in ronde_plugin_host::log.
inline constexpr int kWarning = 3;

// Thread safety: as plugin.h says for its functions.
class Engine {
 public:
  struct Opened {
    std::unique_ptr<Engine> engine;
    DeviceInfo device;
    bool has_collectives = false;
    std::string nccl;  // its version, or "no NCCL"
  };
  // Opens an engine on every rank. kUnsupported: some rank has no device.
  static base::Result<Opened> open(const ronde_plugin_host& host);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  // Ends what is under way.
  ~Engine();

  void abort(const std::string& why);
  base::Result<MemoryPlace> place_of(const void* pointer);
  base::Status check_stream(Stream stream);
  // Marks the event, or all that is in the stream. May be called from any thread; later uses of
  // both do not change the mark.
  base::Result<std::unique_ptr<ronde_plugin_mark>> mark(Stream stream, Event ready_event);

  // Starts a batch. kInvalidArgument: this back end cannot do it, on any rank.
  base::Result<std::shared_ptr<Task>> execute(const ronde_plugin_batch& batch);
  // Returns whether it is over.
  base::Result<bool> poll(Task& task);
  // Makes the stream wait. May be called from any thread. False: ask again when the engine has
  // rung.
  base::Result<bool> wait_on(const Task& task, Stream stream);

  base::Result<void*> allocate_host(std::size_t bytes);
  void free_host(void* memory);
  base::Result<std::shared_ptr<Task>> copy_out(const ronde_plugin_copy& copy);
  base::Result<std::shared_ptr<Task>> copy_in(const ronde_plugin_copy& copy);

  // Allocates memory of device(), which free_result() frees; any stream may use it at once.
  base::Result<void*> allocate(std::size_t bytes);
  [[nodiscard]] int device() const { return device_; }

 private:
  Engine(std::shared_ptr<Core> core, const Group& group, int device)
      : core_(std::move(core)), group_(group), device_(device) {}

  static base::Result<std::unique_ptr<Engine>> make(const std::shared_ptr<CudaApi>& cuda,
                                                    const ronde_plugin_host& host, int device);
  static base::Result<std::vector<Identity>> introduce(const ronde_plugin_host& host,
                                                       const Identity& mine);
  // Joins the ranks by NCCL. False, with a line in the log: the job goes on without collectives.
  bool join(const ronde_plugin_host& host, const NcclApi& nccl, const ncclUniqueId& id);
  base::Status try_collective(base::Instant end);
  base::Status refuse_captured(Stream stream, const char* before);
  base::Status wait_for_tensors(std::span<const ronde_plugin_tensor> tensors, Stream stream);
  base::Status wait_for_memory(Event there);
  [[nodiscard]] base::Status no_memory(const char* what, std::size_t bytes,
                                       const base::Status& why) const;
  base::Result<std::shared_ptr<Task>> put_copy(const ronde_plugin_copy& copy, bool out);
  void give_up(const std::string& why);

  const std::shared_ptr<Core> core_;
  const Group group_;
  const int device_;
  std::unique_ptr<Issuer> issuer_;  // none without collectives
};

}  // namespace ronde::collectives::cuda
