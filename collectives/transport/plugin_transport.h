// SPDX-License-Identifier: Apache-2.0
// A plug-in's end (plugin.h) as the rest of Ronde sees it: a Transport whose errors are Status.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "collectives/transport/plugin_status.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/transport_library.h"

namespace ronde::collectives {

// This rank's end of the transport of a job. Its destructor closes it, unless that was done before.
//
// Thread safety: one thread at a time.
class PluginTransport final : public Transport {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    ronde_meeting_party* party = nullptr;  // if this plug-in's meeting introduced the ranks
    std::string interfaces;                // as in ronde_transport_host
    base::Nanoseconds peer_timeout{};
    base::Nanoseconds close_patience{};  // for what was sent to be delivered
    std::function<void(base::LogLevel level, std::string_view text)> log;
  };

  static base::Result<std::unique_ptr<PluginTransport>> open(const TransportLibrary& library,
                                                             Options options);
  PluginTransport(const PluginTransport&) = delete;
  PluginTransport& operator=(const PluginTransport&) = delete;
  ~PluginTransport() override;

  // What the other ranks need for connect(); it may be empty.
  base::Result<std::vector<std::byte>> address();
  // Takes the addresses of all ranks, by rank, before the first message.
  base::Status connect(std::span<const std::vector<std::byte>> addresses);
  [[nodiscard]] int rank() const override { return host_.rank; }
  [[nodiscard]] int size() const override { return host_.size; }
  base::Result<Request> send(int peer, int tag, std::span<const std::byte> data) override;
  base::Result<Request> receive(int peer, int tag, std::span<std::byte> data) override;
  base::Result<bool> test(Request request) override;
  [[nodiscard]] bool needs_polling() const override { return info_.fd < 0; }
  [[nodiscard]] int descriptor() const override { return info_.fd; }
  base::Result<bool> arm() override;
  base::Status progress() override;
  [[nodiscard]] int outstanding() const override { return table_.outstanding(end_); }
  [[nodiscard]] bool writes_after_destruction() const override {
    return info_.writes_after_close != 0 && outstanding() > 0;
  }
  void abandon() override { table_.abandon(end_); }

 private:
  PluginTransport(const ronde_transport& table, Options options);

  const ronde_transport& table_;
  const Options options_;
  ronde_transport_host host_{};
  ronde_transport_info info_{};
  ronde_transport_error error_;
  ronde_transport_end* end_ = nullptr;
};

}  // namespace ronde::collectives
