// SPDX-License-Identifier: Apache-2.0
// Reading and writing a meeting point.
#include "runtime/start/point.h"

#include <string_view>
#include <utility>

#include "base/numbers.h"
#include "base/text.h"
#include "base/wire/interfaces.h"

namespace ronde::runtime {

using base::Result;
using base::Status;

namespace {

constexpr std::size_t kLongestHostName = 255;
constexpr const char* kSocket = "unix:";
constexpr std::size_t kLongestSocket = 90;

Status refused_point(const std::string& text) {
  return Status::error(base::Code::kInvalidArgument, text);
}

}  // namespace

Result<std::int64_t> whole_number(const std::string& name, const std::string& text,
                                  std::int64_t least, std::int64_t most) {
  const auto number = base::parse_number<std::int64_t>(text);
  if (number && *number >= least && *number <= most) return *number;
  return refused_point(name + (text.empty() ? " is not set" : "=" + text + " is not valid") +
                       ": expected a whole number from " + std::to_string(least) + " to " +
                       std::to_string(most));
}

std::string text_of(const MeetingPoint& point) {
  if (!point.socket.empty()) return kSocket + point.socket;
  const bool v6 = point.host.find(':') != std::string::npos;
  return (v6 ? "[" + point.host + "]" : point.host) + ":" + std::to_string(point.port);
}

bool is_loopback(const std::string& host) {
  if (host == "localhost" || host == "ip6-localhost") return true;
  const auto address = base::parse_address(host);
  if (!address) return false;
  if (address->family == base::IpFamily::kV4) return address->bytes[0] == 127;
  return *address == *base::parse_address("::1");
}

Result<MeetingPoint> parse_meeting_point(const std::string& what, const std::string& text) {
  const auto wrong = [&] {
    return refused_point(what + "=" + text +
                         " is not valid: expected host:port, as in localhost:29500, node1:29500 or "
                         "[fd00::1]:29500");
  };
  if (text.starts_with(kSocket)) {
    MeetingPoint point;
    point.socket = text.substr(std::string_view(kSocket).size());
    if (point.socket.empty() || point.socket.size() > kLongestSocket) return wrong();
    return point;
  }
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return wrong();
  std::string host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const auto port = whole_number("port", text.substr(colon + 1), 1, 65535);
  const auto address = base::parse_address(host);
  const bool v6 = address && address->family == base::IpFamily::kV6;
  const bool printable =
      host.find_first_not_of(
          "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_:") ==
      std::string::npos;
  if (!port.ok() || host.empty() || host.size() > kLongestHostName || bracketed != v6 ||
      !printable || (host.find(':') != std::string::npos && !v6)) {
    return wrong();
  }
  const bool loopback = is_loopback(host);
  return MeetingPoint{std::move(host), base::narrow<std::uint16_t>(*port), loopback, ""};
}

}  // namespace ronde::runtime
