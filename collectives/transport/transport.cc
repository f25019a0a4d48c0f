// SPDX-License-Identifier: Apache-2.0
// Every call of a transport's end goes through this file, which turns its answers into Status.
#include "collectives/transport/transport.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "collectives/transport/plugin_status.h"

namespace ronde::collectives {

using base::Result;
using base::Status;

Transport::End::End(const ronde_transport& its_table, Options its_options)
    : table(its_table), options(std::move(its_options)), error(empty_transport_error()) {
  host.struct_size = sizeof host;
  host.rank = options.rank;
  host.size = options.size;
  host.party = options.party;
  host.interfaces = options.interfaces.c_str();
  host.peer_timeout_ns = options.peer_timeout.count();
  host.context = this;
  host.log = [](void* context, std::int32_t level, const char* text) {
    constexpr auto kMost = static_cast<std::int32_t>(base::LogLevel::kError);
    const auto& log = static_cast<const End*>(context)->options.log;
    if (log) log(static_cast<base::LogLevel>(std::clamp(level, 0, kMost)), text);
  };
  info.struct_size = sizeof info;
}

Transport::End::~End() {
  if (end != nullptr) table.close(end, options.close_patience.count());
}

Result<std::unique_ptr<Transport>> Transport::open(const TransportLibrary& library,
                                                   Options options) {
  auto opened = std::make_unique<End>(library.table(), std::move(options));
  End& end = *opened;
  const auto answer = end.table.open(&end.host, &end.end, &end.info, &end.error);
  if (const Status status = status_of(answer, end.error); !status.ok()) {
    end.end = nullptr;
    return status;
  }
  end.polled = end.info.fd < 0;
  if (!end.polled && (end.table.arm == nullptr || end.table.progress == nullptr)) {
    return Status::error(base::Code::kUnsupported,
                         "the plug-in " + library.path() +
                             " is not used: it gives a descriptor to sleep on, but no function arm "
                             "or progress");
  }
  return std::unique_ptr<Transport>(new Transport(std::move(opened)));
}

Transport::Transport(const ronde_transport& table, ronde_transport_end* end, Options options,
                     bool polled, int largest_tag)
    : Transport(std::make_unique<End>(table, std::move(options))) {
  end_->end = end;
  end_->info.fd = -1;
  end_->info.largest_tag = largest_tag;
  end_->polled = polled;
}

Transport::Transport(const Transport& all, std::vector<int> members, std::optional<Tags> tags)
    : end_(all.end_), size_(base::narrow<int>(members.size())), members_(std::move(members)) {
  const auto me = std::find(members_.begin(), members_.end(), all.rank());
  base::check(me != members_.end(), "Transport: this rank is not a member");
  rank_ = base::narrow<int>(me - members_.begin());
  for (int& member : members_) member = all.rank_of(member);
  tags_ = tags ? Tags{all.tags_.first + tags->first, tags->count} : all.tags_;
}

Result<std::vector<std::byte>> Transport::address() {
  const void* bytes = nullptr;
  std::size_t length = 0;
  End& end = *end_;
  RONDE_RETURN_IF_ERROR(
      status_of(end.table.address(end.end, &bytes, &length, &end.error), end.error));
  const auto* const first = static_cast<const std::byte*>(bytes);
  return std::vector<std::byte>(first, first + length);
}

Status Transport::connect(std::span<const std::vector<std::byte>> addresses) {
  std::vector<const void*> bytes;
  std::vector<std::size_t> lengths;
  for (const auto& address : addresses) {
    bytes.push_back(address.data());
    lengths.push_back(address.size());
  }
  End& end = *end_;
  return status_of(end.table.connect(end.end, bytes.data(), lengths.data(),
                                     base::narrow<std::int32_t>(addresses.size()), &end.error),
                   end.error);
}

Result<Transport::Request> Transport::send(int peer, int tag, std::span<const std::byte> data) {
  Request request = 0;
  End& end = *end_;
  const auto answer = end.table.send(end.end, rank_of(peer), tags_.first + tag, data.data(),
                                     data.size(), &request, &end.error);
  if (answer == RONDE_TRANSPORT_OK) return request;
  return status_of(answer, end.error);
}

Result<Transport::Request> Transport::receive(int peer, int tag, std::span<std::byte> data) {
  Request request = 0;
  End& end = *end_;
  const auto answer = end.table.receive(end.end, rank_of(peer), tags_.first + tag, data.data(),
                                        data.size(), &request, &end.error);
  if (answer == RONDE_TRANSPORT_OK) return request;
  return status_of(answer, end.error);
}

Result<bool> Transport::arm() {
  if (descriptor() < 0) return true;
  const auto answer = end_->table.arm(end_->end, &end_->error);
  RONDE_RETURN_IF_ERROR(status_of(answer, end_->error));
  return answer == RONDE_TRANSPORT_OK;
}

Status Transport::progress() {
  if (descriptor() < 0) return {};
  return status_of(end_->table.progress(end_->end, &end_->error), end_->error);
}

Result<bool> Transport::test(Request request) {
  const auto answer = end_->table.test(end_->end, request, &end_->error);
  if (answer == RONDE_TRANSPORT_OK) return true;
  if (answer == RONDE_TRANSPORT_PENDING) return false;
  return status_of(answer, end_->error);
}

}  // namespace ronde::collectives
