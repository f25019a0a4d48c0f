// SPDX-License-Identifier: Apache-2.0
// Ends of UCX in one process that know each other, as libronde.so loads and uses them.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/transport_library.h"

namespace ronde::collectives {

// The plug-in in lib/, where the build puts it; test programs are in bin/test/.
inline const TransportLibrary& ucx_plugin() {
  static const auto kPlugin = [] {
    const auto program = std::filesystem::read_symlink("/proc/self/exe");
    const auto folder = program.parent_path().parent_path().parent_path() / "lib";
    auto loaded = TransportLibrary::load("ucx", folder.string());
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    return *loaded;
  }();
  return kPlugin;
}

// patience: how long a closing end waits for answers. An end that no thread uses gives none.
inline std::vector<std::unique_ptr<Transport>> ucx_ends(
    int ranks, base::Nanoseconds patience = std::chrono::milliseconds(50)) {
  std::vector<std::unique_ptr<Transport>> ends;
  std::vector<std::vector<std::byte>> addresses;
  for (int rank = 0; rank < ranks; ++rank) {
    Transport::Options options;
    options.rank = rank;
    options.size = ranks;
    options.peer_timeout = std::chrono::seconds(60);
    options.close_patience = patience;
    auto opened = Transport::open(ucx_plugin(), std::move(options));
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    ends.push_back(std::move(*opened));
    addresses.push_back(*ends.back()->address());
  }
  for (const auto& end : ends) EXPECT_TRUE(end->connect(addresses).ok());
  return ends;
}

// The addresses at which this process listens for TCP.
inline std::vector<sockaddr_storage> listeners_of_this_process() {
  std::vector<sockaddr_storage> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    int listens = 0;
    socklen_t size = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    sockaddr_storage address{};
    size = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) continue;
    if (address.ss_family == AF_INET || address.ss_family == AF_INET6) found.push_back(address);
  }
  return found;
}

}  // namespace ronde::collectives
