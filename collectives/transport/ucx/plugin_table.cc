// SPDX-License-Identifier: Apache-2.0
// Implements the functions of plugin.h by calls of an End; no exception leaves them.
#include <atomic>
#include <chrono>
#include <climits>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/numbers.h"
#include "base/process/fork_mark.h"
#include "collectives/transport/plugin.h"
#include "collectives/transport/plugin_status.h"
#include "collectives/transport/ucx/end.h"

using ronde::base::Code;
using ronde::base::Result;
using ronde::base::Status;
using ronde::collectives::answer_of;
using ronde::collectives::guarded;
using ronde::collectives::ucx::End;

struct ronde_transport_end {
  std::unique_ptr<End> end;
  ronde::base::ForkMark process;
  std::atomic<bool> abandoned{false};
};

namespace {

Status usable(const ronde_transport_end& handle) {
  if (!handle.process.is_mine()) {
    return Status::error(Code::kUnsupported, "a forked child cannot use its parent's UCX");
  }
  if (handle.abandoned.load(std::memory_order_acquire)) {
    return Status::error(Code::kTransport, "UCX is not used after the job has failed");
  }
  return {};
}

ronde_transport_status answer(const Status& status, ronde_transport_error* error) {
  return answer_of(status, error);
}

ronde_transport_status answer(const Result<bool>& done, ronde_transport_error* error) {
  if (!done.ok()) return answer_of(done.status(), error);
  return *done ? RONDE_TRANSPORT_OK : RONDE_TRANSPORT_PENDING;
}

// Calls call(end), which returns a Status or a Result<bool>, if the end may be used.
template <typename Call>
ronde_transport_status on_end(ronde_transport_end* handle, ronde_transport_error* error,
                              Call&& call) noexcept {
  return guarded(error, [&] {
    const Status may = usable(*handle);
    return may.ok() ? answer(call(*handle->end), error) : answer_of(may, error);
  });
}

// Stores a request that was started.
Status store(const Result<End::Request>& started, std::uint64_t* request) {
  if (started.ok()) *request = *started;
  return started.status();
}

ronde_transport_status open(const ronde_transport_host* host, ronde_transport_end** end,
                            ronde_transport_info* info, ronde_transport_error* error) {
  return guarded(error, [&] {
    auto handle = std::make_unique<ronde_transport_end>();
    auto opened = End::open({.rank = host->rank,
                             .size = host->size,
                             .interfaces = host->interfaces == nullptr ? "" : host->interfaces,
                             .peer_timeout = std::chrono::nanoseconds(host->peer_timeout_ns)});
    if (!opened.ok()) return answer_of(opened.status(), error);
    handle->end = std::move(*opened);
    info->fd = handle->end->descriptor();
    info->writes_after_close = 0;
    info->largest_tag = INT32_MAX;
    info->largest_bytes = PTRDIFF_MAX;
    *end = handle.release();
    return RONDE_TRANSPORT_OK;
  });
}

ronde_transport_status address(ronde_transport_end* handle, const void** bytes, std::size_t* length,
                               ronde_transport_error* error) {
  return on_end(handle, error, [&](End& end) {
    *bytes = end.address().data();
    *length = end.address().size();
    return Status();
  });
}

ronde_transport_status connect(ronde_transport_end* handle, const void* const* addresses,
                               const std::size_t* lengths, std::int32_t size,
                               ronde_transport_error* error) {
  return on_end(handle, error, [&](End& end) {
    std::vector<std::span<const std::byte>> all;
    for (std::size_t rank = 0; rank < ronde::base::narrow<std::size_t>(size); ++rank) {
      all.emplace_back(static_cast<const std::byte*>(addresses[rank]), lengths[rank]);
    }
    return end.connect(all);
  });
}

ronde_transport_status send(ronde_transport_end* handle, std::int32_t peer, std::int32_t tag,
                            const void* data, std::size_t length, std::uint64_t* request,
                            ronde_transport_error* error) {
  return on_end(handle, error, [&](End& end) {
    return store(end.send(peer, tag, {static_cast<const std::byte*>(data), length}), request);
  });
}

ronde_transport_status receive(ronde_transport_end* handle, std::int32_t peer, std::int32_t tag,
                               void* data, std::size_t length, std::uint64_t* request,
                               ronde_transport_error* error) {
  return on_end(handle, error, [&](End& end) {
    return store(end.receive(peer, tag, {static_cast<std::byte*>(data), length}), request);
  });
}

ronde_transport_status test(ronde_transport_end* handle, std::uint64_t request,
                            ronde_transport_error* error) {
  return on_end(handle, error, [&](End& end) { return end.test(request); });
}

std::int32_t outstanding(ronde_transport_end* handle) { return handle->end->outstanding(); }

ronde_transport_status progress(ronde_transport_end* handle, ronde_transport_error* error) {
  return on_end(handle, error, [](End& end) { return Result<bool>(end.progress()); });
}

ronde_transport_status arm(ronde_transport_end* handle, ronde_transport_error* error) {
  return on_end(handle, error, [](End& end) { return end.arm(); });
}

void abandon(ronde_transport_end* handle) {
  handle->abandoned.store(true, std::memory_order_release);
}

void close(ronde_transport_end* handle, std::int64_t patience_ns) {
  std::unique_ptr<ronde_transport_end> end(handle);
  if (!end->process.is_mine()) {
    // The parent's connections must not notice that its child ends.
    [[maybe_unused]] auto* const kept = end->end.release();
    return;
  }
  if (end->abandoned.load(std::memory_order_acquire) || end->end->outstanding() > 0) return;
  const ronde::base::SteadyClock clock;
  end->end->say_good_bye(clock, clock.after(std::chrono::nanoseconds(patience_ns)));
}

constexpr ronde_transport kTable = {
    .version = RONDE_TRANSPORT_VERSION,
    .name = "ucx",
    .struct_size = sizeof(ronde_transport),
    .library = "UCX " RONDE_UCX_VERSION,
    .mpi_family = 0,
    .reserved = 0,
    .meeting = nullptr,
    .open = open,
    .address = address,
    .connect = connect,
    .send = send,
    .receive = receive,
    .test = test,
    .outstanding = outstanding,
    .progress = progress,
    .arm = arm,
    .abandon = abandon,
    .close = close,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const ronde_transport* ronde_transport_entry() {
  return &kTable;
}
