// SPDX-License-Identifier: Apache-2.0
// The plug-in of MPI as libronde.so loads and uses it, for tests of its promises.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/transport/plugin_meeting.h"
#include "collectives/transport/process_mpi.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/transport_library.h"

namespace ronde::testing {

using Parts = std::vector<std::vector<std::byte>>;

// Loads it from beside libronde.so, where the run path of the tests leads.
inline const collectives::TransportLibrary& mpi_plugin() {
  static const auto kPlugin = [] {
    auto loaded = collectives::TransportLibrary::load("mpi", "");
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    return *loaded;
  }();
  return kPlugin;
}

// One engine's part in MPI.
class MpiPart {
 public:
  static base::Result<std::unique_ptr<MpiPart>> open(
      const collectives::ProgramCommunicator* communicator, const base::Clock& clock,
      base::Instant deadline) {
    const auto& plugin = mpi_plugin();
    RONDE_RETURN_IF_ERROR(collectives::check_mpi(plugin, communicator, collectives::process_mpi()));
    auto meeting = collectives::PluginMeeting::join(plugin, communicator, clock, deadline);
    RONDE_RETURN_IF_ERROR(meeting.status());
    return std::unique_ptr<MpiPart>(new MpiPart(std::move(*meeting)));
  }

  collectives::Meeting& meeting() { return *meeting_; }
  [[nodiscard]] int rank() const { return meeting_->rank(); }
  [[nodiscard]] int size() const { return meeting_->size(); }
  std::unique_ptr<collectives::Transport> transport() {
    collectives::Transport::Options options;
    options.rank = rank();
    options.size = size();
    options.party = meeting_->party();
    auto opened = collectives::Transport::open(mpi_plugin(), std::move(options));
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    if (!opened.ok()) return nullptr;
    const auto address = (*opened)->address();
    EXPECT_TRUE(address.ok() && address->empty()) << "MPI has connected the ranks itself";
    EXPECT_TRUE((*opened)->connect(Parts(static_cast<std::size_t>(size()))).ok());
    return std::move(*opened);
  }
  base::Result<Parts> allgather(std::span<const std::byte> mine, const base::Clock& clock,
                                base::Instant deadline) {
    return meeting_->allgather(mine, "exchanging bytes in a test", {}, clock, deadline);
  }
  void abandon() { meeting_->abandon(); }
  base::Status close() { return meeting_->close(); }

 private:
  explicit MpiPart(std::unique_ptr<collectives::PluginMeeting> meeting)
      : meeting_(std::move(meeting)) {}

  std::unique_ptr<collectives::PluginMeeting> meeting_;
};

}  // namespace ronde::testing
