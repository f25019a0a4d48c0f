// SPDX-License-Identifier: Apache-2.0
// The bytes of a greeting, and what can be read off the greetings of all ranks.
#include "runtime/job/greeting.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "base/codec.h"
#include "base/numbers.h"
#include "base/process/cores.h"
#include "base/text.h"
#include "collectives/board/board.h"

namespace ronde::runtime {

using base::Code;
using base::narrow;
using base::Result;
using base::Status;

void fields(auto& f, base::Is<Greeting> auto& g) {
  f.ended(g.settings, g.processors, g.leader, g.host_name, g.socket_name, g.addresses, g.secret,
          g.trouble, g.culprit, g.pid, g.transport);
}

std::vector<std::byte> encode(const Greeting& greeting) { return base::encoded(greeting); }

Result<Greeting> decode_greeting(std::span<const std::byte> bytes, std::int32_t rank) {
  auto greeting = base::decoded<Greeting>(bytes);
  if (greeting.ok()) return greeting;
  return Status::error(Code::kInternal, "rank " + std::to_string(rank) +
                                            " sent a greeting of another version of Ronde: use "
                                            "the same libronde.so on every rank");
}

Result<base::JobShape> shape_of(std::span<const Greeting> greetings) {
  std::vector<std::int32_t> leaders;
  for (const Greeting& greeting : greetings) {
    std::int32_t leader = -1;
    const std::string& text = greeting.leader;
    std::from_chars(text.data(), text.data() + text.size(), leader);
    leaders.push_back(leader);
  }
  auto shape = base::JobShape::of_leaders(leaders);
  RONDE_RETURN_IF_ERROR(shape.status());
  std::vector<std::string> names;
  names.reserve(narrow<std::size_t>(shape->hosts()));
  for (std::int32_t host = 0; host < shape->hosts(); ++host) {
    names.push_back(greetings[narrow<std::size_t>(shape->leader_of(host))].host_name);
  }
  shape->set_host_names(std::move(names));
  return shape;
}

std::vector<LeaderAddress> leaders_of(std::span<const Greeting> greetings,
                                      const base::JobShape& shape) {
  std::vector<LeaderAddress> leaders;
  for (std::int32_t host = 0; host < shape.hosts(); ++host) {
    const std::int32_t rank = shape.leader_of(host);
    const Greeting& greeting = greetings[narrow<std::size_t>(rank)];
    leaders.push_back({rank, greeting.host_name, base::words_of(greeting.addresses)});
  }
  return leaders;
}

RankTable ranks_of(std::span<const Greeting> greetings, std::span<const Greeting> verdicts,
                   const base::JobShape& shape) {
  RankTable table;
  for (std::int32_t rank = 0; rank < shape.ranks(); ++rank) {
    const Greeting& greeting = greetings[narrow<std::size_t>(rank)];
    const auto leader = narrow<std::size_t>(shape.leader_of(shape.host_of(rank)));
    table.places.push_back({greeting.host_name, verdicts[leader].addresses, greeting.pid});
  }
  return table;
}

std::int64_t cores_of(std::span<const Greeting> greetings, std::span<const int> ranks) {
  std::vector<std::vector<int>> masks;
  masks.reserve(ranks.size());
  for (const int rank : ranks) {
    masks.push_back(base::mask_of_text(greetings[narrow<std::size_t>(rank)].processors));
  }
  return base::cores_of_masks(masks);
}

std::string table_of(std::span<const Greeting> greetings, const base::JobShape& shape,
                     std::int64_t slot_bytes, const std::string& transport) {
  std::string text = "job of " + shape.text() +
                     "; inside a host tensors move over shared memory (" +
                     std::to_string(collectives::kSlotBuffers) + " slots of " +
                     std::to_string(slot_bytes) + " bytes for each rank)";
  if (shape.hosts() > 1) text += ", between hosts over " + transport + ", and control over TCP";
  for (std::int32_t host = 0; host < shape.hosts(); ++host) {
    const auto ranks = shape.ranks_of(host);
    const Greeting& leader = greetings[narrow<std::size_t>(ranks.front())];
    text += "\n  host " + std::to_string(host) + ": " + base::printable(leader.host_name) + ", " +
            base::ranks_phrase({ranks.begin(), ranks.end()}) + ", cores " +
            std::to_string(cores_of(greetings, {ranks.data(), ranks.size()}));
    if (!leader.addresses.empty()) text += ", leader at " + base::printable(leader.addresses);
  }
  return text;
}

std::optional<std::vector<std::byte>> bytes_of_hex(const std::string& text) {
  std::vector<std::byte> bytes(text.size() / 2);
  if (text.size() % 2 != 0) return std::nullopt;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::uint8_t byte = 0;
    const char* const at = text.data() + 2 * i;
    const auto [stop, error] = std::from_chars(at, at + 2, byte, 16);
    if (error != std::errc() || stop != at + 2) return std::nullopt;
    bytes[i] = std::byte{byte};
  }
  return bytes;
}

Result<JobSecret> secret_of_hex(const std::string& text) {
  JobSecret secret{};
  const auto bytes = bytes_of_hex(text);
  if (bytes && bytes->size() == secret.size()) {
    std::copy(bytes->begin(), bytes->end(), secret.begin());
    return secret;
  }
  return Status::error(Code::kInternal,
                       "rank 0 sent no secret: use the same libronde.so on every "
                       "rank");
}

}  // namespace ronde::runtime
