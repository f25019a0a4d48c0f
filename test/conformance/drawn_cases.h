// SPDX-License-Identifier: Apache-2.0
// Operations that a seed draws: of any kind, type and scale, in groups and alone, of sizes around
// those at which a data plane does something else.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "test/conformance/cases.h"
#include "test/support/twister.h"

namespace ronde::conformance {

// Every rank draws the same ones. Thread safety: none.
class DrawnCases {
 public:
  // edges: bytes at which something changes.
  DrawnCases(const Hosts& hosts, std::int32_t rank, std::uint64_t seed, Rows edges,
             OnceForAll* once = nullptr)
      : cases_(hosts, rank, seed, Numbers::kTelling, once),
        edges_(std::move(edges)),
        random_(seed) {
    for (const auto& ranks : hosts) ranks_ += ranks.size();
  }

  // So many, almost half of them allreduces, which have the most ways.
  std::vector<Case> make(int count) {
    for (int i = 0; i < count; ++i) draw();
    return cases_.take();
  }

 private:
  void draw() {
    const DType moved = base::kDTypes[below(base::kDTypes.size())].dtype;
    const auto plain = below(2) == 0 ? Case::Memory::kInPlace : Case::Memory::kApart;
    const bool on_board = below(4) == 0;
    const auto memory = on_board ? Case::Memory::kOnBoard : plain;
    const auto some_rows = [&](DType dtype) {
      Rows rows(ranks_);
      for (std::int64_t& one : rows) one = below(4) == 0 ? 0 : near_an_edge(dtype);
      if (ranks_ > 8) std::replace_if(rows.begin(), rows.end(), [](auto n) { return n > 70; }, 70);
      return rows;
    };
    const std::size_t kind = below(14);
    if (kind > 11) {
      Reduction what = any_reduction();
      if (!base::is_floating(what.dtype)) what = {};
      const Rows parts = parts_of(near_an_edge(what.dtype));
      if (kind == 12) return cases_.weighted_reduce_scatter(what, sum_of(parts), memory);
      return cases_.weighted_allreduce(what, parts, memory, below(2) == 0);
    }
    if (kind < 5) {
      const Reduction what = any_reduction();
      cases_.grouped_allreduce(what, parts_of(near_an_edge(what.dtype)), memory);
    } else if (kind < 7) {
      const Reduction what = any_reduction();
      const Rows splits = some_rows(what.dtype);
      cases_.reduce_scatter(what, sum_of(splits), splits, memory);
    } else if (kind == 7) {
      cases_.broadcast(moved, parts_of(near_an_edge(moved)),
                       static_cast<std::int32_t>(below(ranks_)), plain);
    } else if (kind == 8) {
      cases_.allgather(moved, some_rows(moved), 1,
                       on_board ? Case::Memory::kOnBoard : Case::Memory::kResult);
    } else if (kind < 11) {
      std::vector<Rows> sent(ranks_);
      for (Rows& rows : sent) rows = some_rows(moved);
      const auto width = static_cast<std::int64_t>(1 + below(3));
      for (Rows& rows : sent) {
        for (std::int64_t& one : rows) one /= width;
      }
      cases_.all_to_all(moved, sent, /*told=*/true, width);
    } else {
      cases_.barrier();
    }
  }

  Reduction any_reduction() {
    Reduction what;
    do {
      what.dtype = base::kDTypes[below(base::kDTypes.size())].dtype;
      what.op = base::kReduceOps[below(base::kReduceOps.size())].op;
      if (below(3) == 0) what.dtype = DType::kF32;
    } while (!base::is_defined(what.dtype, what.op));
    if (!base::is_floating(what.dtype)) return what;
    if (below(3) == 0) what.prescale = 0.3;
    if (below(3) == 0) what.postscale = 1.7;
    if (what.dtype == DType::kF32 && below(2) == 0) {
      what.compression = below(2) == 0 ? base::Compression::kBf16 : base::Compression::kF16;
    }
    return what;
  }

  // Returns elements: nearly none, about a few times as many as at an edge, or any number.
  std::int64_t near_an_edge(DType dtype) {
    const std::int64_t edge = edges_[below(edges_.size())] / base::size_of(dtype);
    const auto few = static_cast<std::int64_t>(below(3));
    if (below(6) == 0) return few;
    if (below(4) == 0)
      return static_cast<std::int64_t>(below(static_cast<std::uint64_t>(3 * edge) + 1));
    return std::max<std::int64_t>(0, edge * static_cast<std::int64_t>(1 + below(3)) + few - 1);
  }
  // Returns the elements of a few tensors that add up to so many; some may be empty.
  Rows parts_of(std::int64_t elements) {
    Rows parts(below(4), 0);
    for (std::int64_t& part : parts) {
      part = static_cast<std::int64_t>(below(static_cast<std::uint64_t>(elements) + 1));
      elements -= part;
    }
    parts.push_back(elements);
    return parts;
  }
  std::size_t below(std::uint64_t limit) { return random_() % limit; }

  Cases cases_;
  const Rows edges_;
  testing::Twister random_;
  std::size_t ranks_ = 0;
};

}  // namespace ronde::conformance
