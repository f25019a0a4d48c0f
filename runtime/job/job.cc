// SPDX-License-Identifier: Apache-2.0
// The parts that both kinds of job share: positions, the check of settings, the board's geometry.
#include "runtime/job/job.h"

#include <map>
#include <string>

#include "base/text.h"

namespace ronde::runtime {

using base::Status;

std::int32_t Job::local_size() const {
  return base::narrow<std::int32_t>(shape().ranks_of(host()).size());
}

std::int32_t Job::rank_at(std::int32_t position) const {
  return shape().ranks_of(host())[base::narrow<std::size_t>(position)];
}

Status check_shared_settings(const std::vector<std::string>& texts) {
  const std::vector<std::string> first = base::words_of(texts.front(), "\n");
  for (std::size_t line = 0; line < first.size(); ++line) {
    std::map<std::string, std::vector<std::int32_t>> ranks_by_value;
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      const auto lines = base::words_of(texts[rank], "\n");
      const std::string value = line < lines.size() ? lines[line] : "nothing";
      ranks_by_value[value].push_back(base::narrow<std::int32_t>(rank));
    }
    if (ranks_by_value.size() == 1) continue;
    std::string text = "the ranks were started with different settings: ";
    bool following = false;
    for (const auto& [value, ranks] : ranks_by_value) {
      text += (following ? ", " : "") + value + " on " + base::ranks_phrase(ranks);
      following = true;
    }
    return Status::error(base::Code::kInvalidArgument,
                         text + ". Give every rank the same (mpirun -x exports a variable)");
  }
  return {};
}

bool needs_transport(const base::Config& config, bool several_hosts) {
  return several_hosts || config.algorithm != "auto";
}

collectives::BoardGeometry board_geometry(std::int32_t ranks, const base::Config& config) {
  collectives::BoardGeometry geometry;
  geometry.ranks = ranks;
  geometry.entries = config.plan_capacity;
  if (config.lines_after > 0) geometry.line_bytes = ranks * collectives::kLineBytesOfRank;
  // Each begins where the one before ends: at a huge page, if it is to have any.
  const std::int64_t bytes = config.buffer_bytes.value();
  constexpr auto kHugePage = std::int64_t{collectives::kHugePage};
  const std::int64_t page = bytes < kHugePage ? std::int64_t{collectives::kPage} : kHugePage;
  geometry.arena_bytes = base::ceil_div(bytes, page) * page;
  return geometry;
}

}  // namespace ronde::runtime
