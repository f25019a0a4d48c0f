// SPDX-License-Identifier: Apache-2.0
// The links between the leaders of a process set over several hosts. They have no connections of
// their own: the leaders of the job pass their messages on (Frame). All are children of the
// first.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/job_shape.h"
#include "base/status.h"
#include "runtime/links/links.h"

namespace ronde::runtime {

// Thread safety: only the agent uses it.
class SetLinks final : public Links {
 public:
  // Sends a message to this rank of the set.
  using Send = std::function<base::Status(std::int32_t rank, std::span<const std::byte> message)>;
  // shape: of the set; host: this one, in it.
  SetLinks(base::JobShape shape, std::int32_t host, Send send)
      : shape_(std::move(shape)), host_(host), send_(std::move(send)) {}

  // A message has arrived, which the next poll() hands out.
  void deliver(std::vector<std::byte> message) { arrived_.push_back(std::move(message)); }

  // ---- Links ----
  [[nodiscard]] std::int32_t children() const override {
    return host_ == 0 ? shape_.hosts() - 1 : 0;
  }
  base::Result<int> poll(const Take& take) override;
  base::Status send_up(const LinkMessage& message) override;
  base::Status send_down(const LinkMessage& message) override;
  base::Status send_towards(std::int32_t host, const LinkMessage& message) override {
    return send_(shape_.leader_of(host), encode(message));
  }
  base::Result<bool> flush() override { return true; }
  // The links of the job notice what becomes of a host, and fail the job.
  [[nodiscard]] std::optional<Lost> take_lost() override { return std::nullopt; }
  base::Status call_roll() override { return {}; }
  [[nodiscard]] std::vector<Lost> silent() const override { return {}; }

 private:
  const base::JobShape shape_;
  const std::int32_t host_;
  const Send send_;
  std::vector<std::vector<std::byte>> arrived_;
};

}  // namespace ronde::runtime
