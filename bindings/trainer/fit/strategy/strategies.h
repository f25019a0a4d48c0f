// SPDX-License-Identifier: Apache-2.0
// The strategies, but for that with servers (server/strategy.h). Each is made once, before models
// and data:
//
//   Mirrored strategy(2);
//   const Scope scope(strategy);
//   Sequential model{dense(128, relu), dense(10)};
//
// All throw TrainerError for what cannot be, and ronde::Error where the job cannot begin.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/trainer/fit/callbacks.h"
#include "bindings/trainer/fit/strategy/strategy.h"

namespace ronde::trainer {

// Passes everything through to the only replica: what is current where nothing was chosen.
class Default final : public Strategy {
 public:
  Default();
};

// One replica, on a device that is named: "/cpu:1" is the second core that this process may use, to
// which the replica is pinned; "cpu" leaves the choice to the kernel.
class OneDevice final : public Strategy {
 public:
  explicit OneDevice(const std::string& device, int threads = 1);
};

// Replicas in this process, each on a thread of its own with its own copy of the variables. Its
// bits are those of as many processes on one host, with as many threads each.
class Mirrored final : public Strategy {
 public:
  // At most 64. `threads`: of each replica's kernels; 0: the cores divided by the replicas.
  explicit Mirrored(std::size_t replicas, CrossDeviceOps cross_device = {}, int threads = 1);
  // A replica on each of these devices, pinned as OneDevice's is: {"/cpu:0", "/cpu:1"}. Throws
  // TrainerError for a core that there is not.
  explicit Mirrored(const std::vector<std::string>& devices, CrossDeviceOps cross_device = {},
                    int threads = 1);

 private:
  Mirrored(std::size_t replicas, std::vector<Cores> cores, CrossDeviceOps cross_device,
           int threads);
};

struct MultiWorkerOptions {
  // What sums gradients between processes: kAuto leaves it to Ronde, kRing forces its ring, kNccl
  // is refused, since models are trained in host memory.
  enum class Communication : std::uint8_t { kAuto, kRing, kNccl };

  Communication communication = Communication::kAuto;
  std::size_t replicas = 1;         // of each worker, on threads of its process
  std::chrono::seconds timeout{0};  // for the others to begin; 0: RONDE_START_TIMEOUT_SECONDS
  int threads = 1;                  // of the replica's kernels
  PrintLine say{};  // prints, on the chief, what was chosen; empty: on standard output
};

// Replicas in each process of the job, however that was started: mpirun, torchrun, TF_CONFIG, by
// hand. Several in a process are ranks of one larger job, which meet at a free port of the chief's
// host.
class MultiWorkerMirrored final : public Strategy {
 public:
  explicit MultiWorkerMirrored(const MultiWorkerOptions& options = {});
};

// Replicas in this process that read the same variables; gradients are summed before the first of
// them applies the update.
class CentralStorage final : public Strategy {
 public:
  explicit CentralStorage(std::size_t replicas, int threads = 1);
};

}  // namespace ronde::trainer
