// SPDX-License-Identifier: Apache-2.0
// Random sequences of collectives of several hosts, with the inputs of all ranks and the results,
// and a rank that runs one: a test steps it in one thread or in a thread of its own.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "collectives/two_level/allreduce.h"
#include "collectives/two_level/moves.h"
#include "collectives/two_level/reduce_scatter.h"
#include "test/unit/collectives/job_of_hosts.h"

namespace ronde::collectives {

// One collective of all ranks. inputs[r] is rank r's input, and expected[r] its result.
struct TwoLevelOperation {
  std::string name;
  std::vector<oracle::Bytes> inputs;
  std::vector<oracle::Bytes> expected;
  bool in_place = false;
  SlotTuning tuning{};
  base::Bytes segment;
  base::Bytes block;
  // The arguments are the context, the rank's transport, its input, its output and its tags.
  std::function<std::unique_ptr<Collective>(const TwoLevelContext&, Transport&, const std::byte*,
                                            std::byte*, int)>
      start;
};

class TwoLevelSequenceMaker {
 public:
  TwoLevelSequenceMaker(const base::JobShape& shape, std::uint64_t seed)
      : shape_(shape), random_(seed) {}

  [[nodiscard]] std::vector<TwoLevelOperation> make(int count) {
    std::vector<TwoLevelOperation> operations;
    for (int i = 0; i < count; ++i) {
      TwoLevelOperation op;
      op.in_place = random_() % 2 == 0;
      op.tuning.piece_bytes = static_cast<std::int64_t>(64 + random_() % 2000);
      op.segment = base::Bytes(std::int64_t{64} << (random_() % 6));
      op.block = base::Bytes(std::int64_t{64} << (random_() % 8));
      fill(op);
      operations.push_back(std::move(op));
    }
    return operations;
  }

 private:
  [[nodiscard]] static base::TensorView view(const std::byte* input, std::byte* output,
                                             std::size_t bytes) {
    return {input, output, base::Elements(static_cast<std::int64_t>(bytes) / 4), base::DType::kF32};
  }

  void fill(TwoLevelOperation& op) {
    switch (random_() % 5) {
      case 0:
        fill_allreduce(op);
        break;
      case 1:
        fill_broadcast(op);
        break;
      case 2:
        fill_allgather(op);
        break;
      case 3:
        fill_reduce_scatter(op);
        break;
      default:
        op.name = "barrier";
        op.inputs.resize(ranks());
        op.expected.resize(ranks());
        op.start = [](const TwoLevelContext& context, Transport&, const std::byte*, std::byte*,
                      int tag) { return two_level_barrier(context, tag); };
    }
  }

  void fill_allreduce(TwoLevelOperation& op) {
    op.name = "allreduce";
    const std::int64_t elements = length();
    for (std::size_t rank = 0; rank < ranks(); ++rank) op.inputs.push_back(numbers(elements));
    op.expected.assign(ranks(), oracle::shaped_tensor({}, hosts_of(shape_), op.inputs));
    const std::size_t bytes = op.inputs[0].size();
    op.start = [bytes](const TwoLevelContext& context, Transport&, const std::byte* input,
                       std::byte* output, int tag) {
      return two_level_allreduce(context, {view(input, output, bytes)}, {}, tag);
    };
  }

  void fill_broadcast(TwoLevelOperation& op) {
    const std::size_t root = random_() % ranks();
    op.name = "broadcast of rank " + std::to_string(root);
    const std::int64_t elements = length();
    for (std::size_t rank = 0; rank < ranks(); ++rank) op.inputs.push_back(numbers(elements));
    op.expected.assign(ranks(), op.inputs[root]);
    const std::size_t bytes = op.inputs[0].size();
    op.start = [bytes, root](const TwoLevelContext& context, Transport& transport,
                             const std::byte* input, std::byte* output, int tag) {
      return two_level_broadcast(context, transport,
                                 fusion::FusedView({view(input, output, bytes)}, 1),
                                 static_cast<std::int32_t>(root), tag);
    };
  }

  void fill_allgather(TwoLevelOperation& op) {
    op.name = "allgather";
    op.in_place = false;
    oracle::Bytes all;
    std::vector<std::size_t> sizes;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      op.inputs.push_back(numbers(random_() % 3 == 0 ? 0 : length()));
      sizes.push_back(op.inputs.back().size());
      all.insert(all.end(), op.inputs.back().begin(), op.inputs.back().end());
    }
    op.expected.assign(ranks(), all);
    op.start = [sizes](const TwoLevelContext& context, Transport& transport, const std::byte* input,
                       std::byte* output, int tag) {
      std::vector<base::TensorView> blocks;
      for (const std::size_t bytes : sizes) {
        const bool mine = std::cmp_equal(blocks.size(), transport.rank());
        blocks.push_back(view(mine ? input : nullptr, output, bytes));
        output += bytes;
      }
      return two_level_allgather(context, base::DType::kF32, blocks, tag);
    };
  }

  void fill_reduce_scatter(TwoLevelOperation& op) {
    op.name = "reduce-scatter";
    op.in_place = false;
    op.inputs.resize(ranks());
    std::vector<std::size_t> sizes;
    for (std::size_t block = 0; block < ranks(); ++block) {
      const std::int64_t elements = random_() % 3 == 0 ? 0 : length();
      std::vector<oracle::Bytes> inputs;
      for (std::size_t rank = 0; rank < ranks(); ++rank) {
        inputs.push_back(numbers(elements));
        op.inputs[rank].insert(op.inputs[rank].end(), inputs[rank].begin(), inputs[rank].end());
      }
      op.expected.push_back(
          oracle::shaped_block({}, hosts_of(shape_), inputs, static_cast<int>(block)));
      sizes.push_back(inputs[0].size());
    }
    op.start = [sizes](const TwoLevelContext& context, Transport& transport, const std::byte* input,
                       std::byte* output, int tag) {
      std::vector<base::TensorView> blocks;
      for (const std::size_t bytes : sizes) {
        const bool mine = std::cmp_equal(blocks.size(), transport.rank());
        blocks.push_back(view(input, mine ? output : nullptr, bytes));
        input += bytes;
      }
      return two_level_reduce_scatter(context, blocks, {}, tag);
    };
  }

  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(shape_.ranks()); }
  [[nodiscard]] std::int64_t length() {
    const std::uint64_t most = random_() % 3 == 0 ? 3 : random_() % 3 == 0 ? 6000 : 600;
    return static_cast<std::int64_t>(random_() % most);
  }
  [[nodiscard]] oracle::Bytes numbers(std::int64_t elements) {
    return oracle::random_elements(base::DType::kF32, elements, random_);
  }

  const base::JobShape& shape_;
  std::mt19937_64 random_;
};

// A rank that runs the operations one after another.
class RankOfSequence final : public BackToBack {
 public:
  RankOfSequence(TwoLevelContext context, JobOfRanks& ranks,
                 const std::vector<TwoLevelOperation>& operations)
      : BackToBack(operations.size()), context_(context), ranks_(ranks), operations_(operations) {}

 private:
  [[nodiscard]] std::size_t rank() const { return static_cast<std::size_t>(context_.rank); }

  std::unique_ptr<Collective> begin(std::size_t index) override {
    const TwoLevelOperation& op = operations_[index];
    input_ = op.inputs[rank()];
    output_ = op.in_place ? input_ : oracle::Bytes(op.expected[rank()].size(), std::byte{0x5A});
    ranks_.watched(context_.rank).keep_out_of(input_);
    ranks_.watched(context_.rank).keep_out_of(output_);
    const TwoLevelContext context{.shape = context_.shape,
                                  .rank = context_.rank,
                                  .slots = context_.slots,
                                  .across = context_.across,
                                  .workspace = context_.workspace,
                                  .tuning = op.tuning,
                                  .segment = op.segment,
                                  .block = op.block};
    return op.start(context, ranks_.transport(context_.rank),
                    op.in_place ? output_.data() : input_.data(), output_.data(), tag(index));
  }

  void check(std::size_t index) override {
    const TwoLevelOperation& op = operations_[index];
    ranks_.watched(context_.rank).forget_users();
    EXPECT_TRUE(output_ == op.expected[rank()]) << op.name << ", number " << index << ", on rank "
                                                << rank() << ", " << output_.size() << " bytes";
    EXPECT_TRUE(input_ == op.inputs[rank()]) << "an input has changed";
    // The memory is the user's again, and is freed: a rank that still touches it is caught.
    input_ = {};
    output_ = {};
  }

  const TwoLevelContext context_;
  JobOfRanks& ranks_;
  const std::vector<TwoLevelOperation>& operations_;
  oracle::Bytes input_;
  oracle::Bytes output_;
};

}  // namespace ronde::collectives
