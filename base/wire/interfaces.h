// SPDX-License-Identifier: Apache-2.0
// Which of a host's addresses its leader listens on, and in which order another leader tries them.
// Pure, but for list_interfaces(). Thread safety: values, and functions that any thread may call.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ronde::base {

enum class IpFamily : std::uint8_t { kV4, kV6 };

struct IpAddress {
  IpFamily family = IpFamily::kV4;
  std::array<std::uint8_t, 16> bytes{};  // kV4 uses the first four

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
  int prefix_length = 0;  // how many leading bits all addresses of its network share
  bool up = false;
  bool loopback = false;
  std::uint32_t index = 0;  // the kernel's number of the interface
};

// The interfaces that the user asked for, and how strictly.
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
// From the kernel's form; nothing if it belongs to neither family, or is nullptr. The port of a
// mask has no meaning.
[[nodiscard]] std::optional<Endpoint> endpoint_of(const sockaddr* address);

// Whether `other` is in the network of `network`, whose prefix has so many bits.
[[nodiscard]] bool same_network(const IpAddress& network, int prefix_length,
                                const IpAddress& other);
// fe80::/10: valid on one link only.
[[nodiscard]] bool is_link_local(const IpAddress& address);

// Returns the setting RONDE_INTERFACE, or, where it is empty, OpenMPI's setting for the same
// purpose, OMPI_MCA_btl_tcp_if_include, from lines "NAME=value". OpenMPI's was written for the
// whole cluster and may name interfaces that this host lacks, so it is not strict.
[[nodiscard]] WantedInterfaces wanted_interfaces(const std::string& setting,
                                                 std::span<const std::string> environment);

// Returns the addresses to listen on, IPv4 first. Without words these are all addresses of
// interfaces that are up, except link-local ones, and loopback only if there is nothing else. Words
// are names of interfaces or networks; only a network can select a link-local address.
Result<std::vector<InterfaceAddress>> choose_addresses(const std::vector<InterfaceAddress>& all,
                                                       const WantedInterfaces& wanted,
                                                       const std::string& host_name);

// Returns the addresses of another host in the order in which this one should try them: those in a
// network of this host first. Those that this host has too come last: all hosts may have the same
// address on a container bridge, where it does not lead to another host.
[[nodiscard]] std::vector<Endpoint> order_by_nearness(std::vector<Endpoint> theirs,
                                                      const std::vector<InterfaceAddress>& mine);

// All addresses of this host. Asks the kernel.
Result<std::vector<InterfaceAddress>> list_interfaces();

}  // namespace ronde::base
