// SPDX-License-Identifier: Apache-2.0
// The order rule over several hosts: jobs of all kinds of shapes, in one thread, stepped in a
// random order that a seed decides. Bits are those of a serial sum for the job's shape, whichever
// algorithm runs between the hosts and however the vector is cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/two_level/allreduce.h"
#include "collectives/two_level/reduce_scatter.h"
#include "test/unit/collectives/job_of_hosts.h"

namespace ronde::collectives {
namespace {

using base::DType;
using base::JobShape;
using base::ReduceOp;
using Memory = std::vector<std::byte>;
using Memories = std::vector<Memory>;
using Random = std::mt19937_64;

// One allreduce or reduce-scatter, and the circumstances in which it runs, which must not change
// its bits.
struct Operation {
  Reduction what;
  bool scatters = false;         // with true, tensor r is the block of rank r
  std::vector<Memories> inputs;  // by tensor, then by rank
  Memories expected;             // by tensor
  bool in_place = false;
  const Algorithm* algorithm = nullptr;
  SlotTuning tuning{};
  base::Bytes segment;
  base::Bytes block;
};

Reduction random_reduction(Random& random) {
  Reduction what;
  do {
    what.dtype = base::kDTypes[random() % base::kDTypes.size()].dtype;
    what.op = base::kReduceOps[random() % base::kReduceOps.size()].op;
    if (random() % 2 == 0) what.dtype = DType::kF32;
    if (random() % 3 == 0) what.op = ReduceOp::kAverage;
  } while (!base::is_defined(what.dtype, what.op));
  if (!base::is_floating(what.dtype)) return what;
  if (random() % 3 == 0) what.prescale = 0.3;
  if (random() % 3 == 0) what.postscale = 1.7;
  if (what.dtype == DType::kF32 && random() % 2 == 0) {
    what.compression = random() % 2 == 0 ? base::Compression::kBf16 : base::Compression::kF16;
  }
  return what;
}

Operation random_operation(const JobShape& shape, Random& random) {
  Operation op;
  op.what = random_reduction(random);
  op.scatters = random() % 3 == 0;
  op.in_place = random() % 2 == 0;
  const std::size_t algorithm = random() % (algorithms().size() + 1);
  if (algorithm > 0) op.algorithm = &algorithms()[algorithm - 1];
  op.tuning.piece_bytes = static_cast<std::int64_t>(64 + random() % 2000);
  op.tuning.store = random() % 2 == 0 ? StoreKind::kTemporal : StoreKind::kStreaming;
  op.segment = base::Bytes(std::int64_t{64} << (random() % 6));
  op.block = base::Bytes(random() % 4 == 0 ? 1 << 20 : std::int64_t{64} << (random() % 8));
  std::vector<std::int64_t> lengths(op.scatters ? static_cast<std::size_t>(shape.ranks())
                                                : 1 + random() % 3);
  for (std::int64_t& length : lengths) {
    length = static_cast<std::int64_t>(random() % 4 == 0   ? random() % 3
                                       : random() % 3 == 0 ? random() % 9000
                                                           : random() % 1200);
  }
  for (const std::int64_t length : lengths) {
    Memories& tensor = op.inputs.emplace_back();
    for (std::int32_t rank = 0; rank < shape.ranks(); ++rank) {
      tensor.push_back(oracle::random_elements(op.what.dtype, length, random));
    }
    op.expected.push_back(op.scatters ? oracle::shaped_block(op.what, hosts_of(shape), tensor,
                                                             static_cast<int>(op.expected.size()))
                                      : oracle::shaped_tensor(op.what, hosts_of(shape), tensor));
  }
  return op;
}

constexpr std::byte kMark{0x5A};

// A rank that runs the operations one after another.
class RankOfJob final : public BackToBack {
 public:
  RankOfJob(TwoLevelContext job, WatchedEnd& watched, std::size_t rank,
            const std::vector<Operation>& operations)
      : BackToBack(operations.size()),
        job_(job),
        watched_(watched),
        rank_(rank),
        operations_(operations) {}

 private:
  std::unique_ptr<Collective> begin(std::size_t index) override {
    const Operation& op = operations_[index];
    inputs_.clear();
    outputs_.clear();
    std::vector<base::TensorView> tensors;
    for (const Memories& tensor : op.inputs) inputs_.push_back(tensor[rank_]);
    for (Memory& input : inputs_) {
      outputs_.emplace_back(op.in_place ? input : Memory(input.size(), kMark));
    }
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      tensors.push_back({op.in_place ? outputs_[i].data() : inputs_[i].data(),
                         gets(op, i) ? outputs_[i].data() : nullptr,
                         base::Elements(std::ssize(outputs_[i]) / base::size_of(op.what.dtype)),
                         op.what.dtype});
      watched_.keep_out_of(inputs_[i]);
      watched_.keep_out_of(outputs_[i]);
    }
    TwoLevelContext job{.shape = job_.shape,
                        .rank = job_.rank,
                        .slots = job_.slots,
                        .across = job_.across,
                        .workspace = job_.workspace,
                        .tuning = op.tuning,
                        .algorithm = op.algorithm,
                        .segment = op.segment,
                        .block = op.block};
    return op.scatters ? two_level_reduce_scatter(job, tensors, op.what, tag(index))
                       : two_level_allreduce(job, tensors, op.what, tag(index));
  }

  void check(std::size_t index) override {
    const Operation& op = operations_[index];
    watched_.forget_users();
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      EXPECT_EQ(inputs_[i], op.inputs[i][rank_]) << "an input has changed";
      if (!gets(op, i)) {
        const Memory before = op.in_place ? inputs_[i] : Memory(outputs_[i].size(), kMark);
        EXPECT_EQ(outputs_[i], before) << "the block of rank " << i << " on rank " << rank_;
        continue;
      }
      EXPECT_EQ(oracle::first_difference(op.what.dtype, outputs_[i], op.expected[i]), -1)
          << (op.scatters ? "reduce-scatter" : "allreduce") << ", operation " << index << ", rank "
          << rank_ << ", tensor " << i << ", " << base::name_of(op.what.dtype) << " "
          << base::name_of(op.what.op) << ", " << base::name_of(op.what.compression) << ", "
          << outputs_[i].size() << " bytes, "
          << (op.algorithm != nullptr ? op.algorithm->name : "auto");
    }
  }

  [[nodiscard]] bool gets(const Operation& op, std::size_t tensor) const {
    return !op.scatters || tensor == rank_;
  }

  const TwoLevelContext job_;
  WatchedEnd& watched_;
  const std::size_t rank_;
  const std::vector<Operation>& operations_;
  Memories inputs_;
  Memories outputs_;
};

// Runs all ranks through the operations.
void run(JobOfHosts& job, const std::vector<Operation>& operations, std::uint64_t seed) {
  std::vector<std::unique_ptr<Collective>> all;
  for (std::size_t rank = 0; rank < job.size(); ++rank) {
    all.push_back(std::make_unique<RankOfJob>(
        job.of(rank), job.ranks().watched(static_cast<int>(rank)), rank, operations));
  }
  job.ranks().expect_done(all, seed);
}

struct TwoLevelCase {
  const char* name;
  std::vector<std::int32_t> leaders;
};

class TwoLevelOrderRuleTest : public ::testing::TestWithParam<TwoLevelCase> {};

TEST_P(TwoLevelOrderRuleTest, BitsAreThoseOfTheJobsShape) {
  const JobShape shape = shape_of(GetParam().leaders);
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    Random random(seed * 1000 + GetParam().leaders.size());
    JobOfHosts job(shape, 1 + static_cast<std::int64_t>(seed % 3),
                   {.seed = seed,
                    .max_delay = static_cast<int>(seed % 4),
                    .synchronous_sends = seed % 3 == 0});
    std::vector<Operation> operations;
    operations.reserve(6);
    for (int i = 0; i < 6; ++i) operations.push_back(random_operation(shape, random));
    run(job, operations, seed);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    expect_same_windows(job);
  }
}

// Returns the bytes that all ranks of the job send in an allreduce of that many elements.
std::int64_t bytes_on_the_line(const JobShape& shape, const Algorithm* algorithm,
                               base::Compression compression, std::int64_t elements) {
  Random random(7);
  Operation op;
  op.what.compression = compression;
  op.algorithm = algorithm;
  op.tuning.piece_bytes = 4096;
  op.segment = base::Bytes(4096);
  op.block = base::Bytes(64 << 10);
  Memories& tensor = op.inputs.emplace_back();
  for (std::int32_t rank = 0; rank < shape.ranks(); ++rank) {
    tensor.push_back(oracle::random_elements(DType::kF32, elements, random));
  }
  op.expected.push_back(oracle::shaped_tensor(op.what, hosts_of(shape), tensor));
  JobOfHosts job(shape, 64);
  const std::vector<Operation> operations{op};
  run(job, operations, 3);
  std::int64_t bytes = 0;
  for (std::size_t rank = 0; rank < job.size(); ++rank) {
    bytes += job.ranks().watched(static_cast<int>(rank)).bytes_sent();
  }
  return bytes;
}

TEST_P(TwoLevelOrderRuleTest, CompressionHalvesTheBytesBetweenHosts) {
  const JobShape shape = shape_of(GetParam().leaders);
  // Every slice of every chunk has whole lines, compressed or not.
  const std::int64_t elements = std::int64_t{32} * 8 * 3 * shape.hosts() * shape.slices();
  const std::int64_t hosts = shape.hosts();
  for (const std::string_view name : {"ring", "direct", "gather"}) {
    const Algorithm* const algorithm = algorithm_of(name);
    const std::int64_t whole =
        bytes_on_the_line(shape, algorithm, base::Compression::kNone, elements);
    const std::int64_t copies = name == "gather" ? hosts * (hosts - 1) : 2 * (hosts - 1);
    EXPECT_EQ(whole, copies * elements * 4) << name;
    for (const base::Compression compression :
         {base::Compression::kF16, base::Compression::kBf16}) {
      EXPECT_EQ(2 * bytes_on_the_line(shape, algorithm, compression, elements), whole) << name;
    }
  }
}

// A host receives one sum of its ranks' blocks, however many ranks add to it. The ranks of a host
// send each other no messages.
TEST_P(TwoLevelOrderRuleTest, AReduceScatterSendsASumOfEachHost) {
  const JobShape shape = shape_of(GetParam().leaders);
  for (const Algorithm& algorithm : algorithms()) {
    Random random(9);
    Operation op;
    op.scatters = true;
    op.algorithm = &algorithm;
    op.tuning.piece_bytes = 4096;
    op.segment = base::Bytes(4096);
    op.block = base::Bytes(64 << 10);
    std::int64_t bytes = 0;
    for (int block = 0; block < shape.ranks(); ++block) {
      Memories& tensor = op.inputs.emplace_back();
      for (std::int32_t rank = 0; rank < shape.ranks(); ++rank) {
        tensor.push_back(oracle::random_elements(DType::kF32, 5000 + 1000 * block, random));
      }
      op.expected.push_back(oracle::shaped_block(op.what, hosts_of(shape), tensor, block));
      bytes += std::ssize(tensor[0]);
    }
    JobOfHosts job(shape, 64);
    const std::vector<Operation> operations{op};
    run(job, operations, 3);
    std::int64_t sent = 0;
    for (int rank = 0; rank < shape.ranks(); ++rank) {
      sent += job.ranks().watched(rank).bytes_sent();
    }
    EXPECT_EQ(sent, (shape.hosts() - 1) * bytes) << algorithm.name;
  }
}

// Blocks have several segments, as those of a real job, and there are more than fit in flight.
TEST_P(TwoLevelOrderRuleTest, LongVectorsInManyBlocks) {
  const JobShape shape = shape_of(GetParam().leaders);
  Random random(GetParam().leaders.size());
  for (const std::string_view name : {"ring", "direct"}) {
    Operation op;
    op.what = {.op = ReduceOp::kAverage};
    op.algorithm = algorithm_of(name);
    op.tuning = {};
    op.segment = base::Bytes(16 << 10);
    op.block = base::Bytes(128 << 10);
    Memories& tensor = op.inputs.emplace_back();
    const std::int64_t elements = 350'003;
    for (std::size_t rank = 0; rank < GetParam().leaders.size(); ++rank) {
      tensor.push_back(oracle::random_elements(DType::kF32, elements, random));
    }
    op.expected.push_back(oracle::shaped_tensor(op.what, hosts_of(shape), tensor));
    JobOfHosts job(shape, 1024);
    const std::vector<Operation> operations{op};
    run(job, operations, 5);
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      EXPECT_LE(job.ranks().workspace(static_cast<int>(rank)).idle_bytes().value(), 2 << 20);
    }
  }
}

// This guards the tests above: with these numbers the order shows in the bits.
TEST_P(TwoLevelOrderRuleTest, AnotherShapeWouldShow) {
  const JobShape shape = shape_of(GetParam().leaders);
  if (shape.ranks() == 2) return;  // a sum of two has one order
  Random random(3);
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBf16}) {
    Memories inputs;
    for (std::int32_t rank = 0; rank < shape.ranks(); ++rank) {
      inputs.push_back(oracle::random_elements(dtype, 1000, random));
    }
    const Reduction what{.dtype = dtype};
    const Memory expected = oracle::shaped_tensor(what, hosts_of(shape), inputs);
    oracle::Hosts other = hosts_of(shape);
    std::reverse(other.begin(), other.end());
    if (shape.hosts() > 2) {
      EXPECT_NE(oracle::shaped_tensor(what, other, inputs), expected);
    }
    const bool flat = shape.hosts() == shape.ranks();
    EXPECT_NE(flat ? oracle::allreduce_of_host(what, inputs) : oracle::ring_tensor(what, inputs),
              expected);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, TwoLevelOrderRuleTest,
    ::testing::Values(TwoLevelCase{"2x1", {0, 1}}, TwoLevelCase{"3x1", {0, 1, 2}},
                      TwoLevelCase{"4x1", {0, 1, 2, 3}}, TwoLevelCase{"2x2", {0, 0, 2, 2}},
                      TwoLevelCase{"2x2mixed", {0, 1, 0, 1}},
                      TwoLevelCase{"4x2", {0, 0, 2, 2, 4, 4, 6, 6}},
                      TwoLevelCase{"2and1and1and2", {0, 0, 2, 3, 4, 4}},
                      TwoLevelCase{"2and1", {0, 0, 2}}, TwoLevelCase{"3and1", {0, 0, 0, 3}},
                      TwoLevelCase{"1and3", {0, 1, 1, 1}},
                      TwoLevelCase{"3and2and2mixed", {0, 1, 2, 0, 1, 2, 0}}),
    [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace ronde::collectives
