// SPDX-License-Identifier: Apache-2.0
// Which engines each strategy opens.
#include "bindings/trainer/fit/strategy/strategies.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <locale>
#include <optional>
#include <random>
#include <sstream>
#include <utility>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer {

namespace {

// As it was when this library was loaded: an engine takes the secret out of the environment.
const bool kHasSecret =
    std::getenv("RONDE_JOB_SECRET") != nullptr || std::getenv("RONDE_JOB_SECRET_FILE") != nullptr;

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
  try {
    require_alone();
  } catch (const Error& error) {
    throw TrainerError((name == "Default" ? "no Scope of a strategy is open, and Default" : name) +
                           " is for one process (MultiWorkerMirrored, --strategy multiworker, for "
                           "several): " +
                           error.what(),
                       kExitConfiguration);
  }
  const auto job = std::make_shared<LocalJob>(static_cast<int>(replicas));
  return [job](std::size_t local) { return Engine(*job, static_cast<int>(local)); };
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

// A port that no other process is given while this lives. It does not listen, so the replicas'
// meeting may bind it beside.
class FreePort {
 public:
  FreePort() : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t size = sizeof address;
    auto* const general = reinterpret_cast<sockaddr*>(&address);
    if (setsockopt(descriptor_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        bind(descriptor_, general, size) == 0 && getsockname(descriptor_, general, &size) == 0) {
      number_ = ntohs(address.sin_port);
      return;
    }
    close(descriptor_);
    throw TrainerError("MultiWorkerMirrored: there is no free port for the replicas");
  }
  FreePort(const FreePort&) = delete;
  FreePort& operator=(const FreePort&) = delete;
  ~FreePort() { close(descriptor_); }
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  int descriptor_;
  int number_ = 0;
};

// What the engines of a process need while they open.
struct Opening {
  std::optional<Setting> algorithm;
  std::optional<Setting> timeout;
  std::optional<Setting> secret;
  std::optional<FreePort> port;
  std::string meet;  // where several replicas of each process do
  std::size_t first = 0;
  std::size_t size = 0;
};

// "10.0.0.1" of rank 0, from the table of ranks; on one host nothing needs to be reached.
std::string address_of_chief(const Engine& engine) {
  std::istringstream table(engine.describe());
  table.imbue(std::locale::classic());
  std::string word;
  std::getline(table, word);
  for (int column = 0; column < 3; ++column) table >> word;  // rank, host, address
  if (word.find(':') != std::string::npos) return '[' + word + ']';
  return word == "-" ? "127.0.0.1" : word;
}

std::string random_word() {
  std::random_device random;
  std::string word;
  for (int i = 0; i < 8; ++i) word += std::to_string(random());
  return word;
}

// The processes' own job agrees on where the larger one meets.
void agree(Opening& opening, std::size_t replicas) {
  Engine workers;
  const std::vector<std::uint64_t> mine{replicas};
  for (const std::uint64_t other : workers.allgather_blocking("strategy/replicas", mine)) {
    if (other == replicas) continue;
    throw AgreedError(
        "MultiWorkerMirrored has different numbers of replicas in the workers: give "
        "each of them as many",
        0, kExitConfiguration);
  }
  std::string said;
  if (workers.rank() == 0) {
    said = address_of_chief(workers) + ":" + std::to_string(opening.port.emplace().number()) + " " +
           random_word();
  }
  const std::vector<char> chiefs = workers.allgather_blocking("strategy/meet", std::span(said));
  said.assign(chiefs.begin(), chiefs.end());
  opening.meet = said.substr(0, said.find(' '));
  if (!kHasSecret) {
    opening.secret.emplace("RONDE_JOB_SECRET", said.substr(said.find(' ') + 1));
  }
  opening.first = static_cast<std::size_t>(workers.rank()) * replicas;
  opening.size = static_cast<std::size_t>(workers.size()) * replicas;
}

std::function<Engine(std::size_t)> of_workers(const MultiWorkerOptions& options) {
  if (options.communication == Communication::kNccl) {
    throw TrainerError(
        "communication nccl needs gradients on GPUs, and models of a strategy lie in host memory: "
        "use auto or ring",
        kExitConfiguration);
  }
  if (options.replicas == 0) {
    throw TrainerError("MultiWorkerMirrored with 0 replicas in each worker: use at least 1",
                       kExitConfiguration);
  }
  const auto opening = std::make_shared<Opening>();
  if (options.communication == Communication::kRing) {
    opening->algorithm.emplace("RONDE_ALGORITHM", "ring");
  }
  if (options.timeout.count() != 0) {
    opening->timeout.emplace("RONDE_START_TIMEOUT_SECONDS",
                             std::to_string(options.timeout.count()));
  }
  if (options.replicas > 1) agree(*opening, options.replicas);
  return [opening](std::size_t local) {
    if (opening->size == 0) return Engine();
    ronde_engine_options own;
    ronde_engine_options_init(&own);
    own.rank = static_cast<std::int32_t>(opening->first + local);
    own.size = static_cast<std::int32_t>(opening->size);
    own.meet = opening->meet.c_str();
    return Engine(own);
  };
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

Strategy& current_strategy() {
  if (Strategy* const chosen = Scope::innermost()) return *chosen;
  static thread_local Default nothing_chosen;
  return nothing_chosen;
}

Default::Default() : Strategy({.name = "Default", .open = in_this_process("Default", 1)}) {}

OneDevice::OneDevice(const std::string& device, int threads)
    : Strategy({.name = "OneDevice(" + device + ")",
                .open = in_this_process("OneDevice", 1),
                .cores = Cores::of_devices({device}),
                .threads = threads_of(threads, 1)}) {}

Mirrored::Mirrored(std::size_t replicas, CrossDeviceOps cross_device, int threads)
    : Mirrored(replicas, {}, std::move(cross_device), threads) {}

Mirrored::Mirrored(std::size_t replicas, std::vector<Cores> cores, CrossDeviceOps cross_device,
                   int threads)
    : Strategy({.name = counted("Mirrored", replicas),
                .replicas = replicas,
                .open = in_this_process(counted("Mirrored", replicas), replicas),
                .cores = std::move(cores),
                .threads = threads_of(threads, replicas),
                .cross_device = std::move(cross_device)}) {}

Mirrored::Mirrored(const std::vector<std::string>& devices, CrossDeviceOps cross_device,
                   int threads)
    : Mirrored(devices.size(), Cores::of_devices(devices), std::move(cross_device), threads) {}

MultiWorkerMirrored::MultiWorkerMirrored(const MultiWorkerOptions& options)
    : Strategy({.name = "MultiWorkerMirrored",
                .replicas = options.replicas,
                .open = of_workers(options),
                .threads = threads_of(options.threads, options.replicas)}) {
  const Engine& engine = replica(0).engine();
  description_ += ": " + std::to_string(processes()) + " workers, " +
                  std::to_string(engine.size()) + " replicas, communication " +
                  choice(engine, options.communication);
  if (!is_chief()) return;
  options.say ? options.say(description()) : static_cast<void>(std::puts(description().c_str()));
}

CentralStorage::CentralStorage(std::size_t replicas, int threads)
    : Strategy({.name = counted("CentralStorage", replicas),
                .replicas = replicas,
                .open = in_this_process(counted("CentralStorage", replicas), replicas),
                .threads = threads_of(threads, replicas),
                .shares_variables = true}) {}

}  // namespace ronde::trainer
