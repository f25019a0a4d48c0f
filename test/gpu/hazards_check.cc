// SPDX-License-Identifier: Apache-2.0
// What the program's own work on a real GPU may do to the plug-in, and the plug-in to it: streams
// that stand still, callbacks that sleep, a kernel that breaks the device, a rank that does not
// come to hundreds of batches.
//   gpu_hazards <libronde_cuda.so> [case]...
#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "test/gpu/cuda.h"
#include "test/gpu/hold.h"
#include "test/gpu/ranks.h"

namespace ronde::gpu_test {
namespace {

using device_test::Batch;
using device_test::Device;
using device_test::DeviceMemory;
using device_test::DeviceStream;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

cudaStream_t stream_of(const DeviceStream& stream) {
  return static_cast<cudaStream_t>(stream.get());
}

// Streams of the program's that stand still until this lets them go. Thread safety: one thread.
class HeldStreams {
 public:
  explicit HeldStreams(std::size_t count) : streams_(count) {
    (void)good(cudaMallocHost(reinterpret_cast<void**>(&go_), sizeof *go_), "pinned memory");
    *go_ = 0;
    for (const DeviceStream& stream : streams_) hold(go_, stream_of(stream));
  }
  HeldStreams(const HeldStreams&) = delete;
  HeldStreams& operator=(const HeldStreams&) = delete;
  ~HeldStreams() {
    let_go();
    streams_.clear();
    (void)cudaFreeHost(go_);
  }
  void let_go() const { *const_cast<volatile int*>(go_) = 1; }
  [[nodiscard]] const std::deque<DeviceStream>& streams() const { return streams_; }

 private:
  int* go_ = nullptr;
  std::deque<DeviceStream> streams_;
};

// Rank 0 does not come to more batches than a stream of CUDA takes before launches block.
void check_many_batches(PluginRank& rank) {
  if (!rank.has_collectives()) return;
  constexpr int kBatches = 400;
  const DeviceMemory memory(std::vector<float>(300'000, 1));
  std::vector<ronde_plugin_work*> works;
  if (rank.rank() != 0) {
    for (int i = 0; i < kBatches; ++i) {
      works.push_back(rank.execute(Batch().add(memory, 300'000).get()));
    }
  }
  ::usleep(500'000);
  (void)rank.meeting().meet(rank.size());
  const auto begin = Clock::now();
  rank.plugin().abort(rank.engine(), "a test ends the job");
  const double aborted = seconds_since(begin);
  int failed = 0;
  for (ronde_plugin_work* const work : works) {
    failed += rank.finish(work) == RONDE_PLUGIN_FAILED ? 1 : 0;
  }
  const double finished = seconds_since(begin);
  rank.expect(good(cudaDeviceSynchronize(), "the device"), "the device goes on");
  if (rank.rank() != 0) {
    std::printf("result abort_of_%d_batches_seconds=%.3f %.3f %.3f\n", kBatches, aborted, finished,
                seconds_since(begin));
  }
  rank.expect(static_cast<std::size_t>(failed) == works.size(), "all batches fail");
  rank.expect(aborted < 1, "abort is fast");
  rank.expect(seconds_since(begin) < 5, "in time");
}

// While batches wait for a rank, the program's other streams go on.
void check_queues(PluginRank& rank) {
  if (!rank.has_collectives()) return;
  constexpr std::size_t kStreams = 16;
  const DeviceMemory memory(std::vector<float>(300'000, 1));
  const DeviceMemory small(kStreams * sizeof(int));
  std::deque<DeviceStream> streams(kStreams);
  std::array<cudaEvent_t, kStreams> events{};
  for (cudaEvent_t& event : events) {
    (void)good(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
  }
  Batch warm;
  rank.expect(rank.run(warm.add(memory, 300'000)), "a first batch");
  (void)rank.meeting().meet(rank.size());
  if (rank.rank() == 0) ::usleep(500'000);
  ronde_plugin_work* const work = rank.execute(Batch().add(memory, 300'000).get());
  if (rank.rank() != 0) {
    ::usleep(50'000);
    for (std::size_t i = 0; i < kStreams; ++i) {
      (void)cudaMemsetAsync(static_cast<int*>(small.get()) + i, 1, sizeof(int),
                            stream_of(streams[i]));
      (void)cudaEventRecord(events[i], stream_of(streams[i]));
    }
    ::usleep(100'000);
    const auto is_over = [](cudaEvent_t event) { return cudaEventQuery(event) == cudaSuccess; };
    const auto over = std::ranges::count_if(events, is_over);
    std::printf("result streams_that_go_on=%td\n", over);
    rank.expect(rank.poll(work) == RONDE_PLUGIN_PENDING, "the batch waits for rank 0");
    rank.expect(over == kStreams, "the program's streams go on");
  }
  rank.expect(rank.finish(work) == RONDE_PLUGIN_OK, "the batch");
  for (const cudaEvent_t event : events) (void)cudaEventDestroy(event);
}

// Memory for a result comes while the program's streams stand still.
void check_allocation(PluginRank& rank) {
  const HeldStreams held(16);
  const auto begin = Clock::now();
  void* memory = nullptr;
  std::int32_t device = -1;
  std::array<char, 256> text{};
  const auto status =
      rank.plugin().allocate(rank.engine(), 1 << 20, &memory, &device, text.data(), text.size());
  std::printf("result allocation_seconds=%.4f\n", seconds_since(begin));
  rank.expect(status == RONDE_PLUGIN_OK, text.data());
  rank.expect(seconds_since(begin) < 1, "memory at once");
  held.let_go();
  rank.plugin().free(device, memory);
}

// A stream that does not wait for the default stream still reads a result that has been freed.
void check_freed_result(PluginRank& rank) {
  std::array<char, 256> text{};
  std::int32_t device = -1;
  const auto allocate = [&] {
    void* memory = nullptr;
    const auto status =
        rank.plugin().allocate(rank.engine(), 1 << 20, &memory, &device, text.data(), text.size());
    rank.expect(status == RONDE_PLUGIN_OK, text.data());
    return memory;
  };
  const HeldStreams held(1);
  void* const first = allocate();
  rank.plugin().free(device, first);
  void* const second = allocate();
  std::printf("result freed_memory_is_given_at_once=%s\n", first == second ? "yes" : "no");
  held.let_go();
  rank.plugin().free(device, second);
}

// A host function that sleeps, in a stream that has nothing to do with the batch.
void check_callbacks(PluginRank& rank) {
  if (!rank.has_collectives()) return;
  const DeviceMemory memory(std::vector<float>(100, 1));
  Batch warm;
  rank.expect(rank.run(warm.add(memory, 100)), "a first batch");
  const DeviceStream elsewhere;
  elsewhere.delay(2000);
  ::usleep(20'000);
  const int before = rank.rings();
  const auto begin = Clock::now();
  ronde_plugin_work* const work = rank.execute(Batch().add(memory, 100).get());
  // Asks only when the bell has rung, as the engine does.
  int seen = before;
  while (seconds_since(begin) < 3) {
    if (rank.rings() != seen) {
      seen = rank.rings();
      if (rank.poll(work) == RONDE_PLUGIN_OK) break;
    }
    std::this_thread::yield();
  }
  const double seconds = seconds_since(begin);
  if (rank.rank() == 0) {
    std::printf("result bell_of_%d_beside_a_callback_that_sleeps_seconds=%.4f\n", rank.size(),
                seconds);
  }
  rank.expect(seconds < 0.5, "the bell rings beside a callback that sleeps");
  rank.expect(rank.finish(work) == RONDE_PLUGIN_OK, "the batch");
}

// The program's own kernel has written where nothing is: the error says that, in CUDA's words.
void check_broken_device(PluginRank& rank) {
  const DeviceMemory memory(std::vector<float>(100, 1));
  const DeviceStream stream;
  break_device(stream_of(stream));
  (void)cudaStreamSynchronize(stream_of(stream));
  ronde_plugin_mark* mark = nullptr;
  std::array<char, 256> text{};
  const auto status =
      rank.plugin().mark(rank.engine(), stream.get(), nullptr, &mark, text.data(), text.size());
  std::printf("result after_a_broken_kernel=%d: %s\n", static_cast<int>(status), text.data());
  rank.expect(status != RONDE_PLUGIN_OK, "a broken device takes nothing");
  rank.expect(std::string(text.data()).find("illegal") != std::string::npos,
              std::string("the error has CUDA's words: ") + text.data());
}

}  // namespace
}  // namespace ronde::gpu_test

int main(int argc, char** argv) {
  using namespace ronde::gpu_test;
  const std::vector<Case> cases{
      plugin_case("many_batches", 2, Sharing::kNccl, check_many_batches),
      plugin_case("queues", 2, Sharing::kNccl, check_queues),
      plugin_case("allocation", 1, Sharing::kNccl, check_allocation),
      plugin_case("freed_result", 1, Sharing::kNccl, check_freed_result),
      plugin_case("callbacks_of_one", 1, Sharing::kNccl, check_callbacks),
      plugin_case("callbacks_of_two", 2, Sharing::kNccl, check_callbacks),
      plugin_case("broken_device", 1, Sharing::kNccl, check_broken_device),
  };
  return run_program({argv, static_cast<std::size_t>(argc)}, cases, has_gpu);
}
