// SPDX-License-Identifier: Apache-2.0
// Collectives of several hosts back to back, of all kinds and in random sizes, stepped in one
// thread in a random order: every rank runs as far ahead as the protocol lets it.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "collectives/hierarchical_allreduce.h"
#include "collectives/hierarchical_moves.h"
#include "test/unit/collectives/job_of_hosts.h"

namespace ronde::collectives {
namespace {

using base::DType;
using base::TensorView;
using Memory = std::vector<std::byte>;
using Memories = std::vector<Memory>;
using Random = std::mt19937_64;

// One collective of all ranks. inputs[r] is rank r's; what it must get is expected[r].
struct Operation {
  std::string name;
  Memories inputs;
  Memories expected;
  bool in_place = false;
  SlotTuning tuning{};
  base::Bytes segment;
  base::Bytes block;
  // (the job, the rank's transport, its input, its output, tags)
  std::function<std::unique_ptr<Collective>(const HostsJob&, Transport&, const std::byte*,
                                            std::byte*, int)>
      start;
};

TensorView view(const std::byte* input, std::byte* output, std::size_t bytes) {
  return {input, output, base::Elements(static_cast<std::int64_t>(bytes) / 4), DType::kF32};
}

class Maker {
 public:
  Maker(const JobShape& shape, std::uint64_t seed) : shape_(shape), random_(seed) {}

  [[nodiscard]] std::vector<Operation> make(int count) {
    std::vector<Operation> operations;
    for (int i = 0; i < count; ++i) {
      Operation op;
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
  void fill(Operation& op) {
    switch (random_() % 4) {
      case 0:
        fill_allreduce(op);
        break;
      case 1:
        fill_broadcast(op);
        break;
      case 2:
        fill_allgather(op);
        break;
      default:
        op.name = "barrier";
        op.inputs.resize(ranks());
        op.expected.resize(ranks());
        op.start = [](const HostsJob& job, Transport&, const std::byte*, std::byte*, int tag) {
          return hierarchical_barrier(job, tag);
        };
    }
  }

  void fill_allreduce(Operation& op) {
    op.name = "allreduce";
    const std::int64_t elements = length();
    for (std::size_t rank = 0; rank < ranks(); ++rank) op.inputs.push_back(numbers(elements));
    op.expected.assign(ranks(), oracle::shaped_tensor({}, hosts_of(shape_), op.inputs));
    const std::size_t bytes = op.inputs[0].size();
    op.start = [bytes](const HostsJob& job, Transport&, const std::byte* input, std::byte* output,
                       int tag) {
      return hierarchical_allreduce(job, {view(input, output, bytes)}, {}, tag);
    };
  }

  void fill_broadcast(Operation& op) {
    const std::size_t root = random_() % ranks();
    op.name = "broadcast of rank " + std::to_string(root);
    const std::int64_t elements = length();
    for (std::size_t rank = 0; rank < ranks(); ++rank) op.inputs.push_back(numbers(elements));
    op.expected.assign(ranks(), op.inputs[root]);
    const std::size_t bytes = op.inputs[0].size();
    op.start = [bytes, root](const HostsJob& job, Transport& transport, const std::byte* input,
                             std::byte* output, int tag) {
      return hierarchical_broadcast(job, transport,
                                    fusion::FusedView({view(input, output, bytes)}, 1),
                                    static_cast<std::int32_t>(root), tag);
    };
  }

  void fill_allgather(Operation& op) {
    op.name = "allgather";
    op.in_place = false;
    Memory all;
    std::vector<std::size_t> sizes;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      op.inputs.push_back(numbers(random_() % 3 == 0 ? 0 : length()));
      sizes.push_back(op.inputs.back().size());
      all.insert(all.end(), op.inputs.back().begin(), op.inputs.back().end());
    }
    op.expected.assign(ranks(), all);
    op.start = [sizes](const HostsJob& job, Transport& transport, const std::byte* input,
                       std::byte* output, int tag) {
      std::vector<TensorView> blocks;
      for (const std::size_t bytes : sizes) {
        const bool mine = std::cmp_equal(blocks.size(), transport.rank());
        blocks.push_back(view(mine ? input : nullptr, output, bytes));
        output += bytes;
      }
      return hierarchical_allgather(job, DType::kF32, blocks, tag);
    };
  }

  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(shape_.ranks()); }
  [[nodiscard]] std::int64_t length() {
    const std::uint64_t most = random_() % 3 == 0 ? 3 : random_() % 3 == 0 ? 6000 : 600;
    return static_cast<std::int64_t>(random_() % most);
  }
  [[nodiscard]] Memory numbers(std::int64_t elements) {
    return oracle::random_elements(DType::kF32, elements, random_);
  }

  const JobShape& shape_;
  Random random_;
};

// A rank on its way through the operations.
class RankOfSequence final : public Collective {
 public:
  RankOfSequence(HostsJob job, WatchedTransport& transport,
                 const std::vector<Operation>& operations)
      : job_(job), transport_(transport), operations_(operations) {}

  base::Result<StepResult> step() override {
    if (next_ == operations_.size()) return StepResult::kDone;
    if (current_ == nullptr) begin();
    base::Result<StepResult> result = current_->step();
    if (!result.ok() || *result != StepResult::kDone) return result;
    end();
    return next_ == operations_.size() ? StepResult::kDone : StepResult::kProgress;
  }

 private:
  [[nodiscard]] std::size_t rank() const { return static_cast<std::size_t>(job_.rank); }

  void begin() {
    const Operation& op = operations_[next_];
    input_ = op.inputs[rank()];
    output_ = op.in_place ? input_ : Memory(op.expected[rank()].size(), std::byte{0x5A});
    transport_.keep_out_of(input_);
    transport_.keep_out_of(output_);
    const HostsJob job{.shape = job_.shape,
                       .rank = job_.rank,
                       .slots = job_.slots,
                       .across = job_.across,
                       .workspace = job_.workspace,
                       .tuning = op.tuning,
                       .segment = op.segment,
                       .block = op.block};
    current_ = op.start(job, transport_, op.in_place ? output_.data() : input_.data(),
                        output_.data(), static_cast<int>(next_ % 8) * kTagsPerCollective);
  }

  void end() {
    const Operation& op = operations_[next_];
    current_.reset();
    transport_.forget_users();
    EXPECT_TRUE(output_ == op.expected[rank()]) << op.name << ", number " << next_ << ", on rank "
                                                << rank() << ", " << output_.size() << " bytes";
    EXPECT_TRUE(input_ == op.inputs[rank()]) << "an input has changed";
    // The user's memory is the user's again: it is gone, whoever still touches it.
    input_ = {};
    output_ = {};
    ++next_;
  }

  const HostsJob job_;
  WatchedTransport& transport_;
  const std::vector<Operation>& operations_;
  Memory input_;
  Memory output_;
  std::unique_ptr<Collective> current_;
  std::size_t next_ = 0;
};

class HostsSequenceTest : public testing::TestWithParam<std::vector<std::int32_t>> {};

TEST_P(HostsSequenceTest, EveryRankGetsWhatItShould) {
  const JobShape shape = shape_of(GetParam());
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    JobOfHosts job(shape, 1 + static_cast<std::int64_t>(seed % 3),
                   {.seed = seed,
                    .max_delay = static_cast<int>(seed % 4),
                    .synchronous_sends = seed % 3 == 0});
    const std::vector<Operation> operations = Maker(shape, seed * 100 + GetParam().size()).make(12);
    std::vector<std::unique_ptr<Collective>> all;
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      all.push_back(std::make_unique<RankOfSequence>(
          job.of(rank), job.ranks().transport(static_cast<int>(rank)), operations));
    }
    job.ranks().expect_done(all, seed);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    // All ranks of a host have used the same windows, or the next collective would go wrong.
    for (std::int32_t rank = 0; rank < shape.ranks(); ++rank) {
      const std::int32_t leader = shape.leader_of(shape.host_of(rank));
      ASSERT_EQ(job.slots(static_cast<std::size_t>(rank)).next_window(),
                job.slots(static_cast<std::size_t>(leader)).next_window());
    }
  }
}

// A link between two hosts breaks: their ranks hear of it, and nothing hangs or touches memory that
// is gone.
TEST_P(HostsSequenceTest, ACutLinkIsAnError) {
  const JobShape shape = shape_of(GetParam());
  for (std::int64_t after = 0; after < 20; ++after) {
    const int a = shape.leader_of(0);
    const int b = shape.leader_of(1);
    JobOfHosts job(shape, 2, {.seed = 1, .max_delay = 1, .cuts = {{a, b, after}}});
    Maker maker(shape, static_cast<std::uint64_t>(after));
    const std::vector<Operation> operations = maker.make(60);
    std::vector<std::unique_ptr<Collective>> all;
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      all.push_back(std::make_unique<RankOfSequence>(
          job.of(rank), job.ranks().transport(static_cast<int>(rank)), operations));
    }
    const std::vector<Outcome> outcomes = job.ranks().run(all, static_cast<std::uint64_t>(after));
    int errors = 0;
    for (const Outcome& outcome : outcomes) {
      errors += outcome.status.code() == base::Code::kTransport ? 1 : 0;
    }
    EXPECT_GE(errors, 1) << "after " << after;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, HostsSequenceTest,
    testing::Values(std::vector<std::int32_t>{0, 1}, std::vector<std::int32_t>{0, 1, 2},
                    std::vector<std::int32_t>{0, 0, 2, 2}, std::vector<std::int32_t>{0, 1, 0, 1},
                    std::vector<std::int32_t>{0, 0, 2}, std::vector<std::int32_t>{0, 0, 0, 3},
                    std::vector<std::int32_t>{0, 1, 1, 1},
                    std::vector<std::int32_t>{0, 1, 2, 0, 1, 2, 0}),
    [](const auto& of) {
      std::string name;
      for (const std::int32_t leader : of.param) {
        name += std::to_string(leader);
      }
      return name;
    });

}  // namespace
}  // namespace ronde::collectives
