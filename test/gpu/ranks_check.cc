// SPDX-License-Identifier: Apache-2.0
// The plug-in on one real GPU: 1 rank; 2 and 3 ranks over NCCL, each with a host id of its own, so
// that NCCL does not see that they share the device; 2 and 4 that stage; ranks that die or give up.
//   gpu_ranks <libronde_cuda.so> [case]...
#include <memory>
#include <vector>

#include "test/gpu/batches.h"
#include "test/gpu/cases.h"

namespace ronde::gpu_test {
namespace {

constexpr std::size_t kLarge = 700'001;  // f32: not packed

template <class T>
void check_allreduce(GpuRank& rank, std::int32_t dtype, std::int32_t op, std::int32_t compression,
                     double prescale, double postscale) {
  const std::vector<std::size_t> lengths{1, 1000, 33, kLarge};
  std::vector<std::unique_ptr<GpuVector<T>>> memory;
  Batch batch(rank, RONDE_PLUGIN_ALLREDUCE, dtype);
  for (const std::size_t length : lengths) {
    memory.push_back(std::make_unique<GpuVector<T>>(contribution<T>(rank.rank(), length)));
    batch.add(memory.back()->get(), memory.back()->get(), length);
  }
  batch.batch.op = op;
  batch.batch.compression = compression;
  batch.batch.prescale = prescale;
  batch.batch.postscale = postscale;
  const std::string what = "allreduce of dtype " + std::to_string(dtype) + ", op " +
                           std::to_string(op) + ", compression " + std::to_string(compression);
  rank.expect(batch.run(), what);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    rank.expect(
        about(memory[i]->values(), folded<T>(op, rank.size(), lengths[i], prescale * postscale)),
        what + ", values of tensor " + std::to_string(i));
  }
}

void check_allreduces(GpuRank& rank) {
  for (const std::int32_t op : {0, 1, 2, 3, 4}) {
    check_allreduce<float>(rank, kF32, op, 0, 1, 1);
    check_allreduce<double>(rank, kF64, op, 0, 1, 1);
    check_allreduce<std::int32_t>(rank, kI32, op, 0, 1, 1);
  }
  for (const std::int32_t compression : {0, 1, 2}) {
    check_allreduce<float>(rank, kF32, 1, compression, 0.5, 4);
    check_allreduce<float>(rank, kF32, 2, compression, 0.5, 4);
  }
}

void check_moves(GpuRank& rank) {
  const int me = rank.rank();
  const int size = rank.size();
  const Floats one(contribution<float>(me, 777));
  const Floats two(contribution<float>(me, 20));
  Batch broadcast(rank, RONDE_PLUGIN_BROADCAST);
  broadcast.batch.root = size - 1;
  broadcast.add(one.get(), one.get(), 777).add(two.get(), two.get(), 20);
  rank.expect(broadcast.run(), "broadcast");
  rank.expect(one.values() == contribution<float>(size - 1, 777), "broadcast, values");

  const auto length = [](int of) { return static_cast<std::size_t>(of == 1 ? 0 : 100 + 37 * of); };
  const Floats own(contribution<float>(me, length(me)));
  const Floats sum(std::vector<float>(length(me)));
  std::vector<std::unique_ptr<Floats>> blocks;
  Batch gather(rank, RONDE_PLUGIN_ALLGATHER);
  Batch scatter(rank, RONDE_PLUGIN_REDUCE_SCATTER);
  Batch exchange(rank, RONDE_PLUGIN_ALL_TO_ALL);
  for (int of = 0; of < size; ++of) {
    blocks.push_back(std::make_unique<Floats>(std::vector<float>(length(of))));
    gather.add(of == me ? own.get() : nullptr, blocks.back()->get(), length(of));
    scatter.add(blocks.back()->get(), of == me ? sum.get() : nullptr, length(of));
  }
  rank.expect(gather.run(), "allgather");
  for (int of = 0; of < size; ++of) {
    rank.expect(
        blocks[static_cast<std::size_t>(of)]->values() == contribution<float>(of, length(of)),
        "allgather, values");
  }
  rank.expect(scatter.run(), "reduce-scatter");
  std::vector<float> expected = contribution<float>(me, length(me));
  for (float& value : expected) value *= static_cast<float>(size);
  rank.expect(sum.values() == expected, "reduce-scatter, values");
  for (int to = 0; to < size; ++to) {
    blocks.push_back(std::make_unique<Floats>(contribution<float>(me + 2 * to, 50)));
    exchange.add(blocks.back()->get(), nullptr, 50);
  }
  for (int from = 0; from < size; ++from) {
    blocks.push_back(std::make_unique<Floats>(std::vector<float>(50)));
    exchange.add(nullptr, blocks.back()->get(), 50);
  }
  rank.expect(exchange.run(), "all-to-all");
  for (int from = 0; from < size; ++from) {
    rank.expect(blocks[static_cast<std::size_t>(2 * size + from)]->values() ==
                    contribution<float>(from + 2 * me, 50),
                "all-to-all, values");
  }
  rank.expect(Batch(rank, RONDE_PLUGIN_BARRIER).run(), "barrier");
}

void check_order(GpuRank& rank) {
  cudaStream_t before = nullptr;
  cudaStream_t after = nullptr;
  cudaEvent_t event = nullptr;
  (void)good(cudaStreamCreateWithFlags(&before, cudaStreamNonBlocking), "stream");
  (void)good(cudaStreamCreateWithFlags(&after, cudaStreamNonBlocking), "stream");
  (void)good(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
  for (const bool with_event : {false, true}) {
    const Floats source(contribution<float>(rank.rank(), 500));
    const Floats memory(std::vector<float>(500, -1000));
    const Floats seen(std::vector<float>(500));
    sleep_in_stream(before, 30);
    (void)cudaMemcpyAsync(memory.get(), source.get(), 500 * sizeof(float), cudaMemcpyDeviceToDevice,
                          before);
    if (with_event) (void)good(cudaEventRecord(event, before), "record");
    Batch batch(rank, RONDE_PLUGIN_ALLREDUCE);
    batch.add(memory.get(), memory.get(), 500, before, with_event ? event : nullptr);
    ronde_plugin_work* const work = rank.execute(batch.batch);
    const int rings = rank.rings();
    rank.expect(rank.poll(work) == RONDE_PLUGIN_PENDING, "behind its stream");
    rank.expect(rank.wait_on(work, after) == RONDE_PLUGIN_OK, "wait_on");
    (void)cudaMemcpyAsync(seen.get(), memory.get(), 500 * sizeof(float), cudaMemcpyDeviceToDevice,
                          after);
    (void)good(cudaStreamSynchronize(after), "waiting");
    rank.expect(seen.values() == folded<float>(1, rank.size(), 500, 1), "a stream that waits");
    rank.expect(rank.finish(work) == RONDE_PLUGIN_OK, "finish");
    ::usleep(20'000);
    rank.expect(rank.rings() > rings, "the doorbell");
  }
  (void)cudaStreamDestroy(before);
  (void)cudaStreamDestroy(after);
  (void)cudaEventDestroy(event);
}

void check_pointers(GpuRank& rank) {
  const Floats device(std::vector<float>(10));
  void* managed = nullptr;
  void* pinned = nullptr;
  (void)good(cudaMallocManaged(&managed, 64), "managed");
  (void)good(cudaMallocHost(&pinned, 64), "pinned");
  float host = 0;
  const auto kind_of = [&rank](const void* pointer) {
    ronde_plugin_memory memory{-1, -2};
    rank.plugin().classify(rank.engine(), pointer, &memory, rank.text().data(), rank.text().size());
    return memory.kind;
  };
  rank.expect(kind_of(device.get()) == RONDE_MEMORY_DEVICE, "device memory");
  rank.expect(kind_of(managed) == RONDE_MEMORY_MANAGED, "managed memory");
  rank.expect(kind_of(pinned) == RONDE_MEMORY_HOST, "pinned memory");
  rank.expect(kind_of(&host) == RONDE_MEMORY_HOST, "host memory");
  (void)cudaFree(managed);
  (void)cudaFreeHost(pinned);
  cudaStream_t stream = nullptr;
  (void)good(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  const auto check = [&] {
    return rank.plugin().check_stream(rank.engine(), stream, rank.text().data(),
                                      rank.text().size());
  };
  rank.expect(check() == RONDE_PLUGIN_OK, "a stream");
  (void)good(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  rank.expect(check() == RONDE_PLUGIN_INVALID, "a stream under capture");
  cudaGraph_t graph = nullptr;
  (void)good(cudaStreamEndCapture(stream, &graph), "capture");
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  (void)cudaStreamDestroy(stream);
}

void check_staging(GpuRank& rank) {
  const auto values = contribution<float>(rank.rank(), 1000);
  const Floats input(values);
  const Floats output(std::vector<float>(1000, -1));
  const ronde_plugin_tensor tensor{input.get(), output.get(), 1000, nullptr};
  void* host = nullptr;
  auto& text = rank.text();
  const ronde_plugin& plugin = rank.plugin();
  rank.expect(
      plugin.allocate_host(rank.engine(), 1600, &host, text.data(), text.size()) == RONDE_PLUGIN_OK,
      "pinned memory of the plug-in");
  const ronde_plugin_copy copy{sizeof copy, &tensor, 300, 400, kF32, 0, host};
  ronde_plugin_work* work = nullptr;
  plugin.copy_out(rank.engine(), &copy, &work, text.data(), text.size());
  rank.expect(rank.finish(work) == RONDE_PLUGIN_OK, "copy_out");
  plugin.copy_in(rank.engine(), &copy, &work, text.data(), text.size());
  rank.expect(rank.finish(work) == RONDE_PLUGIN_OK, "copy_in");
  const auto result = output.values();
  bool same = true;
  for (std::size_t i = 0; i < 1000; ++i) {
    same = same && result[i] == (i < 300 || i >= 700 ? -1.0F : values[i]);
  }
  rank.expect(same, "staged values");
  plugin.free_host(rank.engine(), host);
}

void check_all(GpuRank& rank) {
  if (!rank.expect(rank.is_open() && rank.info().has_collectives == 1, "collectives")) return;
  if (rank.rank() == 0 && rank.size() == 1) {
    std::printf("result versions=%s\n", rank.info().versions);
  }
  check_allreduces(rank);
  check_moves(rank);
  check_order(rank);
  check_pointers(rank);
  check_staging(rank);
}

void check_staged(GpuRank& rank) {
  if (!rank.expect(rank.is_open() && rank.info().has_collectives == 0, "staged")) return;
  check_pointers(rank);
  check_staging(rank);
}

// Rank 0 is gone, before it has come or while it is in the kernel; the others wait for it in a
// kernel, until they are told.
void check_death(GpuRank& rank, bool in_kernel) {
  if (!rank.expect(rank.is_open() && rank.info().has_collectives == 1, "collectives")) return;
  const Floats memory(std::vector<float>(kLarge, 1));
  Batch warm(rank, RONDE_PLUGIN_ALLREDUCE);
  rank.expect(warm.add(memory.get(), memory.get(), kLarge).run(), "a batch while all live");
  (void)rank.meeting().meet(rank.size());
  cudaStream_t late = nullptr;
  (void)good(cudaStreamCreateWithFlags(&late, cudaStreamNonBlocking), "stream");
  Batch batch(rank, RONDE_PLUGIN_ALLREDUCE);
  if (rank.rank() == 0) {
    if (in_kernel) {
      sleep_in_stream(late, 50);
      (void)rank.execute(batch.add(memory.get(), memory.get(), kLarge, late).batch);
      ::usleep(60'000);
    }
    ::_exit(kMeantToDie);
  }
  ronde_plugin_work* const work = rank.execute(batch.add(memory.get(), memory.get(), kLarge).batch);
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
void check_death_before(GpuRank& rank) { check_death(rank, false); }
void check_death_in_kernel(GpuRank& rank) { check_death(rank, true); }

// Nobody dies, and rank 0 does not come: all are told, and all can still close.
void check_abort(GpuRank& rank) {
  if (!rank.expect(rank.is_open() && rank.info().has_collectives == 1, "collectives")) return;
  const Floats memory(std::vector<float>(kLarge, 1));
  const Floats more(std::vector<float>(100, 1));
  Batch batch(rank, RONDE_PLUGIN_ALLREDUCE);
  batch.add(memory.get(), memory.get(), kLarge);
  Batch behind(rank, RONDE_PLUGIN_ALLREDUCE);
  behind.add(more.get(), more.get(), 100);
  ronde_plugin_work* work = nullptr;
  ronde_plugin_work* second = nullptr;
  if (rank.rank() != 0) {
    work = rank.execute(batch.batch);
    second = rank.execute(behind.batch);
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

using Check = void (*)(GpuRank&);
Case make_case(const char* library, const char* name, int ranks, Sharing sharing, Check check) {
  return {name, ranks, sharing, [=](int rank, int size, Meeting& meeting) {
            if (!good(cudaSetDevice(0), "the device")) return 1;
            GpuRank me(library, rank, size, meeting);
            check(me);
            me.close();
            return me.wrong() == 0 ? 0 : 1;
          }};
}

}  // namespace
}  // namespace ronde::gpu_test

int main(int argc, char** argv) {
  using namespace ronde::gpu_test;
  if (argc < 2) {
    std::printf("usage: gpu_ranks <libronde_cuda.so> [case]...\n");
    return 2;
  }
  const char* const library = argv[1];
  const std::vector<Case> cases{
      make_case(library, "one_rank", 1, Sharing::kNccl, check_all),
      make_case(library, "two_ranks_nccl", 2, Sharing::kNccl, check_all),
      make_case(library, "three_ranks_nccl", 3, Sharing::kNccl, check_all),
      make_case(library, "two_ranks_staged", 2, Sharing::kStaged, check_staged),
      make_case(library, "four_ranks_staged", 4, Sharing::kStaged, check_staged),
      make_case(library, "death_of_two", 2, Sharing::kNccl, check_death_before),
      make_case(library, "death_of_three", 3, Sharing::kNccl, check_death_before),
      make_case(library, "death_in_kernel_of_two", 2, Sharing::kNccl, check_death_in_kernel),
      make_case(library, "death_in_kernel_of_three", 3, Sharing::kNccl, check_death_in_kernel),
      make_case(library, "abort_of_one", 1, Sharing::kNccl, check_abort),
      make_case(library, "abort_of_two", 2, Sharing::kNccl, check_abort),
      make_case(library, "abort_of_three", 3, Sharing::kNccl, check_abort),
  };
  return run_cases(cases, std::span(argv, static_cast<std::size_t>(argc)).subspan(2), has_gpu);
}
