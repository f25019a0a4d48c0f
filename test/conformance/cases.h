// SPDX-License-Identifier: Apache-2.0
// The operations that every level does: each on every dtype, op, size and root, in place and apart,
// scaled, in 16 bits, alone and in groups. Every rank makes the same ones, in the same order.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "test/conformance/case.h"
#include "test/conformance/order_rule.h"
#include "test/conformance/rank_numbers.h"
#include "test/unit/collectives/rule_oracle.h"

namespace ronde::conformance {

// Thread safety: none.
class Cases {
 public:
  // hosts: the ranks of each; where every rank counts as a host, one in each. once: of the ranks of
  // this process, if there are others.
  Cases(const Hosts& hosts, std::int32_t rank, std::uint64_t seed = 1,
        Numbers numbers = Numbers::kTelling, OnceForAll* once = nullptr)
      : rank_(rank),
        is_telling_(numbers == Numbers::kTelling),
        all_(hosts, numbers, seed, once),
        size_(all_.size()) {}

  // The whole list. some: elements of most tensors; large_bytes: of a few.
  // weights: averages by weights as well.
  std::vector<Case> all(std::int64_t some, std::int64_t large_bytes, bool weights = true) {
    sizes_ = {0, 1, 7, some};
    add_allreduces();
    add_scaled(some);
    if (is_telling_) add_special();
    allreduce({}, large_bytes / 4, Case::Memory::kInPlace);
    allreduce({.dtype = DType::kBf16, .op = ReduceOp::kAverage}, large_bytes / 8,
              Case::Memory::kApart);
    for (const std::int64_t elements : sizes_) allreduce({}, elements, Case::Memory::kOnBoard);
    allreduce({}, large_bytes / 16, Case::Memory::kOnBoard);
    add_on_board(large_bytes);
    grouped_allreduce({.op = ReduceOp::kSum}, {7, 0, some, 1});
    grouped_allreduce({.op = ReduceOp::kAverage, .prescale = 0.3}, {0, 0});
    grouped_allreduce({.op = ReduceOp::kMax}, {100'000, 1});
    add_moves(some, large_bytes);
    add_reduce_scatters(some, large_bytes);
    add_wide(some, large_bytes);
    if (weights) add_weighted(some, large_bytes);
    return take();
  }

  // What has been made so far.
  std::vector<Case> take() { return std::move(cases_); }
  // ---- each ----

  void allreduce(const Reduction& what, std::int64_t elements, Case::Memory memory) {
    Case one = begin("allreduce " + text_of(what), Operation::kAllreduce, what, memory);
    add(one, all_.summands(what.dtype, elements),
        [&](const auto& inputs) { return all_.reduced(what, inputs); });
    end(std::move(one));
  }
  void grouped_allreduce(const Reduction& what, const Rows& lengths,
                         Case::Memory memory = Case::Memory::kInPlace) {
    Case one = begin("group " + text_of(what), Operation::kAllreduce, what, memory);
    for (const std::int64_t length : lengths) {
      add(one, all_.summands(what.dtype, length),
          [&](const auto& inputs) { return all_.reduced(what, inputs); });
    }
    end(std::move(one));
  }
  // Averages by weights; each tensor has its own, or all of a group have the same.
  void weighted_allreduce(Reduction what, const Rows& lengths, Case::Memory memory,
                          bool own_weights = false) {
    what.op = ReduceOp::kAverage;
    Case one = begin("by weights " + text_of(what), Operation::kAllreduce, what, memory);
    one.weighted = true;
    std::vector<double> weights = all_.weights();
    for (const std::int64_t length : lengths) {
      if (own_weights) weights = all_.weights();
      add(one, all_.summands(what.dtype, length),
          [&](const auto& inputs) { return all_.reduced(by_weights(what, weights), inputs); });
      one.tensors.back().weight = weights[mine()];
    }
    end(std::move(one));
  }
  void weighted_reduce_scatter(Reduction what, std::int64_t rows, Case::Memory memory) {
    what.op = ReduceOp::kAverage;
    const std::vector<double> weights = all_.weights();
    reduce_scatter(by_weights(what, weights), rows, {}, memory);
    cases_.back().what = what;
    cases_.back().weighted = true;
    cases_.back().tensors.front().weight = weights[mine()];
  }
  void broadcast(DType dtype, const Rows& lengths, std::int32_t root,
                 Case::Memory memory = Case::Memory::kInPlace) {
    Case one = begin("broadcast from " + std::to_string(root), Operation::kBroadcast,
                     {.dtype = dtype}, memory);
    one.root = root;
    for (const std::int64_t length : lengths) {
      add(one, all_.telling(dtype, length),
          [&](const auto& inputs) { return inputs[static_cast<std::size_t>(root)]; });
    }
    end(std::move(one));
  }
  void allgather(DType dtype, const Rows& rows, std::int64_t width = 1,
                 Case::Memory memory = Case::Memory::kResult) {
    Case one = begin("allgather", Operation::kAllgather, {.dtype = dtype}, memory);
    one.width = width;
    one.rows = rows;
    add(one, all_.telling(dtype, rows, width), [](const auto& inputs) {
      Bytes all;
      for (const Bytes& input : inputs) all.insert(all.end(), input.begin(), input.end());
      return all;
    });
    end(std::move(one));
  }
  // sent[r]: the splits of rank r, which submits none where it is not told to.
  void all_to_all(DType dtype, const std::vector<Rows>& sent, bool told = true,
                  std::int64_t width = 1) {
    Case one = begin("all-to-all", Operation::kAllToAll, {.dtype = dtype}, Case::Memory::kResult);
    one.width = width;
    one.rows = sent[mine()];
    if (told) one.splits = one.rows;
    Rows rows;
    for (const Rows& splits : sent) {
      rows.push_back(sum_of(splits));
      one.received.push_back(splits[mine()]);
    }
    add(one, all_.telling(dtype, rows, width), [&](const auto& inputs) {
      Bytes all;
      for (std::size_t from = 0; from < sent.size(); ++from) {
        const auto before =
            std::accumulate(sent[from].begin(), sent[from].begin() + rank_, std::int64_t{0});
        const Bytes part = part_of(inputs[from], dtype, before * width, sent[from][mine()] * width);
        all.insert(all.end(), part.begin(), part.end());
      }
      return all;
    });
    end(std::move(one));
  }
  // Without splits the rows are shared as evenly as possible.
  void reduce_scatter(const Reduction& what, std::int64_t rows, const Rows& splits,
                      Case::Memory memory, std::int64_t width = 1) {
    Case one = begin("reduce-scatter " + text_of(what) + (splits.empty() ? "" : " with splits"),
                     Operation::kReduceScatter, what, memory);
    one.splits = splits;
    one.width = width;
    Rows shares = splits;
    for (std::int64_t rank = 0; splits.empty() && rank < size_; ++rank) {
      shares.push_back(rows / size_ + (rank < rows % size_ ? 1 : 0));
    }
    one.rows = shares;
    const auto first =
        std::accumulate(shares.begin(), shares.begin() + rank_, std::int64_t{0}) * width;
    if (one.is_in_place()) one.first = first;
    add(one, all_.summands(what.dtype, rows * width), [&](const auto& inputs) {
      return all_.scattered(what, rank_, inputs, first, shares[mine()] * width);
    });
    end(std::move(one));
  }
  void barrier() { end(begin("barrier", Operation::kBarrier, {}, Case::Memory::kInPlace)); }

 private:
  // ---- the list ----

  [[nodiscard]] Case::Memory in_turn() {
    in_place_ = !in_place_;
    return in_place_ ? Case::Memory::kInPlace : Case::Memory::kApart;
  }

  void add_allreduces() {
    in_place_ = false;
    for (const auto& type : base::kDTypes) {
      for (const auto& operation : base::kReduceOps) {
        if (!base::is_defined(type.dtype, operation.op)) continue;
        for (const std::int64_t elements : sizes_) {
          allreduce({.dtype = type.dtype, .op = operation.op}, elements, in_turn());
        }
      }
    }
  }

  void add_scaled(std::int64_t some) {
    in_place_ = false;
    for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32, DType::kF64}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax}) {
        for (const auto& [prescale, postscale] : {std::pair{0.3, 1.0}, {1.0, 1.7}, {0.3, 1.7}}) {
          allreduce({.dtype = dtype, .op = op, .prescale = prescale, .postscale = postscale}, some,
                    in_turn());
        }
      }
    }
    for (const auto compression : {base::Compression::kBf16, base::Compression::kF16}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin}) {
        for (const std::int64_t elements : {std::int64_t{0}, std::int64_t{1}, some}) {
          const Case::Memory memory = in_turn();
          allreduce({.op = op,
                     .prescale = in_place_ ? 1.0 : 0.3,
                     .postscale = in_place_ ? 1.7 : 1.0,
                     .compression = compression},
                    elements, memory);
        }
      }
    }
  }

  void add_special() {
    for (const Reduction& what :
         {Reduction{.dtype = DType::kF16}, Reduction{.dtype = DType::kBf16}, Reduction{},
          Reduction{.dtype = DType::kF64, .op = ReduceOp::kAverage},
          Reduction{.compression = base::Compression::kF16},
          Reduction{.op = ReduceOp::kAverage, .compression = base::Compression::kBf16}}) {
      constexpr std::int64_t kElements = 70;
      std::vector<Bytes> inputs = all_.telling(what.dtype, kElements);
      for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
        for (std::int64_t i = 0; i < kElements; ++i) {
          const auto special = special_number(i % 9, rank == 0, rank + 1 == inputs.size());
          if (!special) continue;
          collectives::oracle::store(what.dtype, inputs[rank].data(), i,
                                     collectives::oracle::encode(what.dtype, *special));
        }
      }
      Case one = begin("allreduce of special numbers " + text_of(what), Operation::kAllreduce, what,
                       Case::Memory::kApart);
      add(one, std::move(inputs), [&](const auto& all) { return all_.reduced(what, all); });
      end(std::move(one));
    }
  }
  void add_moves(std::int64_t some, std::int64_t large_bytes) {
    for (std::int32_t root = 0; root < size_; ++root) {
      for (const DType dtype : {DType::kU8, DType::kBf16, DType::kI64}) {
        for (const std::int64_t elements : sizes_) broadcast(dtype, {elements}, root, in_turn());
      }
      broadcast(DType::kF32, {7, 0, some}, root);
    }
    broadcast(DType::kF32, {large_bytes / 4}, static_cast<std::int32_t>(size_ - 1));
    const auto ranks = static_cast<std::size_t>(size_);
    for (std::size_t turn = 0; turn < sizes_.size(); ++turn) {
      Rows rows(ranks);
      std::vector<Rows> sent(ranks, Rows(ranks));
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        rows[rank] = sizes_[(rank + turn) % sizes_.size()];
        for (std::size_t to = 0; to < ranks; ++to) {
          sent[rank][to] = sizes_[(rank * 3 + to + turn) % sizes_.size()];
        }
      }
      for (const DType dtype : {DType::kI8, DType::kF16, DType::kF32, DType::kU64}) {
        allgather(dtype, rows);
        all_to_all(dtype, sent);
      }
      // Every rank sends the same number of rows, which may be none.
      const Rows even(ranks, sizes_[turn]);
      allgather(DType::kU16, even);
      all_to_all(DType::kU16, {ranks, even}, /*told=*/false);
    }
    Rows rows(ranks, 0);
    rows.back() = large_bytes / 8;
    allgather(DType::kF64, rows);
    all_to_all(DType::kF64, {ranks, rows});
  }

  void add_reduce_scatters(std::int64_t some, std::int64_t large_bytes) {
    in_place_ = false;
    for (const auto& type : base::kDTypes) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin}) {
        if (!base::is_defined(type.dtype, op)) continue;
        const Reduction what{.dtype = type.dtype, .op = op};
        for (const std::int64_t elements : sizes_) reduce_scatter(what, elements, {}, in_turn());
        Rows splits(static_cast<std::size_t>(size_));
        std::iota(splits.begin(), splits.end(), 0);  // nothing for the first
        splits.back() += some;
        reduce_scatter(what, sum_of(splits), splits,
                       in_place_ ? Case::Memory::kInPlace : Case::Memory::kApart);
      }
    }
    reduce_scatter({.op = ReduceOp::kAverage, .prescale = 0.3}, some, {}, Case::Memory::kInPlace);
    for (const auto compression : {base::Compression::kF16, base::Compression::kBf16}) {
      reduce_scatter({.op = ReduceOp::kAverage, .compression = compression}, some, {},
                     Case::Memory::kApart);
    }
    reduce_scatter({}, large_bytes / 16, {}, Case::Memory::kInPlace);
  }

  // Blocks that are read where they lie, of equal size or not.
  void add_on_board(std::int64_t large_bytes) {
    Rows rows(static_cast<std::size_t>(size_), large_bytes / 64);
    allgather(DType::kF32, rows, 1, Case::Memory::kOnBoard);
    reduce_scatter({.op = ReduceOp::kAverage}, sum_of(rows), {}, Case::Memory::kOnBoard);
    rows.front() += 17;
    allgather(DType::kF32, rows, 1, Case::Memory::kOnBoard);
    rows.back() = 0;
    reduce_scatter({.prescale = 0.3, .postscale = 1.7}, sum_of(rows), rows, Case::Memory::kOnBoard);
  }

  // Rows of several elements, and splits that leave little or much to a rank.
  void add_wide(std::int64_t some, std::int64_t large_bytes) {
    const auto ranks = static_cast<std::size_t>(size_);
    Rows rows(ranks);
    std::vector<Rows> sent(ranks, Rows(ranks));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      rows[rank] = static_cast<std::int64_t>(rank) % 3 * some;
      for (std::size_t to = 0; to < ranks; ++to) {
        sent[rank][to] = static_cast<std::int64_t>(rank * 5 + to * 3) % 4 * some;
      }
    }
    Rows uneven(ranks, 0);
    uneven.front() = large_bytes / 64;
    uneven.back() += 17;
    for (const DType dtype : {DType::kI32, DType::kF32}) {
      allgather(dtype, rows, kWide);
      all_to_all(dtype, sent, /*told=*/true, kWide);
      for (const Case::Memory memory : {Case::Memory::kInPlace, Case::Memory::kApart}) {
        reduce_scatter({.dtype = dtype}, some, {}, memory, kWide);
        reduce_scatter({.dtype = dtype}, sum_of(uneven), uneven, memory, kWide);
      }
    }
  }

  void add_weighted(std::int64_t some, std::int64_t large_bytes) {
    for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32, DType::kF64}) {
      for (const std::int64_t elements : sizes_) {
        weighted_allreduce({.dtype = dtype}, {elements}, in_turn());
      }
      weighted_allreduce({.dtype = dtype, .prescale = 0.3, .postscale = 1.7}, {some}, in_turn());
      weighted_reduce_scatter({.dtype = dtype, .prescale = 0.3}, some, in_turn());
    }
    for (const auto compression : {base::Compression::kBf16, base::Compression::kF16}) {
      weighted_allreduce({.compression = compression}, {some}, in_turn());
    }
    weighted_allreduce({}, {large_bytes / 4}, Case::Memory::kApart);
    weighted_allreduce({}, {large_bytes / 16}, Case::Memory::kOnBoard);
    weighted_allreduce({}, {7, 0, some, 1}, Case::Memory::kInPlace);
    weighted_reduce_scatter({}, large_bytes / 16, Case::Memory::kApart);
    weighted_reduce_scatter({}, large_bytes / 16, Case::Memory::kOnBoard);
  }

  Case begin(const std::string& text, Operation operation, const Reduction& what,
             Case::Memory memory) {
    Case one;
    one.name = std::to_string(cases_.size()) + " " + text + ", " +
               std::string(base::name_of(what.dtype)) +
               (memory == Case::Memory::kOnBoard   ? " on the board"
                : memory == Case::Memory::kInPlace ? " in place"
                                                   : "");
    one.operation = operation;
    one.what = what;
    one.memory = memory;
    return one;
  }
  template <typename Expected>
  void add(Case& one, std::vector<Bytes> inputs, const Expected& expected) {
    Bytes result = expected(inputs);
    std::int64_t bytes = 0;  // of all ranks, since the name is the same on all
    for (const Bytes& input : inputs) bytes += std::ssize(input);
    one.name += " " + std::to_string(bytes / base::size_of(one.dtype()));
    one.tensors.push_back({std::move(inputs[mine()]), std::move(result)});
  }
  void end(Case one) { cases_.push_back(std::move(one)); }

  [[nodiscard]] std::size_t mine() const { return static_cast<std::size_t>(rank_); }
  static constexpr std::int64_t kWide = 3;

  const std::int32_t rank_;
  const bool is_telling_;
  RankNumbers all_;
  const std::int64_t size_;
  Rows sizes_;
  bool in_place_ = false;
  std::vector<Case> cases_;
};

}  // namespace ronde::conformance
