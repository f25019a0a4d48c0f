// SPDX-License-Identifier: Apache-2.0
// How an engine starts: the ranks exchange their identities, and all find the same way to work.
#include <chrono>
#include <thread>
#include <utility>

#include "base/config.h"
#include "base/process/environment.h"
#include "collectives/cuda/engine.h"
#include "collectives/cuda/platform.h"

namespace ronde::collectives::cuda {

namespace {

using base::Code;
using base::Result;
using base::Status;

// Logs one line, on rank 0 alone: it would be the same on all ranks.
void log_once(const ronde_plugin_host& host, const std::string& text) {
  if (host.rank == 0) host.log(host.context, kWarning, text.c_str());
}

Status gather(const ronde_plugin_host& host, const void* mine, std::size_t bytes, void* all) {
  char text[256] = "";
  if (host.allgather(host.context, mine, bytes, all, text, sizeof text) == RONDE_PLUGIN_OK)
    return {};
  return Status::error(Code::kTransport, std::string("the ranks cannot agree on devices: ") + text);
}

Identity identity_of(const Result<DeviceInfo>& device, const Result<NcclApi>& nccl, int rank) {
  Identity mine;
  store_text(mine.host, own_host());
  if (!device.ok()) {
    store_text(mine.why_not, device.status().message());
    return mine;
  }
  mine.has_device = 1;
  store_text(mine.bus_id, device->bus_id);
  if (!nccl.ok()) {
    store_text(mine.why_not, nccl.status().message());
    return mine;
  }
  if (rank == 0 && nccl->get_unique_id(&mine.communicator) != ncclSuccess) {
    store_text(mine.why_not, std::string("it does not start: ") + nccl->get_last_error(nullptr));
    return mine;
  }
  mine.nccl_version = nccl->version;
  return mine;
}

Status read_settings(Core& core) {
  const auto environment = base::process_environment();
  RONDE_ASSIGN_OR_RETURN(const auto config, base::Config::from_environment(environment));
  core.start_timeout = config.start_timeout;
  core.stall_failure = config.stall_failure;
  core.shutdown_timeout = config.shutdown_timeout;
  return {};
}

}  // namespace

Result<std::vector<Identity>> Engine::introduce(const ronde_plugin_host& host,
                                                const Identity& mine) {
  std::vector<Identity> all(base::narrow<std::size_t>(host.size));
  RONDE_RETURN_IF_ERROR(gather(host, &mine, sizeof mine, all.data()));
  return all;
}

// Runs a first barrier, which makes the connections and shows that they work.
Status Engine::try_collective(base::Instant end) {
  RONDE_ASSIGN_OR_RETURN(const auto task, execute(barrier_batch()));
  const base::SteadyClock clock;
  while (true) {
    RONDE_ASSIGN_OR_RETURN(const auto over, poll(*task));
    if (over) return {};
    if (clock.now() >= end)
      return Status::error(Code::kDeadline, "the first barrier has not ended in time");
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

bool Engine::join(const ronde_plugin_host& host, const NcclApi& nccl, const ncclUniqueId& id) {
  // NCCL may take long on a large job, or behind a slow file system. What is left of the time is
  // for agreeing on the outcome.
  const base::Instant deadline = base::SteadyClock().after(core_->start_timeout * 5 / 6);
  auto communicator = Communicator::open(nccl, id, group_, {deadline, nullptr});
  Status status = communicator.status();
  if (status.ok()) {
    issuer_->use(std::move(*communicator));
    status = try_collective(deadline);
  }
  Identity mine;
  mine.has_device = 1;
  mine.nccl_version = status.ok() ? nccl.version : 0;
  store_text(mine.bus_id, std::to_string(host.rank));
  store_text(mine.why_not, status.message());
  const auto all = introduce(host, mine);
  const bool works = all.ok() && verdict_of(*all).has_collectives;
  if (works) return true;
  log_once(host, "cuda: tensors go through host memory, since NCCL does not work: " +
                     (all.ok() ? verdict_of(*all).why_not : all.status().message()) +
                     " (RONDE_START_TIMEOUT_SECONDS bounds the start)");
  issuer_.reset();
  return false;
}

Result<Engine::Opened> Engine::open(const ronde_plugin_host& host) {
  std::shared_ptr<CudaApi> cuda = make_cuda();
  const auto device = cuda->start(host.rank_on_host);
  auto engine = device.ok() ? make(cuda, host, device->device)
                            : Result<std::unique_ptr<Engine>>(device.status());
  // What a rank cannot do it says before the others wait for it in NCCL.
  auto nccl = engine.ok() ? find_nccl() : Result<NcclApi>(engine.status());
  if (nccl.ok()) {
    auto issuer = Issuer::start((*engine)->core_);
    if (issuer.ok()) {
      (*engine)->issuer_ = std::move(*issuer);
    } else {
      nccl = issuer.status();
    }
  }
  const auto all = introduce(host, identity_of(device, nccl, host.rank));
  if (!engine.ok()) return engine.status();
  if (!all.ok()) return all.status();
  const Verdict verdict = verdict_of(*all);
  if (!verdict.has_devices) return Status::error(Code::kUnsupported, verdict.why_not);

  Opened opened;
  opened.device = *device;
  opened.nccl = nccl.ok() ? "NCCL " + nccl_version_text(nccl->version) : "no NCCL";
  const DeviceScope scope(*cuda);
  RONDE_RETURN_IF_ERROR(scope.status());
  if (!verdict.has_collectives) {
    log_once(host, "cuda: tensors go through host memory: " + verdict.why_not);
    (*engine)->issuer_.reset();
  } else if ((*engine)->join(host, *nccl, all->front().communicator)) {
    opened.has_collectives = true;
  } else {
    // An engine that has failed stays so; staging gets a new one.
    engine = make(cuda, host, device->device);
    if (!engine.ok()) return engine.status();
  }
  opened.engine = std::move(*engine);
  return opened;
}

Result<std::unique_ptr<Engine>> Engine::make(const std::shared_ptr<CudaApi>& cuda,
                                             const ronde_plugin_host& host, int device) {
  const DeviceScope scope(*cuda);
  RONDE_RETURN_IF_ERROR(scope.status());
  auto core = std::make_shared<Core>(cuda, host);
  RONDE_RETURN_IF_ERROR(read_settings(*core));
  RONDE_RETURN_IF_ERROR(core->make_streams());
  return std::unique_ptr<Engine>(new Engine(std::move(core), {host.rank, host.size}, device));
}

}  // namespace ronde::collectives::cuda
