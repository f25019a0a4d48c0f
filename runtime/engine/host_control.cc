// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/host_control.h"

namespace ronde::runtime {

base::Result<int> HostControl::step(bool idle, SleepState& sleep) {
  if (!node_) return 0;
  const std::uint64_t step = begun_.fetch_add(1, std::memory_order_seq_cst) + 1;
  RONDE_ASSIGN_OR_RETURN(const int work, node_->step(idle));
  drained_.store(node_->drained(), std::memory_order_release);
  may_pass_messages_.store(node_->may_pass_messages(), std::memory_order_release);
  ended_.store(step, std::memory_order_release);
  // Everything that had arrived is read: only new messages wake the background thread.
  if (links_) RONDE_RETURN_IF_ERROR(sleep.watch(links_->fd()));
  return work;
}

bool HostControl::waits_for_idle(bool held) {
  if (!node_) return false;
  node_->hold_devices_back(held);
  return node_->waits_for_idle();
}

void HostControl::close(bool failed) {
  if (links_ && !failed) links_->send_good_bye();
  node_.reset();
  set_links_.reset();
  links_.reset();
}

}  // namespace ronde::runtime
