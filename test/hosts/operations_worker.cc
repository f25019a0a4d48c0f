// SPDX-License-Identifier: Apache-2.0
// A rank of a job over several hosts that runs every operation on every type, all at once and in an
// order of its own, and compares the results with a serial sum for the job's shape.
//
// usage: operations_worker leaders=R,R,... [seed=N]
// leaders: for each rank the lowest rank on its host (where every rank counts as a host: itself).
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>
#include <ronde/ronde.hpp>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/hosts/moving_cases.h"
#include "test/hosts/operation_cases.h"
#include "test/hosts/reducing_cases.h"
#include "test/support/words.h"

namespace {

using ronde::testing::CasePtr;
using ronde::testing::JobOfCases;
namespace oracle = ronde::collectives::oracle;
using ronde::base::DType;
using ronde::base::ReduceOp;
using ronde::collectives::Reduction;

constexpr std::int64_t kSome = 3001;
constexpr std::int64_t kSizes[]{0, 1, 7, kSome};
constexpr std::int64_t kLargeBytes = 3 << 20;

struct Settings {
  std::vector<int> leaders;
  std::uint64_t seed = 1;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto [key, value] = ronde::testing::key_and_value(word);
    if (key == "leaders") {
      std::istringstream list(value);
      for (std::string leader; std::getline(list, leader, ',');) {
        settings.leaders.push_back(std::stoi(leader));
      }
    } else if (key == "seed") {
      settings.seed = std::stoul(value);
    } else {
      throw std::invalid_argument("unknown word " + word);
    }
  }
  return settings;
}

oracle::Hosts hosts_of(const std::vector<int>& leaders) {
  oracle::Hosts hosts;
  for (int leader = 0; std::cmp_less(leader, leaders.size()); ++leader) {
    std::vector<int> ranks;
    for (int rank = 0; std::cmp_less(rank, leaders.size()); ++rank) {
      if (leaders[static_cast<std::size_t>(rank)] == leader) ranks.push_back(rank);
    }
    if (!ranks.empty()) hosts.push_back(std::move(ranks));
  }
  return hosts;
}

void add_allreduces(JobOfCases& job) {
  bool in_place = false;
  for (const auto& type : ronde::base::kDTypes) {
    for (const auto& operation : ronde::base::kReduceOps) {
      if (!ronde::base::is_defined(type.dtype, operation.op)) continue;
      for (const std::int64_t elements : kSizes) {
        in_place = !in_place;
        add_allreduce(job, {.dtype = type.dtype, .op = operation.op}, elements, in_place);
      }
    }
  }
}

void add_scaled(JobOfCases& job) {
  bool in_place = false;
  for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32, DType::kF64}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax}) {
      for (const auto& [prescale, postscale] : {std::pair{0.3, 1.0}, {1.0, 1.7}, {0.3, 1.7}}) {
        in_place = !in_place;
        const Reduction what{
            .dtype = dtype, .op = op, .prescale = prescale, .postscale = postscale};
        add_allreduce(job, what, kSome, in_place);
      }
    }
  }
  for (const auto compression : {ronde::base::Compression::kBf16, ronde::base::Compression::kF16}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin}) {
      for (const std::int64_t elements : {std::int64_t{0}, std::int64_t{1}, kSome}) {
        in_place = !in_place;
        const Reduction what{.op = op,
                             .prescale = in_place ? 1.0 : 0.3,
                             .postscale = in_place ? 1.7 : 1.0,
                             .compression = compression};
        add_allreduce(job, what, elements, in_place);
      }
    }
  }
}

void add_moves(JobOfCases& job) {
  for (int root = 0; root < job.size(); ++root) {
    for (const DType dtype : {DType::kU8, DType::kBf16, DType::kI64}) {
      for (const std::int64_t elements : kSizes) add_broadcast(job, dtype, elements, root);
    }
    add_grouped_broadcast(job, {7, 0, kSome}, root);
  }
  add_broadcast(job, DType::kF32, kLargeBytes / 4, job.size() - 1);

  const auto ranks = static_cast<std::size_t>(job.size());
  const std::vector<std::int64_t> sizes(std::begin(kSizes), std::end(kSizes));
  for (std::size_t turn = 0; turn < sizes.size(); ++turn) {
    std::vector<std::int64_t> rows(ranks);
    std::vector<std::vector<std::int64_t>> sent(ranks, std::vector<std::int64_t>(ranks));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      rows[rank] = sizes[(rank + turn) % sizes.size()];
      for (std::size_t to = 0; to < ranks; ++to) {
        sent[rank][to] = sizes[(rank * 3 + to + turn) % sizes.size()];
      }
    }
    for (const DType dtype : {DType::kI8, DType::kF16, DType::kF32, DType::kU64}) {
      add_allgather(job, dtype, rows);
      add_all_to_all(job, dtype, sent);
    }
    // Every rank sends the same number of rows, which may be none.
    const std::vector<std::int64_t> even(ranks, sizes[turn]);
    add_allgather(job, DType::kU16, even);
    add_all_to_all(job, DType::kU16, {ranks, even}, /*told=*/false);
  }
  std::vector<std::int64_t> rows(ranks, 0);
  rows.back() = kLargeBytes / 8;
  add_allgather(job, DType::kF64, rows);
  add_all_to_all(job, DType::kF64, {ranks, rows});
}

void add_reduce_scatters(JobOfCases& job) {
  const auto ranks = static_cast<std::size_t>(job.size());
  bool in_place = false;
  for (const auto& type : ronde::base::kDTypes) {
    const DType dtype = type.dtype;
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin}) {
      if (!ronde::base::is_defined(dtype, op)) continue;
      for (const std::int64_t elements : kSizes) {
        in_place = !in_place;
        add_reduce_scatter(job, {.dtype = dtype, .op = op}, elements, {}, in_place);
      }
      std::vector<std::int64_t> splits(ranks);
      std::iota(splits.begin(), splits.end(), 0);  // nothing for the first
      splits.back() += kSome;
      const std::int64_t all = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
      add_reduce_scatter(job, {.dtype = dtype, .op = op}, all, splits, in_place);
    }
  }
  add_reduce_scatter(job, {.op = ReduceOp::kAverage, .prescale = 0.3}, kSome, {}, true);
  for (const auto compression : {ronde::base::Compression::kF16, ronde::base::Compression::kBf16}) {
    add_reduce_scatter(job, {.op = ReduceOp::kAverage, .compression = compression}, kSome, {},
                       false);
  }
  add_reduce_scatter(job, {}, kLargeBytes / 16, {}, true);
}

std::vector<CasePtr> make_cases(const ronde::Engine& engine, const Settings& settings) {
  JobOfCases job(engine, hosts_of(settings.leaders), settings.seed);
  add_allreduces(job);
  add_scaled(job);
  add_allreduce(job, {}, kLargeBytes / 4, true);
  add_allreduce(job, {.dtype = DType::kBf16, .op = ReduceOp::kAverage}, kLargeBytes / 8, false);
  for (const std::int64_t elements : kSizes) add_allreduce_on_board(job, elements);
  add_allreduce_on_board(job, kLargeBytes / 16);
  add_grouped_allreduce(job, {.op = ReduceOp::kSum}, {7, 0, kSome, 1});
  add_grouped_allreduce(job, {.op = ReduceOp::kAverage, .prescale = 0.3}, {0, 0});
  add_grouped_allreduce(job, {.op = ReduceOp::kMax}, {100'000, 1});
  add_moves(job);
  add_reduce_scatters(job);
  return job.take();
}

// All of them in flight together, in an order that no two ranks and no two rounds share.
void run_round(ronde::Engine& engine, const std::vector<CasePtr>& cases, std::uint64_t round) {
  std::vector<std::size_t> order(cases.size());
  std::iota(order.begin(), order.end(), 0U);
  std::mt19937_64 random(round * 100 + static_cast<std::uint64_t>(engine.rank()));
  std::shuffle(order.begin(), order.end(), random);
  std::vector<ronde::Work> works(cases.size());
  for (const std::size_t i : order) {
    cases[i]->prepare();
    works[i] = cases[i]->submit(engine);
  }
  std::shuffle(order.begin(), order.end(), random);
  for (const std::size_t i : order) {
    works[i].wait();
    const std::string wrong = cases[i]->check(works[i]);
    if (wrong.empty()) continue;
    throw std::runtime_error("rank " + std::to_string(engine.rank()) + ", round " +
                             std::to_string(round) + ": " + cases[i]->name() + ": " + wrong);
  }
}

// The clock is the same for every process of the machine, in whichever network namespace.
std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// Returns only when all ranks have called it.
void check_barrier(ronde::Engine& engine) {
  for (int late = 0; late < engine.size(); ++late) {
    if (engine.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    std::int64_t came = now_ns();
    engine.barrier_blocking();
    std::int64_t left = now_ns();
    engine.allreduce_blocking("came", std::span(&came, 1), ronde::max);
    engine.allreduce_blocking("left", std::span(&left, 1), ronde::min);
    if (left < came) {
      throw std::runtime_error("a rank left the barrier " + std::to_string(came - left) +
                               " ns before the last, rank " + std::to_string(late) + ", had come");
    }
  }
}

void run(const Settings& settings) {
  std::vector<CasePtr> cases;  // their memory outlives the engine
  ronde::Engine engine;
  if (std::cmp_not_equal(settings.leaders.size(), engine.size())) {
    throw std::invalid_argument("leaders= is not of " + std::to_string(engine.size()) + " ranks");
  }
  if (engine.rank() == 0) std::puts(engine.describe().c_str());
  cases = make_cases(engine, settings);
  constexpr std::uint64_t kRounds = 2;  // by name, then by the plan
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    run_round(engine, cases, round);
    check_barrier(engine);
  }
  const ronde_statistics statistics = engine.statistics();
  if (statistics.planned_requests == 0 || statistics.batches >= statistics.tensors) {
    throw std::runtime_error("the plan or the batches were never used");
  }
  const int rank = engine.rank();
  engine.close();
  std::uint64_t bits = 0;
  for (const CasePtr& one : cases) bits = bits * 31 + one->bits();
  std::printf("rank %d has the bits %016" PRIx64 "\n", rank, bits);
  std::printf("%zu operations are right\n", kRounds * cases.size());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parse(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "operations_worker: %s\n", error.what());
    return 1;
  }
}
