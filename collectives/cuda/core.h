// SPDX-License-Identifier: Apache-2.0
// What the threads of one engine share: its streams, the first failure, and the doorbell of Ronde.
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

// Notifies Ronde as long as the engine is open; calls that CUDA makes later do nothing.
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
  // Records a failure; returns true if it is the first.
  bool give_up(const std::string& why);
  // Becomes true with the first failure: results of the device do not count from then on.
  [[nodiscard]] const std::atomic<bool>& given_up() const { return given_up_; }
  [[nodiscard]] std::string why() const;
  [[nodiscard]] base::Status status() const;

  // Records that the device has nothing more to do for this engine.
  void end();
  [[nodiscard]] bool ended() const { return ended_.load(); }
  // Whether the failure is at least this old: not even NCCL's abort may hold up others for ever.
  [[nodiscard]] bool has_lasted(base::Nanoseconds time) const;
  // Waits for end(), at most this long.
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
  // Frees everything, unless the driver is gone or the device is still busy.
  ~Core();

  // Makes the streams; the device must be current.
  base::Status make_streams();
  // Rings when all before the event `done` is over; its stream goes on meanwhile. `chime_of` is the
  // chime of that stream.
  base::Status ring_after(Event done, Stream chime_of);
  // Waits, at most this long and only the first time, until all streams are idle; returns whether
  // they are. The device must be current.
  bool drain(base::Nanoseconds longest);
  // Whether drain() has found a stream that was not idle in time.
  [[nodiscard]] bool is_stuck() const { return stuck_.load(); }

  const std::shared_ptr<CudaApi> cuda;
  const std::shared_ptr<Pools> pools;
  const std::shared_ptr<Doorbell> bell;
  Failure failure;
  Stream comm = nullptr;  // packing and NCCL
  Stream gate = nullptr;  // waits for tensors that are not ready, so that comm waits for its batch
  Stream out = nullptr;   // staging
  Stream in = nullptr;
  Stream marks = nullptr;   // records the events of Engine::mark()
  Stream memory = nullptr;  // allocates, and nothing else
  // The chimes call the host after a copy, which must not hold up other streams. (The issuer looks
  // after batches by itself.)
  Stream out_chime = nullptr;
  Stream in_chime = nullptr;
  base::Nanoseconds start_timeout{};
  base::Nanoseconds stall_failure{};
  base::Nanoseconds shutdown_timeout{};

 private:
  void free_everything();
  [[nodiscard]] std::array<Stream*, 8> streams() {
    return {&comm, &gate, &out, &in, &marks, &memory, &out_chime, &in_chime};
  }
  std::atomic<bool> stuck_{false};
};

}  // namespace ronde::collectives::cuda
