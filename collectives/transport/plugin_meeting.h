// SPDX-License-Identifier: Apache-2.0
// The meeting of a plug-in (plugin.h) as the rest of Ronde sees it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/transport/meeting.h"
#include "collectives/transport/plugin_status.h"
#include "collectives/transport/program.h"
#include "collectives/transport/transport_library.h"

namespace ronde::collectives {

// A rank's part in it. Thread safety: that of Meeting.
class PluginMeeting final : public Meeting {
 public:
  // Joins the ranks of `communicator`, which stays the program's; nullptr: all that the launcher
  // has started. The plug-in must have a meeting. All ranks must take part before the deadline;
  // where the plug-in has to start MPI for it, and that takes longer, the process ends, since MPI
  // cannot be interrupted.
  static base::Result<std::unique_ptr<PluginMeeting>> join(const TransportLibrary& library,
                                                           const ProgramCommunicator* communicator,
                                                           const base::Clock& clock,
                                                           base::Instant deadline);
  ~PluginMeeting() override {
    if (party_ != nullptr) meeting_.free(party_);
  }

  [[nodiscard]] ronde_meeting_party* party() const { return party_; }

  [[nodiscard]] int rank() const override { return info_.rank; }
  [[nodiscard]] int size() const override { return info_.size; }
  [[nodiscard]] std::vector<int> ranks_on_this_host() const override;
  [[nodiscard]] std::string text() const override { return library_; }
  base::Result<std::vector<std::vector<std::byte>>> allgather(std::span<const std::byte> mine,
                                                              const std::string& activity,
                                                              const StartTrouble& trouble,
                                                              const base::Clock& clock,
                                                              base::Instant deadline) override;
  [[nodiscard]] std::string bound_to_thread() const override;
  [[nodiscard]] bool ends_with_process() const override { return info_.ends_with_process != 0; }
  void abandon() override { meeting_.abandon(party_); }
  base::Status close() override;

 private:
  explicit PluginMeeting(const TransportLibrary& library);

  const ronde_meeting& meeting_;
  const std::string library_;
  ronde_meeting_info info_{};
  ronde_meeting_party* party_ = nullptr;
};

}  // namespace ronde::collectives
