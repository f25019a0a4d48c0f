// SPDX-License-Identifier: Apache-2.0
// Which engines each strategy opens.
#include "bindings/trainer/strategy/strategies.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

// Devices are named as in the guides; those of a strategy are CPUs of this host.
void require_cpu(const std::string& device) {
  if (device == "cpu" || device.starts_with("/cpu:")) return;
  throw TrainerError("there is no device \"" + device +
                         "\" for a strategy, whose models lie in host memory: use cpu or /cpu:0",
                     kExitConfiguration);
}

int threads_of(int threads, std::size_t replicas) {
  if (threads != 0) return threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency() / replicas));
}

std::string counted(const char* name, std::size_t replicas) {
  return name + ("(" + std::to_string(replicas) + ")");
}

std::function<Engine(std::size_t)> in_this_process(const std::string& name, std::size_t replicas) {
  constexpr std::size_t kMost = 64;
  if (replicas == 0 || replicas > kMost) {
    throw TrainerError(name + " has no replicas, or too many: use 1 to " + std::to_string(kMost),
                       kExitConfiguration);
  }
  const auto job = std::make_shared<LocalJob>(static_cast<int>(replicas));
  return [job](std::size_t local) { return Engine(*job, static_cast<int>(local)); };
}

std::size_t count_of(const std::vector<std::string>& devices) {
  for (const std::string& one : devices) require_cpu(one);
  return devices.size();
}

// An environment variable, while an engine opens, which reads it then.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    setenv(name_, value.c_str(), 1);
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;
  ~Setting() {
    if (before_) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

using Communication = MultiWorkerOptions::Communication;

Engine open_worker(const MultiWorkerOptions& options) {
  std::optional<Setting> algorithm;
  std::optional<Setting> timeout;
  if (options.communication == Communication::kNccl) {
    throw TrainerError(
        "communication nccl needs gradients on GPUs, and models of a strategy lie in host memory: "
        "use auto or ring",
        kExitConfiguration);
  }
  if (options.communication == Communication::kRing) algorithm.emplace("RONDE_ALGORITHM", "ring");
  if (options.timeout.count() != 0) {
    timeout.emplace("RONDE_START_TIMEOUT_SECONDS", std::to_string(options.timeout.count()));
  }
  return Engine();
}

// How gradients travel, in words.
std::string choice(const Engine& engine, Communication asked) {
  if (asked == Communication::kRing) return "ring, as asked";
  if (engine.size() == 1) return "none, alone";
  if (engine.local_size() == engine.size()) return "auto: shared memory of the host";
  const std::string table = engine.describe();
  const char* const carrier = table.find(" over UCX") != std::string::npos ? "UCX" : "MPI";
  return std::string("auto: shared memory within a host, ") +
         (table.find(std::string(" over ") + carrier) == std::string::npos ? "TCP" : carrier) +
         " between hosts";
}

}  // namespace

Default::Default() : Strategy({.name = "Default", .open = in_this_process("Default", 1)}) {}

OneDevice::OneDevice(const std::string& device, int threads)
    : Strategy({.name = "OneDevice(" + device + ")",
                .replicas = count_of({device}),
                .open = in_this_process("OneDevice", 1),
                .threads = threads_of(threads, 1)}) {}

Mirrored::Mirrored(std::size_t replicas, std::shared_ptr<CrossDeviceOps> cross_device, int threads)
    : Strategy({.name = counted("Mirrored", replicas),
                .replicas = replicas,
                .open = in_this_process(counted("Mirrored", replicas), replicas),
                .threads = threads_of(threads, replicas),
                .cross_device = std::move(cross_device)}) {}

Mirrored::Mirrored(const std::vector<std::string>& devices,
                   std::shared_ptr<CrossDeviceOps> cross_device, int threads)
    : Mirrored(count_of(devices), std::move(cross_device), threads) {}

MultiWorkerMirrored::MultiWorkerMirrored(const MultiWorkerOptions& options)
    : Strategy({.name = "MultiWorkerMirrored",
                .open = [&options](std::size_t /*local*/) { return open_worker(options); },
                .threads = options.threads,
                .bytes_per_pack = options.bytes_per_pack}) {
  if (!is_chief()) return;
  const Engine& engine = context(0).engine();
  const std::string line = name() + ": " + std::to_string(engine.size()) +
                           " workers, communication " + choice(engine, options.communication);
  options.say ? options.say(line) : static_cast<void>(std::puts(line.c_str()));
}

CentralStorage::CentralStorage(std::size_t replicas, int threads)
    : Strategy({.name = counted("CentralStorage", replicas),
                .replicas = replicas,
                .open = in_this_process(counted("CentralStorage", replicas), replicas),
                .threads = threads_of(threads, replicas),
                .shares_variables = true}) {}

namespace {

Engine no_servers() {
  throw TrainerError(
      "there are no parameter servers yet: use MultiWorkerMirrored, whose replicas hold all of the "
      "model",
      kExitConfiguration);
}

}  // namespace

ParameterServer::ParameterServer()
    : Strategy({.name = "ParameterServer", .open = [](std::size_t /*local*/) {
        return no_servers();
      }}) {}

}  // namespace ronde::trainer
