// SPDX-License-Identifier: Apache-2.0
// An end: how UCX is opened for it, its endpoints, and its good-bye. Messages are in
// end_messages.cc.
#include "collectives/transport/ucx/end.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/config.h"
#include "base/numbers.h"
#include "base/process/environment.h"
#include "base/process/file_descriptor.h"
#include "base/process/own_thread.h"
#include "collectives/transport/ucx/devices.h"

namespace ronde::collectives::ucx {

using base::Code;
using base::Result;
using base::Status;

namespace {

// UCX's number for what ends tell each other beside messages.
constexpr unsigned kPartings = 1;

// The longest sleep of say_good_bye(), in milliseconds.
constexpr std::int64_t kLongestPoll = 100;

// How long close_endpoints() waits for what UCX has to finish by itself.
constexpr base::Nanoseconds kLocalEnd = std::chrono::seconds(1);

// Why a port cannot be taken, as errno; 0: it can. UCX takes longer to say so, and complains in its
// log.
int trouble_at(std::uint16_t port) {
  const auto socket = base::FileDescriptor::kept_from_children(
      [] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); });
  if (!socket.valid()) return errno;
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0 ? 0 : errno;
}

}  // namespace

// ---- opening ----

End::End(const Library& library, const ronde_transport_host& host) : ucx_(library), host_(host) {
  peers_.resize(base::narrow<std::size_t>(host_.size));
}

Result<std::unique_ptr<End>> End::open(const ronde_transport_host& host,
                                       ronde_transport_info& info) {
  RONDE_ASSIGN_OR_RETURN(const auto ucx, library());
  std::unique_ptr<End> end(new End(*ucx, host));
  RONDE_RETURN_IF_ERROR(end->start());
  info.fd = end->descriptor_;
  info.largest_tag = std::numeric_limits<std::int32_t>::max();
  info.largest_bytes = std::numeric_limits<std::ptrdiff_t>::max();
  return end;
}

Status End::configure(ucp_config_t* config, std::uint16_t port) const {
  // What the user has set in the environment goes first; UCX has read it. The prefix of a setting
  // of one of UCX's transports is part of the variable's name only.
  const auto set = [&](const std::string& prefix, const std::string& name,
                       const std::string& value) -> Status {
    if (std::getenv(("UCX_" + prefix + name).c_str()) != nullptr) return {};
    const ucs_status_t status = ucx_.config_modify(config, name.c_str(), value.c_str());
    if (status == UCS_OK) return {};
    return Status::error(Code::kTransport, "UCX does not take " + prefix + name + "=" + value +
                                               ": " + ucx_.text_of(status));
  };
  const char* const interfaces = host_.interfaces == nullptr ? "" : host_.interfaces;
  if (const std::string devices = devices_of(interfaces); !devices.empty()) {
    RONDE_RETURN_IF_ERROR(set("", "NET_DEVICES", devices));
  }
  if (port != 0) RONDE_RETURN_IF_ERROR(set("TCP_", "PORT_RANGE", std::to_string(port)));
  // A host that is silent counts as lost after peer_timeout: half of it passes before the system
  // asks, and then it asks five times.
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::nanoseconds(host_.peer_timeout_ns));
  const auto text = [&](std::int64_t parts) {
    return std::to_string(std::max<std::int64_t>(1, seconds.count() / parts)) + "s";
  };
  RONDE_RETURN_IF_ERROR(set("TCP_", "KEEPIDLE", text(2)));
  RONDE_RETURN_IF_ERROR(set("TCP_", "KEEPINTVL", text(10)));
  RONDE_RETURN_IF_ERROR(set("TCP_", "KEEPCNT", "5"));
  // Each piece is a system call on both sides; UCX's 8 KiB cost half as much processor time again.
  // A receiver's must hold a sender's and its header, so both are left as they are or none.
  const auto user_has = [](const char* name) { return std::getenv(name) != nullptr; };
  if (!user_has("UCX_TCP_TX_SEG_SIZE") && !user_has("UCX_TCP_RX_SEG_SIZE")) {
    RONDE_RETURN_IF_ERROR(set("TCP_", "TX_SEG_SIZE", "128K"));
    RONDE_RETURN_IF_ERROR(set("TCP_", "RX_SEG_SIZE", "256K"));
  }
  // The agent makes connections, and must not block for the minutes that the system tries to reach
  // a host that is cut off.
  return set("TCP_", "CONN_NB", "y");
}

Status End::check(ucs_status_t status, const char* activity) const {
  if (status == UCS_OK) return {};
  return Status::error(Code::kTransport, std::string(activity) +
                                             " failed: " + ucx_.text_of(status) +
                                             "; UCX_LOG_LEVEL=info shows what UCX found, and "
                                             "UCX_TLS and UCX_NET_DEVICES what it may use");
}

Result<bool> End::open_worker(std::uint16_t port) {
  ucp_config_t* config = nullptr;
  RONDE_RETURN_IF_ERROR(
      check(ucx_.config_read(nullptr, nullptr, &config), "reading UCX's settings"));
  const Status configured = configure(config, port);
  ucp_params_t parameters{};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  parameters.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  parameters.name = "ronde";
  const ucs_status_t opened = configured.ok() ? ucx_.init_version(UCP_API_MAJOR, UCP_API_MINOR,
                                                                  &parameters, config, &context_)
                                              : UCS_OK;
  ucx_.config_release(config);
  RONDE_RETURN_IF_ERROR(configured);
  RONDE_RETURN_IF_ERROR(check(opened, "opening UCX"));

  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  worker.flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK;  // after a failure requests are given up
  const ucs_status_t created = ucx_.worker_create(context_, &worker, &worker_);
  if (created == UCS_ERR_BUSY && port != 0) {
    ucx_.cleanup(std::exchange(context_, nullptr));
    return false;
  }
  RONDE_RETURN_IF_ERROR(check(created, "starting a UCX worker"));
  return true;
}

// From a range UCX would draw ports without end where all are taken, so it is given one port at a
// time. Each rank begins at another one, and goes round twice: what is taken the first time may
// have been another rank's try.
Status End::open_worker_in(const base::PortRange& ports) {
  int trouble = EADDRINUSE;
  for (int number = 0; number < 2 * ports.size(); ++number) {
    const std::uint16_t port = ports.at(host_.rank + number);
    if (const int here = trouble_at(port); here != 0) {
      trouble = here;
      continue;
    }
    RONDE_ASSIGN_OR_RETURN(const bool opened, open_worker(port));
    if (opened) return {};
  }
  return ports.exhausted(Status::system("UCX could not listen", trouble));
}

Status End::start() {
  const base::SignalsBlocked blocked;  // for UCX's own thread
  // What Ronde tells an end has no place for its ports.
  RONDE_ASSIGN_OR_RETURN(const auto config,
                         base::Config::from_environment(base::process_environment()));
  const bool chosen = config.ports.size() > 0 && std::getenv("UCX_TCP_PORT_RANGE") == nullptr;
  RONDE_RETURN_IF_ERROR(chosen ? open_worker_in(config.ports) : open_worker(0).status());
  RONDE_RETURN_IF_ERROR(
      check(ucx_.worker_get_efd(worker_, &descriptor_), "asking UCX for a descriptor"));
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kPartings;
  handler.cb = &End::on_parting;
  handler.arg = this;
  RONDE_RETURN_IF_ERROR(
      check(ucx_.worker_set_am_recv_handler(worker_, &handler), "registering with UCX"));
  ucp_address_t* address = nullptr;
  std::size_t length = 0;
  RONDE_RETURN_IF_ERROR(
      check(ucx_.worker_get_address(worker_, &address, &length), "asking UCX for an address"));
  const auto* bytes = reinterpret_cast<const std::byte*>(address);
  address_.assign(bytes, bytes + length);
  ucx_.worker_release_address(worker_, address);
  return {};
}

Status End::connect(std::span<const std::span<const std::byte>> addresses) {
  if (addresses.size() != peers_.size()) {
    return Status::error(Code::kInvalidArgument, std::to_string(addresses.size()) +
                                                     " addresses for a job of " +
                                                     std::to_string(peers_.size()));
  }
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    peers_[rank].address.assign(addresses[rank].begin(), addresses[rank].end());
  }
  return {};
}

// ---- endpoints ----

// UCX calls it inside progress(), and the endpoint stays until close_endpoints().
void End::on_lost(void* peer, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  static_cast<Peer*>(peer)->failure = status;
}

Result<ucp_ep_h> End::endpoint_to(int peer) {
  Peer& other = peers_[base::narrow<std::size_t>(peer)];
  if (other.failure != UCS_OK) return failure("", peer, other.failure);
  if (other.endpoint != nullptr) return other.endpoint;
  if (other.address.empty()) {
    return Status::error(Code::kInvalidArgument,
                         "rank " + std::to_string(peer) + " has no address yet");
  }
  ucp_ep_params_t parameters{};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER;
  parameters.address = reinterpret_cast<const ucp_address_t*>(other.address.data());
  parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  parameters.err_handler.cb = &End::on_lost;
  parameters.err_handler.arg = &other;
  owed_ = true;
  const ucs_status_t status = ucx_.ep_create(worker_, &parameters, &other.endpoint);
  if (status == UCS_OK) return other.endpoint;
  other.endpoint = nullptr;
  other.failure = status;
  if (status != UCS_ERR_UNREACHABLE) return failure("", peer, status);
  return Status::error(Code::kPeerFailed,
                       "UCX has no transport to rank " + std::to_string(peer) +
                           " that reports the loss of a connection, as TCP and InfiniBand do: look "
                           "at UCX_TLS and UCX_NET_DEVICES");
}

void End::close_endpoints() {
  ucp_request_param_t force{};
  force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  force.flags = UCP_EP_CLOSE_FLAG_FORCE;
  std::vector<void*> closing;
  for (Peer& peer : peers_) {
    if (peer.endpoint == nullptr) continue;
    void* const request = ucx_.ep_close_nbx(peer.endpoint, &force);
    if (UCS_PTR_IS_PTR(request)) closing.push_back(request);
    peer.endpoint = nullptr;
  }
  const base::SteadyClock clock;
  const base::Instant deadline = clock.after(kLocalEnd);
  for (void* request : closing) {
    while (ucx_.request_check_status(request) == UCS_INPROGRESS && clock.now() < deadline) {
      ucx_.worker_progress(worker_);
    }
    ucx_.request_free(request);
  }
}

End::~End() {
  if (worker_ != nullptr) {
    for (Slot& slot : slots_) cancel(slot);
    for (Peer& peer : peers_) {
      if (peer.flush != nullptr) ucx_.request_free(std::exchange(peer.flush, nullptr));
    }
    close_endpoints();
    ucx_.worker_destroy(worker_);
  }
  if (context_ != nullptr) ucx_.cleanup(context_);
}

// UCX calls it inside progress().
ucs_status_t End::on_parting(void* end, const void* header, std::size_t header_bytes,
                             void* /*data*/, std::size_t /*bytes*/,
                             const ucp_am_recv_param_t* /*parameters*/) {
  End& me = *static_cast<End*>(end);
  PartingMessage message{};
  if (header_bytes != sizeof message) return UCS_OK;
  std::memcpy(&message, header, sizeof message);
  if (message.rank < 0 || message.rank >= me.host_.size) return UCS_OK;
  Farewell& farewell = me.peers_[base::narrow<std::size_t>(message.rank)].farewell;
  if (message.kind == Parting::kAnswer) {
    farewell = Farewell::kOver;
  } else if (farewell == Farewell::kNone || farewell == Farewell::kSaid) {
    farewell = Farewell::kHeard;
    me.answers_owed_.push_back(message.rank);
  }
  return UCS_OK;
}

void End::send_parting(Parting kind, int peer) {
  const auto endpoint = endpoint_to(peer);
  if (!endpoint.ok()) return;  // it is gone already
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  parameters.flags = UCP_AM_SEND_FLAG_EAGER;
  const PartingMessage& message = kind == Parting::kGoodBye ? good_bye_ : answer_;
  owed_ = true;
  void* const request =
      ucx_.am_send_nbx(*endpoint, kPartings, &message, sizeof message, nullptr, 0, &parameters);
  if (UCS_PTR_IS_PTR(request)) ucx_.request_free(request);
}

void End::answer(int peer) {
  Peer& other = peers_[base::narrow<std::size_t>(peer)];
  if (other.farewell != Farewell::kHeard) return;
  other.farewell = Farewell::kAnswered;
  send_parting(Parting::kAnswer, peer);
  if (other.endpoint == nullptr || other.failure != UCS_OK) return;
  const ucp_request_param_t parameters{};
  void* const request = ucx_.ep_flush_nbx(other.endpoint, &parameters);
  if (UCS_PTR_IS_PTR(request)) other.flush = request;
}

bool End::may_leave(const Peer& peer) const {
  if (peer.failure != UCS_OK) return true;
  if (peer.farewell == Farewell::kAnswered) {
    return peer.flush == nullptr || ucx_.request_check_status(peer.flush) != UCS_INPROGRESS;
  }
  return peer.farewell == Farewell::kNone || peer.farewell == Farewell::kOver;
}

void End::say_good_bye(const base::Clock& clock, base::Instant deadline) {
  for (int rank = 0; rank < host_.size; ++rank) {
    Peer& peer = peers_[base::narrow<std::size_t>(rank)];
    if (peer.endpoint == nullptr || peer.failure != UCS_OK) continue;
    if (peer.farewell != Farewell::kNone) continue;
    peer.farewell = Farewell::kSaid;
    send_parting(Parting::kGoodBye, rank);
  }
  const auto all_may_leave = [&] {
    return std::all_of(peers_.begin(), peers_.end(),
                       [&](const Peer& peer) { return may_leave(peer); });
  };
  while (!all_may_leave() && clock.now() < deadline) {
    if (progress()) continue;
    const auto armed = arm();
    if (!armed.ok()) return;
    if (!*armed) continue;
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock.now());
    pollfd watched{descriptor_, POLLIN, 0};
    ::poll(&watched, 1, base::narrow<int>(std::clamp<std::int64_t>(rest.count(), 0, kLongestPoll)));
  }
}

// ---- what ends it ----

Status End::usable() const {
  if (!process_.is_mine()) {
    return Status::error(Code::kUnsupported, "a forked child cannot use its parent's UCX");
  }
  if (abandoned_.load(std::memory_order_acquire)) {
    return Status::error(Code::kTransport, "UCX is not used after the job has failed");
  }
  return {};
}

void End::close(std::unique_ptr<End> end, base::Nanoseconds patience) {
  if (!end->process_.is_mine()) {
    // The parent's connections must not notice that its child ends.
    [[maybe_unused]] auto* const kept = end.release();
    return;
  }
  if (!end->usable().ok() || end->outstanding() > 0) return;
  const base::SteadyClock clock;
  end->say_good_bye(clock, clock.after(patience));
}

}  // namespace ronde::collectives::ucx
