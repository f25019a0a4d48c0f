// SPDX-License-Identifier: Apache-2.0
// Some of a transport's ranks, numbered anew: an algorithm that is written for all ranks of a
// transport runs among the members alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/numbers.h"
#include "collectives/transport/transport.h"

namespace ronde::collectives {

// members[i] is the rank that is i here; this rank is one of them. Two members that use different
// groups must use different tags. The inner transport must outlive this one.
//
// Thread safety: that of the inner transport.
class GroupTransport final : public Transport {
 public:
  GroupTransport(Transport& inner, std::vector<int> members)
      : inner_(inner), members_(std::move(members)) {
    const auto me = std::find(members_.begin(), members_.end(), inner.rank());
    base::check(me != members_.end(), "GroupTransport: this rank is not a member");
    rank_ = base::narrow<int>(me - members_.begin());
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return base::narrow<int>(members_.size()); }

  base::Result<Request> send(int peer, int tag, std::span<const std::byte> data) override {
    return inner_.send(member(peer), tag, data);
  }
  base::Result<Request> receive(int peer, int tag, std::span<std::byte> data) override {
    return inner_.receive(member(peer), tag, data);
  }
  base::Result<bool> test(Request request) override { return inner_.test(request); }

  // These three answer for the inner transport, since memory that no member's request points at may
  // still belong to a request of another user of it.
  [[nodiscard]] bool needs_polling() const override { return inner_.needs_polling(); }
  [[nodiscard]] int outstanding() const override { return inner_.outstanding(); }
  [[nodiscard]] bool writes_after_destruction() const override {
    return inner_.writes_after_destruction();
  }

 private:
  [[nodiscard]] int member(int peer) const { return members_.at(base::narrow<std::size_t>(peer)); }

  Transport& inner_;
  std::vector<int> members_;
  int rank_ = 0;
};

}  // namespace ronde::collectives
