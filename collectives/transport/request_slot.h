// SPDX-License-Identifier: Apache-2.0
// The bookkeeping of requests that all algorithms share: a slot has at most one outstanding
// request.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "base/status.h"
#include "collectives/transport/transport.h"

namespace ronde::collectives {

// It owns no memory: what is sent and received belongs to the caller.
//
// Thread safety: that of the transport.
class RequestSlot {
 public:
  [[nodiscard]] bool busy() const { return request_.has_value(); }

  [[nodiscard]] base::Status send(Transport& transport, int peer, int tag,
                                  std::span<const std::byte> data) {
    return keep(transport.send(peer, tag, data));
  }
  [[nodiscard]] base::Status receive(Transport& transport, int peer, int tag,
                                     std::span<std::byte> data) {
    return keep(transport.receive(peer, tag, data));
  }

  // Tests the request. Returns true when this call saw it end, and false when it is outstanding or
  // there is none.
  [[nodiscard]] base::Result<bool> ended(Transport& transport) {
    if (!request_) return false;
    base::Result<bool> done = transport.test(*request_);
    if (!done.ok() || *done) request_.reset();
    return done;
  }

 private:
  base::Status keep(const base::Result<Transport::Request>& request) {
    base::check(!request_, "RequestSlot: the slot is taken");
    RONDE_RETURN_IF_ERROR(request.status());
    request_ = *request;
    return {};
  }

  std::optional<Transport::Request> request_;
};

}  // namespace ronde::collectives
