// SPDX-License-Identifier: Apache-2.0
// The plug-in alone on one real GPU; gpu_engines has the values. 1 rank; 2 and 3 ranks over NCCL,
// each with a host id of its own, so that NCCL does not see that they share the device; 2 and 4
// that stage; ranks that die or give up.
//   gpu_ranks <libronde_cuda.so> [case]...
#include <vector>

#include "test/gpu/cuda.h"
#include "test/gpu/ranks.h"

namespace ronde::gpu_test {
namespace {

using device_test::Batch;
using device_test::Device;
using device_test::DeviceMemory;
using device_test::DeviceStream;
using device_test::MarkOwner;

constexpr std::size_t kLarge = 700'001;  // f32: not packed

// What a batch waits for, and who waits for a batch.
void check_order(PluginRank& rank) {
  const ronde_device_kit& kit = *Device::instance().kit;
  const DeviceStream before;
  const DeviceStream after;
  for (const bool with_event : {false, true}) {
    const DeviceMemory source(device_test::contribution(rank.rank(), 500));
    const DeviceMemory memory(std::vector<float>(500, -1000));
    const DeviceMemory seen(std::vector<float>(500));
    before.delay(30);
    before.copy(memory, source);
    void* const event = with_event ? kit.make_event(before.get()) : nullptr;
    const MarkOwner ready(rank, before.get(), event);
    ronde_plugin_work* const work = rank.execute(Batch().add(memory, 500, ready.get()).get());
    const int rings = rank.rings();
    rank.expect(rank.poll(work) == RONDE_PLUGIN_PENDING, "behind its stream");
    rank.expect(rank.wait_on(work, after.get()) == RONDE_PLUGIN_OK, "wait_on: " + rank.text());
    after.copy(seen, memory);
    kit.synchronize(after.get());
    rank.expect(seen.values<float>() == device_test::summed(rank.size(), 500),
                "a stream that waits");
    rank.expect(rank.finish(work) == RONDE_PLUGIN_OK, "finish: " + rank.text());
    ::usleep(20'000);
    rank.expect(rank.rings() > rings, "the doorbell");
    if (with_event) kit.free_event(event);
  }
}

void check_pointers(PluginRank& rank) {
  const ronde_device_kit& kit = *Device::instance().kit;
  const DeviceMemory device(40);
  const DeviceMemory managed(64, true);
  void* pinned = nullptr;
  (void)good(cudaMallocHost(&pinned, 64), "pinned");
  const float host = 0;
  rank.expect(rank.kind_of(device.get()) == RONDE_MEMORY_DEVICE, "device memory");
  rank.expect(rank.kind_of(managed.get()) == RONDE_MEMORY_MANAGED, "managed memory");
  rank.expect(rank.kind_of(pinned) == RONDE_MEMORY_HOST, "pinned memory");
  rank.expect(rank.kind_of(&host) == RONDE_MEMORY_HOST, "host memory");
  (void)cudaFreeHost(pinned);
  const DeviceStream stream;
  rank.expect(rank.check_stream(stream.get()) == RONDE_PLUGIN_OK, "a stream");
  kit.begin_capture(stream.get());
  rank.expect(rank.check_stream(stream.get()) == RONDE_PLUGIN_INVALID, "a stream under capture");
  kit.end_capture(stream.get());
}

void check_all(PluginRank& rank) {
  if (!rank.has_collectives()) return;
  if (rank.size() == 1) std::printf("result versions=%s\n", rank.info().versions);
  check_order(rank);
  check_pointers(rank);
}

void check_staged(PluginRank& rank) {
  const bool staged = rank.opened() == RONDE_PLUGIN_OK && rank.info().has_collectives == 0;
  if (rank.expect(staged, "staged")) check_pointers(rank);
}

// Rank 0 is gone, before it has come or while it is in the kernel; the others wait for it in a
// kernel, until they are told.
void check_death(PluginRank& rank, bool in_kernel) {
  if (!rank.has_collectives()) return;
  const DeviceMemory memory(std::vector<float>(kLarge, 1));
  Batch batch;
  rank.expect(rank.run(batch.add(memory, kLarge)), "a batch while all live: " + rank.text());
  (void)rank.meeting().meet(rank.size());
  const DeviceStream late;
  if (rank.rank() == 0) {
    if (in_kernel) {
      late.delay(50);
      (void)rank.execute(Batch().add(memory, kLarge, rank.mark(late.get())).get());
      ::usleep(60'000);
    }
    ::_exit(kMeantToDie);
  }
  ronde_plugin_work* const work = rank.execute(batch.get());
  ::usleep(200'000);
  const auto begin = std::chrono::steady_clock::now();
  rank.plugin().abort(rank.engine(), "rank 0 is dead");
  rank.expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(1), "abort is fast");
  const auto status = rank.finish(work);
  // In the kernel rank 0 may have given all it had to give.
  rank.expect(status == RONDE_PLUGIN_FAILED || (in_kernel && status == RONDE_PLUGIN_OK),
              "a batch without rank 0 fails");
  rank.expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5), "in time");
}
void check_death_before(PluginRank& rank) { check_death(rank, false); }
void check_death_in_kernel(PluginRank& rank) { check_death(rank, true); }

// Nobody dies, and rank 0 does not come: all are told, and all can still close.
void check_abort(PluginRank& rank) {
  if (!rank.has_collectives()) return;
  const DeviceMemory memory(std::vector<float>(kLarge, 1));
  const DeviceMemory more(std::vector<float>(100, 1));
  ronde_plugin_work* work = nullptr;
  ronde_plugin_work* second = nullptr;
  if (rank.rank() != 0) {
    work = rank.execute(Batch().add(memory, kLarge).get());
    second = rank.execute(Batch().add(more, 100).get());
  }
  ::usleep(200'000);
  (void)rank.meeting().meet(rank.size());
  const auto begin = std::chrono::steady_clock::now();
  rank.plugin().abort(rank.engine(), "a test ends the job");
  if (rank.rank() != 0) {
    rank.expect(rank.finish(work) == RONDE_PLUGIN_FAILED, "a batch that was aborted fails");
    rank.expect(rank.finish(second) == RONDE_PLUGIN_FAILED, "and the one behind it");
  }
  // Nothing of the job is left in the device's queues.
  rank.expect(good(cudaDeviceSynchronize(), "the device"), "the device goes on");
  rank.expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5), "in time");
}

}  // namespace
}  // namespace ronde::gpu_test

int main(int argc, char** argv) {
  using namespace ronde::gpu_test;
  const std::vector<Case> cases{
      plugin_case("one_rank", 1, Sharing::kNccl, check_all),
      plugin_case("two_ranks_nccl", 2, Sharing::kNccl, check_all),
      plugin_case("three_ranks_nccl", 3, Sharing::kNccl, check_all),
      plugin_case("two_ranks_staged", 2, Sharing::kStaged, check_staged),
      plugin_case("four_ranks_staged", 4, Sharing::kStaged, check_staged),
      plugin_case("death_of_two", 2, Sharing::kNccl, check_death_before),
      plugin_case("death_of_three", 3, Sharing::kNccl, check_death_before),
      plugin_case("death_in_kernel_of_two", 2, Sharing::kNccl, check_death_in_kernel),
      plugin_case("death_in_kernel_of_three", 3, Sharing::kNccl, check_death_in_kernel),
      plugin_case("abort_of_one", 1, Sharing::kNccl, check_abort),
      plugin_case("abort_of_two", 2, Sharing::kNccl, check_abort),
      plugin_case("abort_of_three", 3, Sharing::kNccl, check_abort),
  };
  return run_program({argv, static_cast<std::size_t>(argc)}, cases, has_gpu);
}
