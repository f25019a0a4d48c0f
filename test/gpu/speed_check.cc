// SPDX-License-Identifier: Apache-2.0
// What the plug-in costs on one GPU, each beside its yardstick in the same run:
//   - pack and unpack (pack_speed.cc);
//   - the host's time for a batch;
//   - an allreduce against a bare ncclAllReduce of the same bytes, on one rank and on two.
//   gpu_speed <libronde_cuda.so> [case]...
// Every number is a line "result name=value"; times are the shortest of some runs where only the
// device works, and medians where the host does.
#include <nccl.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <vector>

#include "collectives/cuda/nccl_api.h"
#include "test/gpu/cuda.h"
#include "test/gpu/ranks.h"
#include "test/gpu/speed.h"

namespace ronde::gpu_test {
namespace {

using device_test::Batch;
using device_test::DeviceMemory;
using device_test::MarkOwner;
using Clock = std::chrono::steady_clock;

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// ---- the host's time ----

// The gradients of a model as one batch, time after time, as a trainer has them.
void measure_host(PluginRank& rank, const std::string& model) {
  std::deque<DeviceMemory> memory;
  for (const std::size_t elements : sizes_of_model(model, false)) {
    memory.emplace_back(std::vector<float>(elements));
  }
  cudaStream_t stream = nullptr;
  (void)good(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  std::vector<double> marking;
  std::vector<double> executing;
  std::vector<double> whole;
  for (int i = 0; i < 60; ++i) {
    const auto begin = Clock::now();
    Batch batch;
    batch.batch.op = device_test::kAverage;
    std::deque<MarkOwner> marks;
    for (const auto& each : memory) {
      batch.add(each, each.bytes() / sizeof(float), marks.emplace_back(rank, stream).get());
    }
    const double marked = seconds_since(begin);
    ronde_plugin_work* const work = rank.execute(batch.get());
    const double executed = seconds_since(begin);
    rank.expect(rank.finish(work) == RONDE_PLUGIN_OK, "a batch of " + model);
    if (i < 10) continue;
    marking.push_back(marked);
    executing.push_back(executed - marked);
    whole.push_back(seconds_since(begin));
  }
  (void)cudaStreamDestroy(stream);
  print("host_" + model + "_tensors", static_cast<double>(memory.size()), "%.0f");
  print_us("host_" + model + "_marks", median_of(marking));
  print_us("host_" + model + "_execute", median_of(executing));
  print_us("host_" + model + "_until_over", median_of(whole));
}

// ---- over a bare ncclAllReduce ----

// Thread safety: one thread.
class BareNccl {
 public:
  explicit BareNccl(PluginRank& rank) : rank_(rank) {
    const auto api = collectives::cuda::load_nccl();
    if (!rank.expect(api.ok(), api.status().message())) return;
    api_ = *api;
    ncclUniqueId id{};
    if (rank.rank() == 0) check(api_.get_unique_id(&id), "ncclGetUniqueId");
    std::vector<ncclUniqueId> all(static_cast<std::size_t>(rank.size()));
    rank.expect(rank.meeting().allgather(rank.rank(), rank.size(), &id, sizeof id, all.data()),
                "telling the id");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    check(
        api_.comm_init_rank_config(&communicator_, rank.size(), all.front(), rank.rank(), &config),
        "ncclCommInitRankConfig");
  }
  BareNccl(const BareNccl&) = delete;
  BareNccl& operator=(const BareNccl&) = delete;
  ~BareNccl() {
    if (communicator_ != nullptr) (void)api_.comm_destroy(communicator_);
  }
  [[nodiscard]] bool is_open() const { return communicator_ != nullptr; }
  void allreduce(void* memory, std::size_t elements, cudaStream_t stream) {
    check(api_.all_reduce(memory, memory, elements, ncclFloat, ncclSum, communicator_, stream),
          "ncclAllReduce");
  }

 private:
  void check(ncclResult_t result, const char* doing) { rank_.expect(result == ncclSuccess, doing); }

  PluginRank& rank_;
  collectives::cuda::NcclApi api_;
  ncclComm_t communicator_ = nullptr;
};

// From the host's call until the stream that waits for the result is over, of both in turns.
void measure_overhead(PluginRank& rank) {
  if (!rank.has_collectives()) return;
  BareNccl bare(rank);
  if (!bare.is_open()) return;
  const Stopwatch watch;
  const auto finish = [&] { (void)good(cudaStreamSynchronize(watch.stream()), "running"); };
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{64} << 10, std::size_t{1} << 20,
                                  std::size_t{16} << 20, std::size_t{64} << 20}) {
    const std::size_t elements = bytes / sizeof(float);
    const DeviceMemory memory{std::vector<float>(elements)};
    std::vector<double> alone;
    std::vector<double> through;
    const int runs = bytes > (4U << 20U) ? 20 : 50;
    for (int i = 0; i < runs + 5; ++i) {
      (void)rank.meeting().meet(rank.size());
      auto begin = Clock::now();
      bare.allreduce(memory.get(), elements, watch.stream());
      finish();
      if (i >= 5) alone.push_back(seconds_since(begin));
      (void)rank.meeting().meet(rank.size());
      begin = Clock::now();
      const MarkOwner ready(rank, watch.stream());
      ronde_plugin_work* const work =
          rank.execute(Batch().add(memory, elements, ready.get()).get());
      rank.expect(rank.wait_on(work, watch.stream()) == RONDE_PLUGIN_OK, "wait_on");
      finish();
      if (i >= 5) through.push_back(seconds_since(begin));
      rank.expect(rank.finish(work) == RONDE_PLUGIN_OK, "an allreduce");
    }
    if (rank.rank() != 0) continue;
    const std::string name = "allreduce_of_" + std::to_string(rank.size()) + "_ranks_" +
                             std::to_string(bytes) + "_bytes";
    print_us(name + "_bare_nccl", median_of(alone));
    print_us(name + "_plugin", median_of(through));
    print_us(name + "_overhead", median_of(through) - median_of(alone));
  }
}

void measure_hosts(PluginRank& rank) {
  if (rank.engine() == nullptr) return;
  measure_host(rank, "resnet50");
  measure_host(rank, "gpt2");
}

}  // namespace
}  // namespace ronde::gpu_test

int main(int argc, char** argv) {
  using namespace ronde::gpu_test;
  const std::vector<Case> cases{
      {"speed_pack", 1, Sharing::kNccl, [](int, int, Meeting&) { return measure_packs(); }},
      plugin_case("speed_host", 1, Sharing::kNccl, measure_hosts),
      plugin_case("speed_allreduce_1", 1, Sharing::kNccl, measure_overhead),
      plugin_case("speed_allreduce_2", 2, Sharing::kNccl, measure_overhead),
  };
  return run_program({argv, static_cast<std::size_t>(argc)}, cases, has_gpu);
}
