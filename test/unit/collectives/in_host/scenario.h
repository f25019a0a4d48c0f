// SPDX-License-Identifier: Apache-2.0
// Random sequences of collectives over the slots of a board, with the inputs of all ranks and the
// results, computed serially beforehand. (scenario_rank.h runs them.)
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/numbers.h"
#include "collectives/in_host/allreduce.h"
#include "collectives/in_host/slots.h"
#include "test/unit/collectives/ring_oracle.h"

namespace ronde::collectives {

using Memory = std::vector<std::byte>;
using Memories = std::vector<Memory>;

enum class Kind : std::uint8_t {
  kAllreduce,
  kReduceScatter,
  kBroadcast,
  kAllgather,
  kAllToAll,
  kBarrier,
};
inline constexpr int kKinds = 6;

[[nodiscard]] inline std::string_view name_of(Kind kind) {
  constexpr std::array<std::string_view, kKinds> kNames{"allreduce", "reduce-scatter", "broadcast",
                                                        "allgather", "all-to-all",     "barrier"};
  return kNames[static_cast<std::size_t>(kind)];
}

// One collective, as all ranks know it.
struct InHostOp {
  Kind kind = Kind::kBarrier;
  Reduction what{};  // its dtype is also that of collectives without arithmetic
  SlotTuning tuning{};
  bool in_place = false;
  std::int32_t root = 0;
  std::vector<std::vector<std::int64_t>> rows;  // of an all-to-all: [from][to]
  std::int64_t row_bytes = 1;
  // The inputs by rank: tensors of an allreduce or a broadcast, blocks of a reduce-scatter, one
  // tensor of the others. A rank that sends nothing has tensors of the right size with garbage.
  std::vector<Memories> inputs;
  std::vector<Memories> expected;

  [[nodiscard]] std::string text() const {
    std::string result(name_of(kind));
    result += " of " + std::string(base::name_of(what.dtype)) + ", " +
              std::string(base::name_of(what.op)) + ", pieces of " +
              std::to_string(tuning.piece_bytes) + (in_place ? ", in place" : "") + ", bytes";
    if (!inputs.empty()) {
      for (const Memory& one : inputs[0]) result += " " + std::to_string(one.size());
    }
    return result + (what.compression == base::Compression::kNone ? "" : ", compressed");
  }
};
using Scenario = std::vector<InHostOp>;

// Sums element by element in rank order and rounds the result once; a compressed tensor has 16-bit
// numbers from the moment it is read.
[[nodiscard]] inline Memory host_sum(const Reduction& what, const Memories& inputs) {
  if (what.compression == base::Compression::kNone) return oracle::allreduce_of_host(what, inputs);
  Reduction on_wire = what;
  on_wire.dtype = base::wire_dtype(what.dtype, what.compression);
  const auto elements = static_cast<std::int64_t>(inputs[0].size()) / base::size_of(what.dtype);
  const auto wire_size = static_cast<std::size_t>(elements * base::size_of(on_wire.dtype));
  Memories narrow;
  for (const Memory& input : inputs) {
    Memory& one = narrow.emplace_back(wire_size);
    for (std::int64_t i = 0; i < elements; ++i) {
      const double value = oracle::decode(what.dtype, oracle::load(what.dtype, input.data(), i));
      oracle::store(on_wire.dtype, one.data(), i, oracle::encode(on_wire.dtype, value));
    }
  }
  const Memory sum = oracle::allreduce_of_host(on_wire, narrow);
  Memory result(inputs[0].size());
  for (std::int64_t i = 0; i < elements; ++i) {
    const double value = oracle::decode(on_wire.dtype, oracle::load(on_wire.dtype, sum.data(), i));
    oracle::store(what.dtype, result.data(), i, oracle::encode(what.dtype, value));
  }
  return result;
}

// Makes scenarios whose sizes crowd around every threshold of the protocol.
class ScenarioMaker {
 public:
  ScenarioMaker(std::int32_t ranks, std::int64_t buffer_bytes, std::uint64_t seed)
      : ranks_(ranks), buffer_bytes_(buffer_bytes), random_(seed) {}

  [[nodiscard]] Scenario make(int operations) {
    Scenario scenario;
    for (int i = 0; i < operations; ++i) {
      // Half are allreduces, which have the most paths.
      const int kind = below(2) == 0 ? 0 : static_cast<int>(below(kKinds));
      scenario.push_back(make_one(static_cast<Kind>(kind)));
    }
    return scenario;
  }

  [[nodiscard]] InHostOp make_one(Kind kind) {
    InHostOp op;
    op.kind = kind;
    op.in_place = below(2) == 0;
    op.root = static_cast<std::int32_t>(below(ranks_));
    op.tuning.store = below(2) == 0 ? StoreKind::kTemporal : StoreKind::kStreaming;
    // Sizes that do not fit, and that are no multiple of a line, must work as well.
    op.tuning.piece_bytes = 64 + below(2 * buffer_bytes_ / ranks_);
    pick_reduction(op.what);
    switch (kind) {
      case Kind::kAllreduce:
        fill_allreduce(op);
        break;
      case Kind::kReduceScatter:
        fill_reduce_scatter(op);
        break;
      case Kind::kBroadcast:
        fill_broadcast(op);
        break;
      case Kind::kAllgather:
        fill_allgather(op);
        break;
      case Kind::kAllToAll:
        fill_all_to_all(op);
        break;
      case Kind::kBarrier:
        op.inputs.resize(ranks());
        op.expected.resize(ranks());
        break;
    }
    return op;
  }

 private:
  [[nodiscard]] std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(bound));
  }
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(ranks_); }

  void pick_reduction(Reduction& what) {
    do {
      what.dtype = base::kDTypes[static_cast<std::size_t>(below(13))].dtype;
      what.op = base::kReduceOps[static_cast<std::size_t>(below(8))].op;
    } while (!base::is_defined(what.dtype, what.op));
    if (base::is_floating(what.dtype)) {
      if (below(3) == 0) what.prescale = 0.3;
      if (below(3) == 0) what.postscale = 1.7;
    }
    if (what.dtype == base::DType::kF32 && below(2) == 0) {
      what.compression = below(2) == 0 ? base::Compression::kBf16 : base::Compression::kF16;
    }
  }

  // Picks a size in bytes, near a threshold, and rounds it to elements.
  [[nodiscard]] std::int64_t pick_elements(const InHostOp& op, std::int64_t owners) {
    const std::int64_t size = base::size_of(op.what.dtype);
    const std::int64_t piece = std::min(op.tuning.piece_bytes, buffer_bytes_ / ranks_) / 64 * 64;
    const std::int64_t window = piece * owners;
    std::int64_t bytes = 0;
    switch (below(6)) {
      case 0:
        bytes = below(3) * size;
        break;
      case 1:
        bytes = std::int64_t{Slots::kInlineBytes} + (below(3) - 1) * size;
        break;
      case 2:
        bytes =
            small_vector_bytes(ranks_, buffer_bytes_) + (below(3) - 1) * 64 + (below(3) - 1) * size;
        break;
      case 3:
        bytes = (1 + below(4)) * window + (below(3) - 1) * size;
        break;
      case 4:
        bytes = (1 + below(2 * owners)) * piece + (below(3) - 1) * size;
        break;
      default:
        bytes = below(4 * window);
    }
    return std::max<std::int64_t>(bytes, 0) / size;
  }

  [[nodiscard]] Memory numbers(const InHostOp& op, std::int64_t elements) {
    return oracle::random_elements(op.what.dtype, elements, random_);
  }
  // Returns the elements of several tensors that add up to so many; some may be empty.
  [[nodiscard]] std::vector<std::int64_t> cut(std::int64_t elements) {
    std::vector<std::int64_t> ends(static_cast<std::size_t>(below(4)));
    for (std::int64_t& end : ends) end = below(elements + 1);
    ends.push_back(elements);
    std::sort(ends.begin(), ends.end());
    std::adjacent_difference(ends.begin(), ends.end(), ends.begin());
    return ends;
  }

  void fill_allreduce(InHostOp& op) {
    const std::vector<std::int64_t> tensors = cut(pick_elements(op, ranks_));
    op.inputs.resize(ranks());
    for (Memories& mine : op.inputs) {
      for (const std::int64_t elements : tensors) mine.push_back(numbers(op, elements));
    }
    Memories sums;
    for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
      Memories contributions;
      for (const Memories& mine : op.inputs) contributions.push_back(mine[tensor]);
      sums.push_back(host_sum(op.what, contributions));
    }
    op.expected.assign(ranks(), sums);
  }

  void fill_reduce_scatter(InHostOp& op) {
    std::vector<std::int64_t> blocks;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      blocks.push_back(below(4) == 0 ? 0 : pick_elements(op, 1));
    }
    op.inputs.resize(ranks());
    for (Memories& mine : op.inputs) {
      for (const std::int64_t elements : blocks) mine.push_back(numbers(op, elements));
    }
    for (std::size_t block = 0; block < ranks(); ++block) {
      Memories contributions;
      for (const Memories& mine : op.inputs) contributions.push_back(mine[block]);
      op.expected.push_back({host_sum(op.what, contributions)});
    }
  }

  void fill_broadcast(InHostOp& op) {
    const std::vector<std::int64_t> tensors = cut(pick_elements(op, 2));
    op.inputs.resize(ranks());
    for (Memories& mine : op.inputs) {
      for (const std::int64_t elements : tensors) mine.push_back(numbers(op, elements));
    }
    op.expected.assign(ranks(), op.inputs[static_cast<std::size_t>(op.root)]);
  }

  void fill_allgather(InHostOp& op) {
    Memories all;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      all.push_back(numbers(op, below(4) == 0 ? 0 : pick_elements(op, 2)));
      op.inputs.push_back({all.back()});
    }
    op.expected.assign(ranks(), all);
  }

  void fill_all_to_all(InHostOp& op) {
    op.row_bytes = 1 + below(9);
    op.what.dtype = base::DType::kU8;
    op.rows.resize(ranks());
    for (std::vector<std::int64_t>& to : op.rows) {
      std::int64_t total = 0;
      for (std::size_t rank = 0; rank < ranks(); ++rank) {
        to.push_back(below(3) == 0 ? 0 : pick_elements(op, 1) / op.row_bytes);
        total += to.back();
      }
      op.inputs.push_back({numbers(op, total * op.row_bytes)});
    }
    op.expected.assign(ranks(), Memories(1));
    for (std::size_t from = 0; from < ranks(); ++from) {
      const std::byte* next = op.inputs[from][0].data();
      for (std::size_t to = 0; to < ranks(); ++to) {
        const std::byte* const end = next + op.rows[from][to] * op.row_bytes;
        op.expected[to][0].insert(op.expected[to][0].end(), next, end);
        next = end;
      }
    }
  }

  const std::int32_t ranks_;
  const std::int64_t buffer_bytes_;
  std::mt19937_64 random_;
};

}  // namespace ronde::collectives
