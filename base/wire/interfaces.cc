// SPDX-License-Identifier: Apache-2.0
// Parsing, choosing and ordering addresses; list_interfaces() at the end asks the kernel for them.
#include "base/wire/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/numbers.h"
#include "base/text.h"

namespace ronde::base {

namespace {

constexpr int kBitsV4 = 32;
constexpr int kBitsV6 = 128;

int bits_of(IpFamily family) { return family == IpFamily::kV4 ? kBitsV4 : kBitsV6; }

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view word = trimmed(text.substr(0, comma));
    if (!word.empty()) words.emplace_back(word);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return words;
}

struct Network {
  IpAddress address;
  int prefix_length = 0;
};

// Parses "10.0.0.0/8"; an address without a length is a network of one.
std::optional<Network> parse_network(std::string_view word) {
  const std::size_t slash = word.find('/');
  const auto address = parse_address(word.substr(0, slash));
  if (!address) return std::nullopt;
  const int bits = bits_of(address->family);
  if (slash == std::string_view::npos) return Network{*address, bits};
  const auto length = parse_number<int>(word.substr(slash + 1));
  if (!length || *length < 0 || *length > bits) return std::nullopt;
  return Network{*address, *length};
}

bool matches(const InterfaceAddress& address, const std::string& word) {
  if (const auto network = parse_network(word)) {
    return same_network(network->address, network->prefix_length, address.address);
  }
  return address.name == word && !is_link_local(address.address);
}

std::string listing(const std::vector<InterfaceAddress>& all) {
  std::string text;
  for (const InterfaceAddress& one : all) {
    text += (text.empty() ? "" : ", ") + one.name + " (" + text_of(one.address) + "/" +
            std::to_string(one.prefix_length) + (one.up ? "" : ", down") + ")";
  }
  return text.empty() ? "none" : text;
}

void v4_first(std::vector<InterfaceAddress>& addresses) {
  std::stable_partition(addresses.begin(), addresses.end(), [](const InterfaceAddress& one) {
    return one.address.family == IpFamily::kV4;
  });
}

// The addresses to listen on when the user has named none.
std::vector<InterfaceAddress> default_addresses(const std::vector<InterfaceAddress>& all,
                                                bool loopback) {
  std::vector<InterfaceAddress> chosen;
  for (const InterfaceAddress& one : all) {
    if (one.up && one.loopback == loopback && !is_link_local(one.address)) chosen.push_back(one);
  }
  return chosen;
}

}  // namespace

std::optional<IpAddress> parse_address(std::string_view text) {
  const std::string copy(text);
  IpAddress address;
  if (::inet_pton(AF_INET, copy.c_str(), address.bytes.data()) == 1) return address;
  address.family = IpFamily::kV6;
  if (::inet_pton(AF_INET6, copy.c_str(), address.bytes.data()) == 1) return address;
  return std::nullopt;
}

std::string text_of(const IpAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int family = address.family == IpFamily::kV4 ? AF_INET : AF_INET6;
  const char* const written =
      ::inet_ntop(family, address.bytes.data(), text.data(), narrow<socklen_t>(text.size()));
  return written == nullptr ? "?" : written;
}

std::optional<Endpoint> parse_endpoint(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto port = parse_number<std::uint16_t>(text.substr(colon + 1));
  std::string_view host = text.substr(0, colon);
  const bool brackets = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (brackets) host = host.substr(1, host.size() - 2);
  const auto address = parse_address(host);
  if (!port || *port == 0 || !address || brackets != (address->family == IpFamily::kV6)) {
    return std::nullopt;
  }
  return Endpoint{*address, *port};
}

std::string text_of(const Endpoint& endpoint) {
  const std::string address = text_of(endpoint.address);
  const std::string port = std::to_string(endpoint.port);
  return endpoint.address.family == IpFamily::kV4 ? address + ":" + port
                                                  : "[" + address + "]:" + port;
}

bool same_network(const IpAddress& network, int prefix_length, const IpAddress& other) {
  if (network.family != other.family) return false;
  for (int bit = 0; bit < prefix_length; bit += 8) {
    const std::size_t at = narrow<std::size_t>(bit / 8);
    const int shared = std::min(8, prefix_length - bit);
    const unsigned mask = 0xFFU << static_cast<unsigned>(8 - shared);
    if (((unsigned{network.bytes.at(at)} ^ unsigned{other.bytes.at(at)}) & mask & 0xFFU) != 0) {
      return false;
    }
  }
  return true;
}

bool is_link_local(const IpAddress& address) {
  return address.family == IpFamily::kV6 && address.bytes[0] == 0xFE &&
         (address.bytes[1] & 0xC0U) == 0x80U;
}

WantedInterfaces wanted_interfaces(const std::string& setting,
                                   std::span<const std::string> environment) {
  if (!split_words(setting).empty()) return {setting, true};
  constexpr std::string_view kOfMpi = "OMPI_MCA_btl_tcp_if_include=";
  for (const std::string& line : environment) {
    if (line.rfind(kOfMpi, 0) == 0) return {line.substr(kOfMpi.size()), false};
  }
  return {};
}

Result<std::vector<InterfaceAddress>> choose_addresses(const std::vector<InterfaceAddress>& all,
                                                       const WantedInterfaces& wanted,
                                                       const std::string& host_name) {
  const std::vector<std::string> words = split_words(wanted.words);
  std::vector<bool> taken(all.size());
  for (const std::string& word : words) {
    bool found = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i].up || !matches(all[i], word)) continue;
      taken[i] = true;
      found = true;
    }
    if (!found && wanted.strict) {
      return Status::error(Code::kInvalidArgument,
                           "RONDE_INTERFACE names '" + word + "', which no interface of host " +
                               host_name + " matches; there are: " + listing(all));
    }
  }
  std::vector<InterfaceAddress> chosen;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (taken[i]) chosen.push_back(all[i]);
  }
  if (chosen.empty()) chosen = default_addresses(all, false);
  if (chosen.empty()) chosen = default_addresses(all, true);
  if (chosen.empty()) {
    return Status::error(
        Code::kSystem,
        "host " + host_name + " has no network interface that is up; there are: " + listing(all));
  }
  v4_first(chosen);
  return chosen;
}

std::vector<Endpoint> order_by_nearness(std::vector<Endpoint> theirs,
                                        const std::vector<InterfaceAddress>& mine) {
  const auto distance = [&](const Endpoint& endpoint) {
    int least = 1;
    for (const InterfaceAddress& own : mine) {
      if (own.address == endpoint.address) return 2;
      if (same_network(own.address, own.prefix_length, endpoint.address)) least = 0;
    }
    return least;
  };
  std::stable_sort(theirs.begin(), theirs.end(), [&](const Endpoint& left, const Endpoint& right) {
    return distance(left) < distance(right);
  });
  return theirs;
}

std::optional<Endpoint> endpoint_of(const sockaddr* address) {
  Endpoint endpoint;
  if (address != nullptr && address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof v4);
    std::memcpy(endpoint.address.bytes.data(), &v4.sin_addr, sizeof v4.sin_addr);
    endpoint.port = ntohs(v4.sin_port);
    return endpoint;
  }
  if (address == nullptr || address->sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 v6{};
  std::memcpy(&v6, address, sizeof v6);
  endpoint.address.family = IpFamily::kV6;
  std::memcpy(endpoint.address.bytes.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
  endpoint.port = ntohs(v6.sin6_port);
  return endpoint;
}

namespace {

int ones_in(const IpAddress& mask) {
  int ones = 0;
  for (const std::uint8_t byte : mask.bytes) ones += std::popcount(byte);
  return ones;
}

}  // namespace

Result<std::vector<InterfaceAddress>> list_interfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) {
    return Status::system("could not list the network interfaces of this host", errno);
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, ::freeifaddrs);
  std::vector<InterfaceAddress> all;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    const auto own = endpoint_of(one->ifa_addr);
    if (!own) continue;
    const auto mask = endpoint_of(one->ifa_netmask);
    InterfaceAddress entry;
    entry.name = one->ifa_name;
    entry.address = own->address;
    entry.prefix_length = mask ? ones_in(mask->address) : bits_of(own->address.family);
    entry.up = (one->ifa_flags & IFF_UP) != 0;
    entry.loopback = (one->ifa_flags & IFF_LOOPBACK) != 0;
    entry.index = ::if_nametoindex(one->ifa_name);
    all.push_back(std::move(entry));
  }
  return all;
}

}  // namespace ronde::base
