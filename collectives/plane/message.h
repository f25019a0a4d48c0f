// SPDX-License-Identifier: Apache-2.0
// The data plane that uses messages alone: every rank counts as a host. The plane of several hosts
// inherits the operations that it does not replace.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/numbers.h"
#include "collectives/messages/choose.h"
#include "collectives/plane/plane.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/workspace.h"

namespace ronde::collectives {

// It owns neither the transport nor the workspace; the workspace must outlive the transport, and
// both the plane. Thread safety: used by the agent alone.
class MessagePlane : public DataPlane {
 public:
  MessagePlane(Transport& transport, Workspace& workspace, const Algorithm& algorithm,
               base::Bytes segment)
      : transport_(transport), workspace_(workspace), algorithm_(algorithm), segment_(segment) {}

  base::Result<CollectivePtr> make(const Exchange& exchange) override;

  base::Status tune(const base::Config& config, const std::function<base::Status()>& idle) override;
  void want_rings(bool wanted) override;
  [[nodiscard]] std::string description() const override;

 protected:
  [[nodiscard]] Transport& transport() const { return transport_; }
  [[nodiscard]] Workspace& workspace() const { return workspace_; }
  [[nodiscard]] base::Bytes segment() const { return segment_; }

  // The first of the tags of a batch. Batches that follow each other use different tags, since a
  // rank may be one batch ahead of another.
  [[nodiscard]] int first_tag(std::uint64_t sequence) const;

 private:
  Transport& transport_;
  Workspace& workspace_;
  const Algorithm& algorithm_;
  const base::Bytes segment_;
};

}  // namespace ronde::collectives
