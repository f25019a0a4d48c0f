// SPDX-License-Identifier: Apache-2.0
// An end: how UCX is opened for it, its endpoints, and its messages in reused slots.
#include "collectives/transport/ucx/end.h"

#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "base/numbers.h"
#include "collectives/transport/ucx/devices.h"

namespace ronde::collectives::ucx {

using base::Code;
using base::Result;
using base::Status;

namespace {

// UCX matches messages by a number of 64 bits: the sender's rank and Ronde's tag.
constexpr unsigned kTagBits = 32;
constexpr ucp_tag_t kWholeTag = ~ucp_tag_t{0};

ucp_tag_t tag_of(int sender, int tag) {
  return base::narrow<ucp_tag_t>(sender) << kTagBits | base::narrow<ucp_tag_t>(tag);
}

// UCX's number for what ends tell each other beside messages.
constexpr unsigned kWords = 1;

// The longest sleep of say_good_bye(), in milliseconds.
constexpr std::int64_t kLongestPoll = 100;

// How long close_endpoints() waits for what UCX has to finish by itself.
constexpr base::Nanoseconds kLocalEnd = std::chrono::seconds(1);

// While it lives, threads that the calling thread starts block all signals: they are for the
// program's own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

// Tensors that Ronde sends and receives lie in host memory, so UCX need not ask each device.
ucp_request_param_t host_memory() {
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  parameters.memory_type = UCS_MEMORY_TYPE_HOST;
  return parameters;
}

}  // namespace

// ---- opening ----

End::End(const Library& library, Options options) : ucx_(library), options_(std::move(options)) {
  peers_.resize(base::narrow<std::size_t>(options_.size));
}

Result<std::unique_ptr<End>> End::open(Options options) {
  const auto ucx = library();
  RONDE_RETURN_IF_ERROR(ucx.status());
  std::unique_ptr<End> end(new End(**ucx, std::move(options)));
  RONDE_RETURN_IF_ERROR(end->start());
  return end;
}

Status End::configure(ucp_config_t* config) const {
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
  if (const std::string devices = devices_of(options_.interfaces); !devices.empty()) {
    RONDE_RETURN_IF_ERROR(set("", "NET_DEVICES", devices));
  }
  // A host that is silent counts as lost after peer_timeout: half of it passes before the system
  // asks, and then it asks five times.
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(options_.peer_timeout);
  const auto text = [&](std::int64_t parts) {
    return std::to_string(std::max<std::int64_t>(1, seconds.count() / parts)) + "s";
  };
  RONDE_RETURN_IF_ERROR(set("TCP_", "KEEPIDLE", text(2)));
  RONDE_RETURN_IF_ERROR(set("TCP_", "KEEPINTVL", text(10)));
  return set("TCP_", "KEEPCNT", "5");
}

Status End::start() {
  const auto check = [&](ucs_status_t status, const char* activity) -> Status {
    if (status == UCS_OK) return {};
    return Status::error(Code::kTransport,
                         std::string(activity) + " failed: " + ucx_.text_of(status) +
                             "; UCX_LOG_LEVEL=info shows what UCX found, and UCX_TLS and "
                             "UCX_NET_DEVICES what it may use");
  };
  const SignalsBlocked blocked;
  ucp_config_t* config = nullptr;
  RONDE_RETURN_IF_ERROR(
      check(ucx_.config_read(nullptr, nullptr, &config), "reading UCX's settings"));
  const Status configured = configure(config);
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
  RONDE_RETURN_IF_ERROR(
      check(ucx_.worker_create(context_, &worker, &worker_), "starting a UCX worker"));
  RONDE_RETURN_IF_ERROR(
      check(ucx_.worker_get_efd(worker_, &descriptor_), "asking UCX for a descriptor"));
  ucp_am_handler_param_t words{};
  words.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                     UCP_AM_HANDLER_PARAM_FIELD_ARG;
  words.id = kWords;
  words.cb = &End::on_word;
  words.arg = this;
  RONDE_RETURN_IF_ERROR(
      check(ucx_.worker_set_am_recv_handler(worker_, &words), "registering with UCX"));
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
    close_endpoints();
    ucx_.worker_destroy(worker_);
  }
  if (context_ != nullptr) ucx_.cleanup(context_);
}

// UCX calls it inside progress().
ucs_status_t End::on_word(void* end, const void* header, std::size_t header_bytes, void* /*data*/,
                          std::size_t /*bytes*/, const ucp_am_recv_param_t* /*parameters*/) {
  End& me = *static_cast<End*>(end);
  Spoken spoken{};
  if (header_bytes != sizeof spoken) return UCS_OK;
  std::memcpy(&spoken, header, sizeof spoken);
  if (spoken.rank < 0 || spoken.rank >= me.options_.size) return UCS_OK;
  if (spoken.word == Word::kGoodBye) {
    me.answers_owed_.push_back(spoken.rank);
  } else {
    me.peers_[base::narrow<std::size_t>(spoken.rank)].must_answer = false;
  }
  return UCS_OK;
}

void End::say(Word word, int peer) {
  const auto endpoint = endpoint_to(peer);
  if (!endpoint.ok()) return;  // it is gone already
  ucp_request_param_t parameters = host_memory();
  parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
  parameters.flags = UCP_AM_SEND_FLAG_EAGER;
  const Spoken& spoken = word == Word::kGoodBye ? good_bye_ : answer_;
  void* const request =
      ucx_.am_send_nbx(*endpoint, kWords, &spoken, sizeof spoken, nullptr, 0, &parameters);
  if (UCS_PTR_IS_PTR(request)) ucx_.request_free(request);
}

void End::say_good_bye(const base::Clock& clock, base::Instant deadline) {
  for (int rank = 0; rank < options_.size; ++rank) {
    Peer& peer = peers_[base::narrow<std::size_t>(rank)];
    if (peer.endpoint == nullptr || peer.failure != UCS_OK) continue;
    peer.must_answer = true;
    say(Word::kGoodBye, rank);
  }
  const auto silent = [&] {
    return std::any_of(peers_.begin(), peers_.end(),
                       [](const Peer& peer) { return peer.must_answer && peer.failure == UCS_OK; });
  };
  while (silent() && clock.now() < deadline) {
    if (progress()) continue;
    const auto armed = arm();
    if (!armed.ok()) return;
    if (!*armed) continue;
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock.now());
    pollfd watched{descriptor_, POLLIN, 0};
    ::poll(&watched, 1, base::narrow<int>(std::clamp<std::int64_t>(rest.count(), 0, kLongestPoll)));
  }
}

// ---- messages ----

Status End::check_message(int peer, int tag) const {
  if (peer < 0 || peer >= options_.size) {
    return Status::error(
        Code::kInvalidArgument,
        "no rank " + std::to_string(peer) + " in a job of " + std::to_string(options_.size));
  }
  if (tag < 0) return Status::error(Code::kInvalidArgument, "tag " + std::to_string(tag));
  return {};
}

std::size_t End::take_slot() {
  if (free_.empty()) {
    slots_.emplace_back();
    free_.reserve(slots_.size());
    return slots_.size() - 1;
  }
  const std::size_t index = free_.back();
  free_.pop_back();
  return index;
}

void End::free_slot(std::size_t index) {
  slots_[index].used = false;
  slots_[index].tested_in = 0;
  ++slots_[index].generation;
  free_.push_back(index);
}

Result<std::size_t> End::begin(Kind kind, int peer, int tag, std::size_t bytes) {
  RONDE_RETURN_IF_ERROR(check_message(peer, tag));
  const std::size_t index = take_slot();
  Slot& slot = slots_[index];
  slot.kind = kind;
  slot.peer = peer;
  slot.tag = tag;
  slot.bytes = bytes;
  const auto endpoint = endpoint_to(peer);
  // What a rank had sent before it was lost can still be received.
  const bool was_there = peers_[base::narrow<std::size_t>(peer)].endpoint != nullptr;
  if (!endpoint.ok() && !(kind == Kind::kReceive && was_there)) {
    const Status why =
        Status::error(endpoint.status().code(), describe(slot) + ": " + endpoint.status().message())
            .with_rank(peer);
    free_slot(index);
    return why;
  }
  slot.used = true;
  ++outstanding_;
  return index;
}

End::Request End::keep(std::size_t index, ucs_status_ptr_t request) {
  Slot& slot = slots_[index];
  if (UCS_PTR_IS_PTR(request)) {
    slot.request = request;
  } else {
    slot.result = outcome(slot, UCS_PTR_STATUS(request), slot.bytes);
  }
  return Request{slot.generation} << 32U | index;
}

Result<End::Request> End::send(int peer, int tag, std::span<const std::byte> data) {
  const auto index = begin(Kind::kSend, peer, tag, data.size());
  RONDE_RETURN_IF_ERROR(index.status());
  const ucp_request_param_t parameters = host_memory();
  const Peer& other = peers_[base::narrow<std::size_t>(peer)];
  return keep(*index, ucx_.tag_send_nbx(other.endpoint, data.data(), data.size(),
                                        tag_of(options_.rank, tag), &parameters));
}

Result<End::Request> End::receive(int peer, int tag, std::span<std::byte> data) {
  const auto index = begin(Kind::kReceive, peer, tag, data.size());
  RONDE_RETURN_IF_ERROR(index.status());
  ucp_request_param_t parameters = host_memory();
  // UCX 1.13 does not tell the length of a message that is there already, unless it is asked later.
  parameters.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  return keep(*index, ucx_.tag_recv_nbx(worker_, data.data(), data.size(), tag_of(peer, tag),
                                        kWholeTag, &parameters));
}

// Progress costs a system call or more. So test() makes some only when the same request is tested
// again: a caller that tests many requests in turn causes it once.
Result<bool> End::test(Request request) {
  const auto index = static_cast<std::size_t>(request & 0xFFFFFFFFU);
  base::check(index < slots_.size() && slots_[index].used &&
                  slots_[index].generation == static_cast<std::uint32_t>(request >> 32U),
              "test() of a request that is in flight");
  Slot& slot = slots_[index];
  if (slot.request != nullptr) look(slot);
  if (slot.request != nullptr && slot.tested_in == looks_) {
    progress();
    look(slot);
  }
  slot.tested_in = looks_;
  if (slot.request != nullptr) return false;
  const Status result = std::exchange(slot.result, Status());
  --outstanding_;
  free_slot(index);
  RONDE_RETURN_IF_ERROR(result);
  return true;
}

// Sees whether the request of a slot has ended.
void End::look(Slot& slot) {
  ucp_tag_recv_info_t info{};
  info.length = slot.bytes;
  const ucs_status_t status = slot.kind == Kind::kSend
                                  ? ucx_.request_check_status(slot.request)
                                  : ucx_.tag_recv_request_test(slot.request, &info);
  if (status != UCS_INPROGRESS) {
    slot.result = outcome(slot, status, info.length);
    ucx_.request_free(std::exchange(slot.request, nullptr));
    return;
  }
  const Peer& peer = peers_[base::narrow<std::size_t>(slot.peer)];
  if (peer.failure == UCS_OK) return;
  // What had arrived before the connection was lost has been delivered, and no more will come.
  slot.result = failure(describe(slot) + ": ", slot.peer, peer.failure);
  cancel(slot);
}

void End::cancel(Slot& slot) {
  if (slot.request == nullptr) return;
  ucx_.request_cancel(worker_, slot.request);
  ucx_.request_free(std::exchange(slot.request, nullptr));
}

bool End::progress() {
  ++looks_;
  if (ucx_.worker_progress(worker_) == 0) return false;
  for (const int rank : std::exchange(answers_owed_, {})) say(Word::kAnswer, rank);
  return moved_ = true;
}

Result<bool> End::arm() {
  if (std::exchange(moved_, false)) return false;
  const ucs_status_t status = ucx_.worker_arm(worker_);
  if (status == UCS_OK) return true;
  if (status == UCS_ERR_BUSY) return false;
  return Status::error(Code::kTransport, "UCX cannot wait for messages: " + ucx_.text_of(status));
}

// ---- errors ----

Status End::outcome(const Slot& slot, ucs_status_t status, std::size_t length) const {
  if (status == UCS_ERR_MESSAGE_TRUNCATED) {
    return Status::error(Code::kTransport, describe(slot) + ": the message was longer than that")
        .with_rank(slot.peer);
  }
  if (status != UCS_OK) return failure(describe(slot) + ": ", slot.peer, status);
  if (slot.kind == Kind::kSend || length == slot.bytes) return {};
  return Status::error(Code::kTransport,
                       describe(slot) + ": the message had " + std::to_string(length) + " bytes")
      .with_rank(slot.peer);
}

Status End::failure(const std::string& activity, int peer, ucs_status_t status) const {
  // A message that UCX cancels was on a connection that had failed for another reason.
  const ucs_status_t known = peers_[base::narrow<std::size_t>(peer)].failure;
  const ucs_status_t why = known == UCS_OK ? status : known;
  return Status::error(Code::kPeerFailed, activity + "the connection to rank " +
                                              std::to_string(peer) +
                                              " is lost: " + ucx_.text_of(why))
      .with_rank(peer);
}

std::string End::describe(const Slot& slot) const {
  const std::string bytes = std::to_string(slot.bytes) + " bytes ";
  const std::string what = slot.kind == Kind::kSend ? "sending " + bytes + "to rank "
                                                    : "receiving " + bytes + "from rank ";
  return what + std::to_string(slot.peer) + " on rank " + std::to_string(options_.rank) + " (tag " +
         std::to_string(slot.tag) + ")";
}

}  // namespace ronde::collectives::ucx
