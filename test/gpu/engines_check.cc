// SPDX-License-Identifier: Apache-2.0
// Whole engines with a plug-in, each in a process of its own: every operation on tensors of the
// device, in the order of streams, over NCCL and through host memory; and what the others hear when
// a rank dies.
//   gpu_engines <plug-in> [case]...
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/process/environment.h"
#include "test/gpu/engine_rank.h"

namespace ronde::gpu_test {
namespace {

using base::ReduceOp;
using runtime::Operation;
using runtime::Submission;

void check_reductions(EngineRank& rank) {
  for (const std::size_t elements : {1U, 1000U, 300'000U, 2'000'000U}) {
    const Tensor tensor(rank.kit(), contribution(rank.rank(), elements));
    rank.run(allreduce_of("sum of " + std::to_string(elements), tensor));
    rank.expect(tensor.values() == summed(rank.size(), elements),
                "sums of " + std::to_string(elements));
  }
  const Floats mine = contribution(rank.rank(), 500);
  for (const auto& [op, expected] : std::map<ReduceOp, float>{
           {ReduceOp::kMax, static_cast<float>(rank.size())},
           {ReduceOp::kMin, 1.0F},
           {ReduceOp::kAverage, 0.5F * static_cast<float>(rank.size() + 1)}}) {
    const Tensor tensor(rank.kit(), Floats(500, static_cast<float>(rank.rank() + 1)));
    Submission submission = allreduce_of("op " + std::to_string(static_cast<int>(op)), tensor);
    submission.signature.op = op;
    rank.run(std::move(submission));
    // An average of three may be rounded once for each rank.
    bool right = true;
    for (const float value : tensor.values()) right = right && std::abs(value - expected) < 1e-5F;
    rank.expect(right, "min, max and average");
  }
  const Tensor input(rank.kit(), mine);
  const Tensor output(rank.kit(), Floats(500));
  Submission scaled =
      device_vector("scaled", Operation::kAllreduce, 500, input.get(), output.get());
  scaled.signature.prescale = 2;
  scaled.signature.postscale = 0.5;
  scaled.signature.compression = base::Compression::kBf16;
  rank.run(std::move(scaled));
  rank.expect(output.values() == summed(rank.size(), 500), "scaled and compressed");
  rank.expect(input.values() == mine, "the input of a call out of place");

  std::vector<std::unique_ptr<Tensor>> tensors;
  std::vector<Submission> members;
  for (const std::size_t elements : {3U, 0U, 400'000U, 70U}) {
    tensors.push_back(std::make_unique<Tensor>(rank.kit(), contribution(rank.rank(), elements)));
    members.push_back(allreduce_of("member " + std::to_string(elements), *tensors.back()));
  }
  auto group = runtime::group_of(std::move(members));
  if (rank.expect(group.status(), "a group")) rank.run(*std::move(group));
  for (const auto& tensor : tensors) {
    rank.expect(tensor->values() == summed(rank.size(), tensor->values().size()), "a group");
  }
}

void check_moves(EngineRank& rank) {
  const int me = rank.rank();
  const int size = rank.size();
  const auto length = [](int of) { return static_cast<std::size_t>(of == 1 ? 0 : 100 + 37 * of); };

  const Tensor told(rank.kit(), contribution(me, 777));
  Submission broadcast =
      device_vector("broadcast", Operation::kBroadcast, 777, nullptr, told.get());
  broadcast.signature.root = size - 1;
  rank.run(std::move(broadcast));
  rank.expect(told.values() == contribution(size - 1, 777), "broadcast");

  const Tensor mine(rank.kit(), contribution(me, length(me)));
  const auto gathered = rank.run(
      device_vector("allgather", Operation::kAllgather, mine.elements(), mine.get(), nullptr));
  Floats all;
  for (int of = 0; of < size; ++of) {
    const Floats one = contribution(of, length(of));
    all.insert(all.end(), one.begin(), one.end());
  }
  if (gathered != nullptr) rank.expect(output_of(rank, *gathered) == all, "allgather");

  const std::size_t share = 50;
  const auto whole = static_cast<std::size_t>(size) * share;
  const Tensor vector(rank.kit(), contribution(me, whole));
  const Tensor part(rank.kit(), Floats(share));
  rank.run(device_vector("reduce-scatter", Operation::kReduceScatter, vector.elements(),
                         vector.get(), part.get()));
  const Floats sum = summed(size, whole);
  const auto first = sum.begin() + static_cast<std::ptrdiff_t>(share) * me;
  rank.expect(part.values() == Floats(first, first + static_cast<std::ptrdiff_t>(share)),
              "reduce-scatter");

  const auto exchanged = rank.run(
      device_vector("all-to-all", Operation::kAllToAll, vector.elements(), vector.get(), nullptr));
  Floats expected;
  for (int from = 0; from < size; ++from) {
    const Floats theirs = contribution(from, whole);
    const auto begin = theirs.begin() + static_cast<std::ptrdiff_t>(share) * me;
    expected.insert(expected.end(), begin, begin + static_cast<std::ptrdiff_t>(share));
  }
  if (exchanged != nullptr) rank.expect(output_of(rank, *exchanged) == expected, "all-to-all");

  Submission barrier;
  barrier.name = "barrier";
  barrier.signature.operation = Operation::kDeviceBarrier;
  barrier.signature.device = 0;
  rank.run(std::move(barrier));
}

// What is submitted behind a slow stream, and what another stream does behind the work.
void check_streams(EngineRank& rank) {
  const ronde_device_kit& kit = rank.kit();
  void* const before = kit.make_stream();
  void* const after = kit.make_stream();
  const Tensor source(kit, contribution(rank.rank(), 500));
  for (const bool with_event : {false, true}) {
    const Tensor tensor(kit, Floats(500, -1000));
    const Tensor seen(kit, Floats(500));
    kit.delay(before, 200);
    kit.copy(before, tensor.get(), source.get(), tensor.bytes());
    void* const event = with_event ? kit.make_event(before) : nullptr;
    const auto work = rank.submit(allreduce_of("behind a stream", tensor, before, event));
    // Both are the caller's again.
    kit.delay(before, 10);
    if (event != nullptr) {
      kit.record_event(event, before);
      kit.free_event(event);
    }
    if (work == nullptr) break;
    rank.expect(rank.engine().let_stream_wait(*work, after), "a stream waits");
    // Through host memory it is the host that waits.
    rank.expect(work->completion.done() != rank.direct(),
                rank.direct() ? "the host does not wait" : "it goes through host memory");
    kit.copy(after, seen.get(), tensor.get(), tensor.bytes());
    kit.synchronize(after);
    rank.expect(seen.values() == summed(rank.size(), 500), "what the stream sees");
    rank.expect(rank.engine().wait(*work), "the host waits");
  }
  kit.synchronize(before);
  kit.free_stream(before);
  kit.free_stream(after);
}

// As a trainer: many tensors, in another order on every rank, step after step.
void check_steps(EngineRank& rank) {
  constexpr std::size_t kTensors = 40;
  void* const stream = rank.kit().make_stream();
  for (int step = 0; step < 5; ++step) {
    std::vector<std::unique_ptr<Tensor>> tensors(kTensors);
    std::vector<runtime::Engine::WorkPtr> works;
    for (std::size_t k = 0; k < kTensors; ++k) {
      const std::size_t i = (k * 7 + static_cast<std::size_t>(rank.rank()) * 13) % kTensors;
      tensors[i] = std::make_unique<Tensor>(rank.kit(), contribution(rank.rank() + step, 100 * i));
      works.push_back(rank.submit(allreduce_of("t" + std::to_string(i), *tensors[i], stream)));
    }
    for (const auto& work : works) {
      if (work != nullptr) rank.expect(rank.engine().wait(*work), "a step");
    }
    for (std::size_t i = 0; i < kTensors; ++i) {
      Floats expected(100 * i);
      for (int of = 0; of < rank.size(); ++of) {
        const Floats one = contribution(of + step, 100 * i);
        for (std::size_t e = 0; e < one.size(); ++e) expected[e] += one[e];
      }
      rank.expect(tensors[i]->values() == expected, "values of a step");
    }
  }
  rank.kit().free_stream(stream);
}

void check_all(EngineRank& rank) {
  check_reductions(rank);
  check_moves(rank);
  check_streams(rank);
  check_steps(rank);
}

// Rank 0 is killed; in_flight: when its part has been submitted and its stream holds it back, so
// that the others are in the middle of it.
void check_death(EngineRank& rank, bool in_flight) {
  const ronde_device_kit& kit = rank.kit();
  const Tensor tensor(kit, contribution(rank.rank(), 2'000'000));
  rank.run(allreduce_of("while all live", tensor));
  void* const stream = kit.make_stream();
  (void)rank.meeting().meet(rank.size());
  if (rank.rank() == 0) {
    if (in_flight) {
      kit.delay(stream, 3000);
      (void)rank.submit(allreduce_of("without rank 0", tensor, stream));
      ::usleep(150'000);
    }
    ::_exit(kMeantToDie);
  }
  const auto begin = std::chrono::steady_clock::now();
  // Who has heard of it already refuses the tensor.
  const auto work = rank.engine().submit(allreduce_of("without rank 0", tensor, stream));
  const base::Status status = work.ok() ? rank.engine().wait(**work) : work.status();
  rank.expect(!status.ok(), "a tensor without rank 0 fails");
  rank.expect(status.message().find("rank 0") != std::string::npos,
              "the error names rank 0: " + status.message());
  // Nobody is left in a kernel, and closing ends.
  kit.synchronize(stream);
  (void)rank.engine().close();
  rank.expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20), "in time");
}
void check_death_before(EngineRank& rank) { check_death(rank, false); }
void check_death_in_flight(EngineRank& rank) { check_death(rank, true); }

enum class End { kClosed, kDead };

using Check = void (*)(EngineRank&);
Case make_case(const char* library, const SharedBoard& shared, const std::string& name, int ranks,
               Sharing sharing, Check check, End end) {
  return {name, ranks, sharing, [=](int rank, int size, Meeting& meeting) {
            EngineRank me(library, shared, rank, size, sharing, meeting);
            if (!me.is_open()) return 1;
            check(me);
            if (end == End::kClosed) me.close();
            return me.wrong() == 0 ? 0 : 1;
          }};
}

int run(const char* library, std::span<char* const> only) {
  const auto config = base::Config::from_environment(base::process_environment());
  if (!config.ok()) {
    std::printf("%s\n", config.status().message().c_str());
    return 1;
  }
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, int ranks, Sharing sharing, Check check, End end) {
    const auto shared = SharedBoard::create(ranks, *config);
    if (shared.ok()) {
      cases.push_back(make_case(library, *shared, name, ranks, sharing, check, end));
    } else {
      std::printf("%s\n", shared.status().message().c_str());
    }
    return shared.ok();
  };
  const auto add_both = [&](const std::string& path, Sharing sharing, int ranks) {
    const std::string of = path + "_" + std::to_string(ranks);
    return add("engine_" + of, ranks, sharing, check_all, End::kClosed) &&
           add("engine_death_" + of, ranks, sharing, check_death_before, End::kDead) &&
           add("engine_death_in_flight_" + of, ranks, sharing, check_death_in_flight, End::kDead);
  };
  const bool made = add("engine_1", 1, Sharing::kNccl, check_all, End::kClosed) &&
                    add_both("nccl", Sharing::kNccl, 2) && add_both("nccl", Sharing::kNccl, 3) &&
                    add_both("staged", Sharing::kStaged, 2) &&
                    add_both("staged", Sharing::kStaged, 4);
  return made ? run_cases(cases, only, has_device) : 1;
}

}  // namespace
}  // namespace ronde::gpu_test

int main(int argc, char** argv) {
  if (argc < 2) {
    std::printf("usage: gpu_engines <plug-in> [case]...\n");
    return 2;
  }
  return ronde::gpu_test::run(argv[1], std::span(argv, static_cast<std::size_t>(argc)).subspan(2));
}
