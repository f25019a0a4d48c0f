// SPDX-License-Identifier: Apache-2.0
// The data planes of a job in one process, without a runtime above them: boards whose slots are as
// small as a test likes, and a transport whose ends are watched and whose messages may be late.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/job_shape.h"
#include "collectives/board/arena.h"
#include "collectives/in_host/allreduce.h"
#include "collectives/in_host/slots.h"
#include "collectives/kernels/floating_point_mode.h"
#include "collectives/plane/plane.h"
#include "collectives/plane/weighted.h"
#include "test/conformance/cases.h"
#include "test/conformance/drawn_cases.h"
#include "test/unit/collectives/boards.h"
#include "test/unit/collectives/job_of_ranks.h"

namespace ronde::conformance {

using Leaders = std::vector<std::int32_t>;  // of each rank, the lowest rank on its host

// Returns a text like "0022", for the name of a test.
[[nodiscard]] inline std::string text_of(const Leaders& leaders) {
  std::string text;
  for (const std::int32_t leader : leaders) text += std::to_string(leader);
  return text;
}

// The kinds of jobs that every plane is tested in.
struct Job {
  Leaders leaders;
  bool messages = false;  // one host, where every rank counts as one and uses messages alone
};

[[nodiscard]] inline std::vector<Job> jobs() {
  std::vector<Job> all;
  for (const std::size_t ranks : {1U, 2U, 3U, 5U, 8U}) {
    all.push_back({Leaders(ranks, 0)});
    all.push_back({Leaders(ranks, 0), true});
  }
  for (const Leaders& leaders : {Leaders{0, 1},
                                 {0, 1, 2},
                                 {0, 1, 2, 3},
                                 {0, 0, 2, 2},
                                 {0, 1, 0, 1},
                                 {0, 0, 0, 3},
                                 {0, 1, 1, 1},
                                 {0, 1, 2, 0, 1, 2, 0}}) {
    all.push_back({leaders});
  }
  return all;
}
[[nodiscard]] inline std::string text_of(const Job& job) {
  return (job.messages ? "messages" : "") + text_of(job.leaders);
}

struct PlaneSettings {
  Leaders leaders{};
  bool messages = false;
  std::vector<std::string> environment{};
  std::int64_t slot_lines = 0;  // of a slot, for each rank of the host; 0: as in a job
  std::int64_t block = 0;       // of make_two_level_plane()
  collectives::FaultPlan faults{};
  bool heap = true;   // or memory that forked processes share
  bool tuned = true;  // or the caller calls tune()
};

using Lists = std::vector<std::vector<Case>>;  // what each rank does

// make(hosts, rank) gives the cases of a rank, where the hosts are those of the order rule.
template <typename Make>
[[nodiscard]] Lists lists_of(const PlaneSettings& settings, const Make& make) {
  Leaders leaders = settings.leaders;
  if (settings.messages) std::iota(leaders.begin(), leaders.end(), 0);
  Lists lists;
  for (int rank = 0; rank < static_cast<int>(leaders.size()); ++rank) {
    lists.push_back(make(hosts_of(leaders), rank));
  }
  return lists;
}

// Thread safety: the planes, boards and workspaces of different ranks may be used side by side.
class Planes {
 public:
  explicit Planes(PlaneSettings settings)
      : settings_(std::move(settings)),
        shape_(base::JobShape::of_leaders(settings_.leaders).value()),
        ranks_(shape_.ranks(), settings_.faults) {
    const auto config = base::Config::from_environment(settings_.environment, nullptr);
    EXPECT_TRUE(config.ok()) << config.status().message();
    std::vector<std::vector<collectives::Board>> boards;
    for (std::int32_t host = 0; host < shape_.hosts(); ++host) {
      auto geometry = collectives::small(static_cast<std::int32_t>(shape_.ranks_of(host).size()));
      if (settings_.slot_lines > 0) {
        geometry.slot_bytes = 64 * settings_.slot_lines * geometry.ranks;
      }
      geometry.arena_bytes = 1 << 20;
      boards.push_back(collectives::make_boards(geometry, settings_.heap));
    }
    for (int rank = 0; rank < size(); ++rank) {
      boards_.push_back(boards[static_cast<std::size_t>(shape_.host_of(rank))]
                              [static_cast<std::size_t>(shape_.position_of(rank))]);
      planes_.push_back(make(rank, *config));
      // The leader publishes before any other rank asks.
      if (!settings_.tuned) continue;
      EXPECT_TRUE(planes_.back()->tune(*config, [] { return base::Status(); }).ok());
    }
  }

  [[nodiscard]] int size() const { return shape_.ranks(); }
  [[nodiscard]] const base::JobShape& shape() const { return shape_; }
  [[nodiscard]] collectives::JobOfRanks& ranks() { return ranks_; }
  [[nodiscard]] collectives::DataPlane& of(int rank) { return *planes_[collectives::at(rank)]; }
  [[nodiscard]] const collectives::Board& board(int rank) const {
    return boards_[collectives::at(rank)];
  }
  [[nodiscard]] const PlaneSettings& settings() const { return settings_; }

 private:
  std::unique_ptr<collectives::DataPlane> make(int rank, const base::Config& config) {
    const collectives::Board& board = boards_.back();
    if (settings_.messages) {
      return collectives::make_message_plane(ranks_.transport(rank), ranks_.workspace(rank),
                                             config.segment_bytes,
                                             *collectives::algorithm_of(config.algorithm));
    }
    if (shape_.hosts() == 1) return collectives::make_in_host_plane(board, /*probe=*/false);
    return collectives::make_two_level_plane(board, /*probe=*/false, shape_, ranks_.transport(rank),
                                             ranks_.workspace(rank), config,
                                             base::Bytes(settings_.block));
  }

  const PlaneSettings settings_;
  const base::JobShape shape_;
  collectives::JobOfRanks ranks_;
  std::vector<collectives::Board> boards_;
  std::vector<std::unique_ptr<collectives::DataPlane>> planes_;
};

// A rank that does a list, each operation begun as soon as the one before has finished on this
// rank: so ranks are in different ones. What nobody may read any more is overwritten: buffers of
// the board between two operations, and tensors, which are freed after each.
//
// Thread safety: one thread at a time.
class RankOfPlanes final : public collectives::Collective {
 public:
  // All of them must outlive this object. first: the number of the first operation; the tags of
  // number 1024 are those of 0 again.
  RankOfPlanes(Planes& planes, int rank, const std::vector<Case>& cases, std::uint64_t first = 1000)
      : planes_(planes),
        rank_(rank),
        cases_(cases),
        first_(first),
        slots_(planes.board(rank)),
        arena_(planes.board(rank).arena(planes.board(rank).rank())) {
    // Tensors on the board lie at different places on every rank.
    for (int i = 0; i < rank; ++i) EXPECT_TRUE(arena_.allocate(base::Bytes(1)).ok());
  }

  base::Result<collectives::StepResult> step() override {
    using collectives::StepResult;
    if (next_ == cases_.size()) return StepResult::kDone;
    const collectives::ScopedFloatingPointMode mode;
    if (current_ == nullptr) {
      RONDE_ASSIGN_OR_RETURN(current_, collectives::make_collective(planes_.of(rank_), begin()));
    }
    const base::Result<StepResult> result = current_->step();
    if (!result.ok() || *result != StepResult::kDone) return result;
    current_.reset();
    end();
    return ++next_ == cases_.size() ? StepResult::kDone : StepResult::kProgress;
  }

 private:
  collectives::Exchange begin() {
    overwrite_free_buffers();
    const Case& of = cases_[next_];
    running_.emplace(of);
    running_->prepare();
    collectives::Exchange exchange;
    exchange.operation = of.operation;
    exchange.sequence = first_ + next_;
    exchange.how = of.what;
    exchange.root = of.root;
    const bool on_board = of.memory == Case::Memory::kOnBoard;
    exchange.on_board = on_board && of.what.compression == base::Compression::kNone;
    exchange.rows = of.rows;
    exchange.row = base::Elements(of.width);
    for (std::size_t i = 0; i < of.tensors.size(); ++i) {
      exchange.tensors.push_back(
          {running_->input(i), running_->output(i), base::Elements(of.elements(i)), of.dtype()});
      keep_messages_out_of(running_->input(i), std::ssize(of.tensors[i].input));
      if (!of.makes_result()) {
        keep_messages_out_of(running_->output(i), std::ssize(of.tensors[i].expected));
      }
    }
    for (std::size_t i = 0; on_board && i < of.tensors.size(); ++i) {
      const Bytes& input = of.tensors[i].input;
      places_.push_back(arena_.allocate(base::Bytes(std::ssize(input))).value());
      std::copy(input.begin(), input.end(), places_.back().begin());
      std::byte* const here = input.empty() ? nullptr : places_.back().data();
      exchange.tensors[i].input = here;
      if (of.makes_result()) continue;
      exchange.tensors[i].output =
          here == nullptr ? nullptr : here + of.first * base::size_of(of.dtype());
    }
    for (std::size_t i = 0; of.weighted && i < of.tensors.size(); ++i) {
      exchange.weights.of_tensors.push_back(of.tensors[i].weight);
      exchange.weights.ranks = planes_.size();
      exchange.weights.refuse = [](std::size_t, const base::Status& why) {
        ADD_FAILURE() << why.message();
      };
    }
    exchange.result = [this](std::span<const std::int64_t> rows) {
      EXPECT_TRUE(running_->result.empty()) << "it has asked for memory twice";
      running_->received.assign(rows.begin(), rows.end());
      running_->result.resize(collectives::at(sum_of(running_->received) * running_->of().width *
                                              base::size_of(running_->of().dtype())));
      keep_messages_out_of(running_->result.data(), std::ssize(running_->result));
      return base::Result<std::span<std::byte>>(running_->result);
    };
    return exchange;
  }

  void end() {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      std::copy(places_[i].begin(), places_[i].end(), running_->output_block(i).begin());
      arena_.release(places_[i].data());
    }
    places_.clear();
    EXPECT_EQ(running_->difference(), "") << "rank " << rank_ << ": " << running_->of().name;
    running_.reset();
    planes_.ranks().watched(rank_).forget_users();
  }

  void keep_messages_out_of(const std::byte* memory, std::int64_t bytes) {
    planes_.ranks().watched(rank_).keep_out_of({memory, collectives::at(bytes)});
  }

  // No rank may read a buffer from the moment when all are done with its last window until it is
  // filled again; between two operations this rank needs none of its own.
  void overwrite_free_buffers() {
    while (slots_.filled(slots_.rank(), window_)) ++window_;
    for (std::uint64_t window = window_; window < window_ + collectives::kSlotBuffers; ++window) {
      if (!slots_.may_fill(window)) continue;
      std::memset(slots_.buffer(slots_.rank(), window), 0xA5,
                  collectives::at(slots_.buffer_bytes()));
      std::memset(slots_.inline_bytes(slots_.rank(), window), 0xA5,
                  collectives::Slots::kInlineBytes);
    }
  }

  Planes& planes_;
  const int rank_;
  const std::vector<Case>& cases_;
  const std::uint64_t first_;
  collectives::Slots slots_;  // a second look at those of the plane
  collectives::Arena arena_;
  std::uint64_t window_ = 0;  // the first that this rank has not filled
  std::size_t next_ = 0;      // the operation that runs, or runs next
  std::optional<Running> running_;
  std::vector<std::span<std::byte>> places_;  // of tensors on the board
  std::unique_ptr<collectives::Collective> current_;
};

// So many operations that the seed draws, around the sizes at which these planes do another thing.
[[nodiscard]] inline Lists drawn_lists(const Planes& planes, std::uint64_t seed, int count) {
  const collectives::Slots slots(planes.board(0));
  const std::int64_t piece = slots.buffer_bytes() / slots.ranks();
  const Rows edges{std::int64_t{collectives::Slots::kInlineBytes},
                   collectives::small_vector_bytes(slots.ranks(), slots.buffer_bytes()), piece,
                   slots.buffer_bytes(), 64};
  OnceForAll once;
  return lists_of(planes.settings(), [&](const Hosts& hosts, int rank) {
    return DrawnCases(hosts, rank, seed, edges, &once).make(count);
  });
}

// All ranks do their lists in one thread, in an order that the seed decides.
inline std::vector<collectives::Outcome> try_in_turn(Planes& planes, const Lists& lists,
                                                     std::uint64_t seed) {
  std::vector<std::unique_ptr<collectives::Collective>> all;
  for (int rank = 0; rank < planes.size(); ++rank) {
    all.push_back(std::make_unique<RankOfPlanes>(planes, rank, lists[collectives::at(rank)]));
  }
  return planes.ranks().run(all, seed);
}
// The same, where every rank succeeds.
inline void run_in_turn(Planes& planes, const Lists& lists, std::uint64_t seed) {
  planes.ranks().expect_done(try_in_turn(planes, lists, seed));
}

}  // namespace ronde::conformance
