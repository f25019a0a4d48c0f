// SPDX-License-Identifier: Apache-2.0
// What the threads of one engine share: its streams, what has failed, whom to wake.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/cuda/cuda_api.h"
#include "collectives/cuda/pools.h"
#include "collectives/device/plugin.h"

namespace ronde::collectives::cuda {

// Ronde, as long as the engine is open: calls that CUDA makes later than that find nobody.
// Thread safety: all functions, from any thread.
class Doorbell {
 public:
  explicit Doorbell(const ronde_plugin_host& host) : host_(host) {}
  void ring();
  void log(int level, const std::string& text);
  void silence();

 private:
  std::mutex mutex_;
  const ronde_plugin_host host_;
  bool silent_ = false;
};

// The first error of an engine. Thread safety: all functions, from any thread.
class Failure {
 public:
  // True for the first.
  bool give_up(const std::string& why);
  // Set as soon as somebody has given up: what the device does from then on counts for nothing.
  [[nodiscard]] const std::atomic<bool>& given_up() const { return given_up_; }
  [[nodiscard]] std::string why() const;
  [[nodiscard]] base::Status status() const;

  // The device has nothing more to do for this engine.
  void end();
  [[nodiscard]] bool ended() const { return ended_.load(); }
  // So long ago somebody gave up, or longer: not even NCCL's abort may hold up others for ever.
  [[nodiscard]] bool has_lasted(base::Nanoseconds time) const;
  // Returns at the latest after so long.
  void wait_for_end(base::Nanoseconds longest);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> given_up_{false};
  std::atomic<bool> ended_{false};
  std::string why_;
  base::Instant since_{};
};

struct Core {
  Core(std::shared_ptr<CudaApi> api, const ronde_plugin_host& host)
      : cuda(std::move(api)),
        pools(std::make_shared<Pools>(cuda)),
        bell(std::make_shared<Doorbell>(host)) {}
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  // Frees everything, unless the driver is gone or the device is still at it.
  ~Core();

  // With the device current.
  base::Status make_streams();
  // Rings when what `done` was recorded behind is over; that stream goes on meanwhile. `chime_of`:
  // the one of that stream.
  base::Status ring_after(Event done, Stream chime_of);
  // Whether all streams are idle, waiting for it no longer than this, and not twice. With the
  // device current.
  bool drain(base::Nanoseconds longest);
  // They were not.
  [[nodiscard]] bool is_stuck() const { return stuck_.load(); }

  const std::shared_ptr<CudaApi> cuda;
  const std::shared_ptr<Pools> pools;
  const std::shared_ptr<Doorbell> bell;
  Failure failure;
  Stream comm = nullptr;  // packing and NCCL
  Stream gate = nullptr;  // waits for tensors that are not ready, so that comm waits for its batch
  Stream out = nullptr;   // staging
  Stream in = nullptr;
  Stream marks = nullptr;   // see Engine::mark()
  Stream memory = nullptr;  // allocates, and nothing else
  // Calls of the host, which must not hold up the others. One each: the bell of a copy must not
  // wait for that of a batch that waits for other ranks.
  Stream chime = nullptr;
  Stream out_chime = nullptr;
  Stream in_chime = nullptr;
  base::Nanoseconds start_timeout{};
  base::Nanoseconds stall_failure{};
  base::Nanoseconds shutdown_timeout{};

 private:
  void free_everything();
  [[nodiscard]] std::array<Stream*, 9> streams() {
    return {&comm, &gate, &out, &in, &marks, &memory, &chime, &out_chime, &in_chime};
  }
  std::atomic<bool> stuck_{false};
};

}  // namespace ronde::collectives::cuda
