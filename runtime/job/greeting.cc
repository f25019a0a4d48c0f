// SPDX-License-Identifier: Apache-2.0
// The bytes of a greeting, and what can be read off the greetings of all ranks.
#include "runtime/job/greeting.h"

#include <string>
#include <string_view>
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
using namespace std::string_view_literals;

namespace {

// Releases before this format read eleven texts, each ended by a zero, and the eighth is why its
// sender cannot start: so they say what is wrong.
constexpr std::string_view kBeginning =
    "\0\0\0\0\0\0\0"
    "it runs another version of Ronde: use the same libronde.so on every rank\0\0\0\0"sv;

}  // namespace

void fields(auto& f, base::Is<Greeting> auto& g) {
  f.magic(kBeginning);
  f(g.settings, g.processors, g.leader, g.host_name, g.socket_name, g.addresses, g.seed);
  f(g.trouble.rank, g.trouble.culprit, g.trouble.text, g.pid, g.transport);
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
    leaders.push_back(greeting.leader);
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
    leaders.push_back({rank, greeting.host_name, greeting.addresses});
  }
  return leaders;
}

RankTable ranks_of(std::span<const Greeting> greetings, std::span<const Greeting> verdicts,
                   const base::JobShape& shape) {
  RankTable table;
  for (std::int32_t rank = 0; rank < shape.ranks(); ++rank) {
    const Greeting& greeting = greetings[narrow<std::size_t>(rank)];
    const auto leader = narrow<std::size_t>(shape.leader_of(shape.host_of(rank)));
    const auto& own = verdicts[leader].addresses;
    table.places.push_back(
        {greeting.host_name, own.empty() ? "" : own.front(), std::to_string(greeting.pid)});
  }
  return table;
}

std::int64_t cores_of(std::span<const Greeting> greetings, std::span<const int> ranks) {
  std::vector<std::vector<int>> masks;
  masks.reserve(ranks.size());
  for (const int rank : ranks) {
    masks.push_back(greetings[narrow<std::size_t>(rank)].processors);
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
    if (!leader.addresses.empty())
      text += ", leader at " + base::printable(base::joined(leader.addresses, " "));
  }
  return text;
}

}  // namespace ronde::runtime
