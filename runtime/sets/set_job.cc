// SPDX-License-Identifier: Apache-2.0
#include "runtime/sets/set_job.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/numbers.h"

namespace ronde::runtime {

using base::Result;
using base::Status;

namespace {

std::int32_t rank_in(const SetIdentity& set, std::int32_t rank) {
  const auto found = std::find(set.ranks.begin(), set.ranks.end(), rank);
  return base::narrow<std::int32_t>(found - set.ranks.begin());
}

class SetJob final : public Job {
 public:
  SetJob(Job& job, const SetIdentity& set, SetJobParts parts)
      : rank_(rank_in(set, job.rank())),
        shape_(shape_of_set(job.shape(), set)),
        bound_(job.transport_bound_to_thread()),
        // Where the ranks of the job outnumber the cores, those of the set wait as they do.
        cores_(job.oversubscribed() ? 0 : job.cores()),
        parts_(std::move(parts)) {
    ranks_ = job.rank_table();
    std::vector<RankPlace> places;
    places.reserve(set.ranks.size());
    for (const std::int32_t rank : set.ranks) {
      places.push_back(ranks_.places[base::narrow<std::size_t>(rank)]);
    }
    ranks_.places = std::move(places);
  }

  [[nodiscard]] std::int32_t rank() const override { return rank_; }
  [[nodiscard]] const base::JobShape& shape() const override { return shape_; }
  [[nodiscard]] RankTable rank_table() const override { return ranks_; }
  [[nodiscard]] std::int64_t cores() const override { return cores_; }
  [[nodiscard]] collectives::Board& board() override { return parts_.board; }
  std::unique_ptr<TcpLinks> take_links() override { return nullptr; }
  std::unique_ptr<SetLinks> take_set_links() override { return std::move(parts_.links); }
  [[nodiscard]] std::unique_ptr<collectives::Transport> take_transport() override {
    return std::move(parts_.transport);
  }
  [[nodiscard]] std::string transport_bound_to_thread() const override { return bound_; }
  [[nodiscard]] const SlotGrowth* slot_growth() const override {
    return local_size() > 1 ? &parts_.growth : nullptr;
  }
  [[nodiscard]] bool probes() const override { return false; }
  // The job watches every process, and its start was the set's.
  Result<std::vector<PeerWatch>> watch_peers() override { return std::vector<PeerWatch>(); }
  Result<std::vector<std::vector<std::byte>>> allgather(std::span<const std::byte> /*mine*/,
                                                        const std::string& activity,
                                                        const base::Clock& /*clock*/,
                                                        base::Instant /*deadline*/) override {
    return Status::error(base::Code::kInternal, "a process set has no start: " + activity);
  }
  void abandon() override {}
  Status close() override { return {}; }

 private:
  const std::int32_t rank_;
  const base::JobShape shape_;
  RankTable ranks_;
  const std::string bound_;
  const std::int64_t cores_;
  SetJobParts parts_;
};

}  // namespace

base::JobShape shape_of_set(const base::JobShape& job, const SetIdentity& set) {
  std::vector<std::int32_t> leaders;
  std::vector<std::string> names;
  std::map<std::int32_t, std::int32_t> first;  // rank of the set, by host of the job
  for (std::size_t i = 0; i < set.ranks.size(); ++i) {
    const std::int32_t host = job.host_of(set.ranks[i]);
    const auto [leader, fresh] = first.emplace(host, base::narrow<std::int32_t>(i));
    if (fresh) names.push_back(job.host_name(host));
    leaders.push_back(leader->second);
  }
  base::JobShape shape = base::JobShape::of_leaders(leaders).value();
  shape.set_host_names(std::move(names));
  return shape;
}

std::unique_ptr<Job> make_set_job(Job& job, const SetIdentity& set, SetJobParts parts) {
  return std::make_unique<SetJob>(job, set, std::move(parts));
}

}  // namespace ronde::runtime
