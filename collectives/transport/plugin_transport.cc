// SPDX-License-Identifier: Apache-2.0
// Every call of a transport's end goes through this file, which turns its answers into Status.
#include "collectives/transport/plugin_transport.h"

#include <algorithm>
#include <utility>

#include "base/numbers.h"

namespace ronde::collectives {

using base::Result;
using base::Status;

PluginTransport::PluginTransport(const ronde_transport& table, Options options)
    : table_(table), options_(std::move(options)), error_(empty_transport_error()) {
  host_.struct_size = sizeof host_;
  host_.rank = options_.rank;
  host_.size = options_.size;
  host_.party = options_.party;
  host_.interfaces = options_.interfaces.c_str();
  host_.peer_timeout_ns = options_.peer_timeout.count();
  host_.context = this;
  host_.log = [](void* context, std::int32_t level, const char* text) {
    constexpr auto kMost = static_cast<std::int32_t>(base::LogLevel::kError);
    const auto& log = static_cast<const PluginTransport*>(context)->options_.log;
    if (log) log(static_cast<base::LogLevel>(std::clamp(level, 0, kMost)), text);
  };
  info_.struct_size = sizeof info_;
}

Result<std::unique_ptr<PluginTransport>> PluginTransport::open(const TransportLibrary& library,
                                                               Options options) {
  std::unique_ptr<PluginTransport> transport(
      new PluginTransport(library.table(), std::move(options)));
  const auto answer = library.table().open(&transport->host_, &transport->end_, &transport->info_,
                                           &transport->error_);
  if (const Status opened = status_of(answer, transport->error_); !opened.ok()) {
    transport->end_ = nullptr;
    return opened;
  }
  const bool sleeps = transport->info_.fd >= 0;
  if (sleeps && (library.table().arm == nullptr || library.table().progress == nullptr)) {
    return Status::error(base::Code::kUnsupported,
                         "the plug-in " + library.path() +
                             " is not used: it gives a descriptor to sleep on, but no function arm "
                             "or progress");
  }
  return transport;
}

PluginTransport::~PluginTransport() {
  if (end_ != nullptr) table_.close(end_, options_.close_patience.count());
}

Result<std::vector<std::byte>> PluginTransport::address() {
  const void* bytes = nullptr;
  std::size_t length = 0;
  RONDE_RETURN_IF_ERROR(status_of(table_.address(end_, &bytes, &length, &error_), error_));
  const auto* const first = static_cast<const std::byte*>(bytes);
  return std::vector<std::byte>(first, first + length);
}

Status PluginTransport::connect(std::span<const std::vector<std::byte>> addresses) {
  std::vector<const void*> bytes;
  std::vector<std::size_t> lengths;
  for (const auto& address : addresses) {
    bytes.push_back(address.data());
    lengths.push_back(address.size());
  }
  return status_of(table_.connect(end_, bytes.data(), lengths.data(),
                                  base::narrow<std::int32_t>(addresses.size()), &error_),
                   error_);
}

Result<Transport::Request> PluginTransport::send(int peer, int tag,
                                                 std::span<const std::byte> data) {
  Request request = 0;
  const auto answer = table_.send(end_, peer, tag, data.data(), data.size(), &request, &error_);
  if (answer == RONDE_TRANSPORT_OK) return request;
  return status_of(answer, error_);
}

Result<Transport::Request> PluginTransport::receive(int peer, int tag, std::span<std::byte> data) {
  Request request = 0;
  const auto answer = table_.receive(end_, peer, tag, data.data(), data.size(), &request, &error_);
  if (answer == RONDE_TRANSPORT_OK) return request;
  return status_of(answer, error_);
}

Result<bool> PluginTransport::arm() {
  if (info_.fd < 0) return true;
  const auto answer = table_.arm(end_, &error_);
  RONDE_RETURN_IF_ERROR(status_of(answer, error_));
  return answer == RONDE_TRANSPORT_OK;
}

Status PluginTransport::progress() {
  if (info_.fd < 0) return {};
  return status_of(table_.progress(end_, &error_), error_);
}

Result<bool> PluginTransport::test(Request request) {
  const auto answer = table_.test(end_, request, &error_);
  if (answer == RONDE_TRANSPORT_OK) return true;
  if (answer == RONDE_TRANSPORT_PENDING) return false;
  return status_of(answer, error_);
}

}  // namespace ronde::collectives
