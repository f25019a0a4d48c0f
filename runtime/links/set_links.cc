// SPDX-License-Identifier: Apache-2.0
#include "runtime/links/set_links.h"

namespace ronde::runtime {

using base::Status;

base::Result<int> SetLinks::poll(const Take& take) {
  const auto arrived = std::exchange(arrived_, {});
  for (const auto& bytes : arrived) {
    RONDE_ASSIGN_OR_RETURN(const auto message, decode_link_message(bytes));
    RONDE_RETURN_IF_ERROR(take(host_ == 0 ? From::kChild : From::kParent, message));
  }
  return static_cast<int>(arrived.size());
}

Status SetLinks::send_up(const LinkMessage& message) {
  return send_(shape_.leader_of(0), encode(message));
}

Status SetLinks::send_down(const LinkMessage& message) {
  if (children() == 0) return {};
  const std::vector<std::byte> bytes = encode(message);
  for (std::int32_t host = 1; host < shape_.hosts(); ++host) {
    RONDE_RETURN_IF_ERROR(send_(shape_.leader_of(host), bytes));
  }
  return {};
}

}  // namespace ronde::runtime
