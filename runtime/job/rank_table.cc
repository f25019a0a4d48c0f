// SPDX-License-Identifier: Apache-2.0
// The rows of the table of ranks, and how they are laid out in columns.
#include "runtime/job/rank_table.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "base/numbers.h"
#include "base/text.h"

namespace ronde::runtime {

using base::JobShape;
using base::narrow;

namespace {

using Ranks = std::vector<std::int32_t>;
using Row = std::array<std::string, 5>;

// A job of many hosts would have lists of many ranks in every row.
constexpr std::size_t kLongestList = 40;

std::string phrase(const Ranks& ranks) {
  std::string text = base::ranks_phrase(ranks);
  return text.size() <= kLongestList ? text : std::to_string(ranks.size()) + " ranks";
}

Ranks without(std::span<const std::int32_t> ranks, std::int32_t rank) {
  Ranks others(ranks.begin(), ranks.end());
  std::erase(others, rank);
  return others;
}

// The ranks of other hosts with which this one exchanges its slice.
Ranks peers_of(const JobShape& shape, std::int32_t rank) {
  Ranks peers;
  const std::int32_t position = shape.position_of(rank);
  if (position >= shape.slices()) return peers;
  for (std::int32_t host = 0; host < shape.hosts(); ++host) {
    peers.push_back(shape.ranks_of(host)[narrow<std::size_t>(position)]);
  }
  std::erase(peers, rank);
  std::sort(peers.begin(), peers.end());
  return peers;
}

// The leaders to which this one, a leader too, is linked.
Ranks neighbours_of(const JobShape& shape, std::int32_t fan_in, std::int32_t rank) {
  Ranks neighbours;
  const std::int32_t host = shape.host_of(rank);
  if (shape.leader_of(host) != rank) return neighbours;
  const HostTree tree(shape.hosts(), fan_in);
  if (host != HostTree::kRoot) neighbours.push_back(shape.leader_of(tree.parent_of(host)));
  for (const std::int32_t child : tree.children_of(host)) {
    neighbours.push_back(shape.leader_of(child));
  }
  return neighbours;  // in ascending order, since hosts are numbered by their leaders
}

std::string talks_to(const RankTable& table, const JobShape& shape, bool messages_only,
                     std::int32_t rank) {
  const Ranks here = without(shape.ranks_of(shape.host_of(rank)), rank);
  std::vector<std::pair<Ranks, std::string>> parts;
  if (messages_only && shape.hosts() == 1) {
    parts = {{here, " over " + table.transport}, {here, " in shared memory (control)"}};
  } else {
    parts = {{here, " in shared memory"},
             {peers_of(shape, rank), " over " + table.transport},
             {neighbours_of(shape, table.fan_in, rank), " over " + table.links + " (control)"}};
  }
  std::string text;
  for (const auto& [ranks, how] : parts) {
    if (!ranks.empty()) text += (text.empty() ? "" : "; ") + phrase(ranks) + how;
  }
  return text.empty() ? "no other rank" : text;
}

}  // namespace

std::string text_of(const RankTable& table, const JobShape& shape, bool messages_only) {
  std::vector<Row> rows{{"rank", "host", "address", "pid", "talks to"}};
  for (std::int32_t rank = 0; rank < shape.ranks(); ++rank) {
    const RankPlace& place = table.places[narrow<std::size_t>(rank)];
    rows.push_back({std::to_string(rank), base::printable(place.host),
                    place.address.empty() ? "-" : base::printable(place.address), place.pid,
                    talks_to(table, shape, messages_only, rank)});
  }
  std::array<int, 4> widths{};
  for (const Row& row : rows) {
    for (std::size_t column = 0; column < widths.size(); ++column) {
      widths.at(column) = std::max(widths.at(column), narrow<int>(row.at(column).size()));
    }
  }
  std::string text;
  for (const Row& row : rows) {
    const auto blanks = [&](std::size_t column) {
      return std::string(narrow<std::size_t>(widths.at(column)) - row.at(column).size(), ' ');
    };
    const auto& [rank, host, address, pid, talk] = row;
    text += (&row == rows.data() ? "" : "\n") + blanks(0) + rank + "  " + host + blanks(1) + "  " +
            address + blanks(2) + "  " + blanks(3) + pid + "  " + talk;
  }
  return text;
}

}  // namespace ronde::runtime
