// SPDX-License-Identifier: Apache-2.0
// Which of a host's addresses its leader listens on, and in which order another leader tries them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ronde::runtime {

enum class IpFamily : std::uint8_t { kV4, kV6 };

// Thread safety: values.
struct IpAddress {
  IpFamily family = IpFamily::kV4;
  std::array<std::uint8_t, 16> bytes{};  // of kV4 the first four

  friend bool operator==(const IpAddress&, const IpAddress&) = default;
};

struct Endpoint {
  IpAddress address;
  std::uint16_t port = 0;

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

struct InterfaceAddress {
  std::string name;  // "eth0"
  IpAddress address;
  int prefix_length = 0;  // bits of the address that all of its network share
  bool up = false;
  bool loopback = false;
  std::uint32_t index = 0;  // the kernel's number of the interface
};

// What the user wants, and how strictly.
struct WantedInterfaces {
  std::string words;    // "eth0,10.0.0.0/8,fd00::/8"; empty: all
  bool strict = false;  // a word that matches nothing is an error
};

// "10.0.0.1", "fd00::1". Nothing if it is neither.
[[nodiscard]] std::optional<IpAddress> parse_address(std::string_view text);
[[nodiscard]] std::string text_of(const IpAddress& address);
// "10.0.0.1:4711", "[fd00::1]:4711".
[[nodiscard]] std::optional<Endpoint> parse_endpoint(std::string_view text);
[[nodiscard]] std::string text_of(const Endpoint& endpoint);

// Whether both are in the network of `network` with a prefix of so many bits.
[[nodiscard]] bool same_network(const IpAddress& network, int prefix_length,
                                const IpAddress& other);
// fe80::/10: valid on one link only.
[[nodiscard]] bool is_link_local(const IpAddress& address);

// The setting RONDE_INTERFACE, or else what the job's MPI was told for the same purpose: lines
// "NAME=value" are searched for OMPI_MCA_btl_tcp_if_include. That one may name what this host does
// not have (it was written for the whole cluster), so there a word that matches nothing is passed
// over.
[[nodiscard]] WantedInterfaces wanted_interfaces(const std::string& setting,
                                                 std::span<const std::string> environment);

// The addresses to listen on, IPv4 first. Without words: all of interfaces that are up, without
// loopback (unless there is nothing else) and link-local addresses. Words are names of interfaces
// or networks; only a network names a link-local address.
base::Result<std::vector<InterfaceAddress>> choose_addresses(
    const std::vector<InterfaceAddress>& all, const WantedInterfaces& wanted,
    const std::string& host_name);

// The addresses of another host as this one should try them: those in a network of this host
// first. Those that are this host's own come last: every host has the address of its container
// bridge, and behind it is not the other.
[[nodiscard]] std::vector<Endpoint> order_by_nearness(std::vector<Endpoint> theirs,
                                                      const std::vector<InterfaceAddress>& mine);

// All addresses of this host. Asks the kernel.
base::Result<std::vector<InterfaceAddress>> list_interfaces();

}  // namespace ronde::runtime
