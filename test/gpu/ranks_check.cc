// SPDX-License-Identifier: Apache-2.0
// The plug-in on one real GPU: 1 rank; 2 and 3 ranks over NCCL, each with a host id of its own, so
// that NCCL does not see that they share the device; 2 ranks that stage; a rank that dies.
//   gpu_ranks <libronde_cuda.so>
#include <cstdlib>
#include <functional>

#include "test/gpu/gpu_rank.h"

namespace ronde::gpu_test {
namespace {

// Numbers of ronde.h.
constexpr std::int32_t kI32 = 5;
constexpr std::int32_t kF32 = 10;
constexpr std::int32_t kF64 = 11;
constexpr std::size_t kLarge = 700'001;  // f32: not packed

using Floats = GpuVector<float>;

struct Batch {
  explicit Batch(ronde_plugin_operation operation, std::int32_t dtype = kF32) {
    batch.struct_size = sizeof batch;
    batch.operation = operation;
    batch.dtype = dtype;
    batch.op = 1;
    batch.prescale = batch.postscale = 1.0;
  }
  Batch& add(const void* input, void* output, std::size_t elements, void* stream = nullptr,
             void* event = nullptr) {
    tensors.push_back({input, output, static_cast<std::int64_t>(elements), stream, event});
    batch.tensor_count = static_cast<std::int32_t>(tensors.size());
    batch.tensors = tensors.data();
    return *this;
  }
  ronde_plugin_batch batch{};
  std::vector<ronde_plugin_tensor> tensors;
};

bool run(GpuRank& rank, const Batch& batch) {
  return rank.finish(rank.execute(batch.batch)) == RONDE_PLUGIN_OK;
}

// 1 to 4, by rank and place: sums are exact.
template <class T>
std::vector<T> contribution(int rank, std::size_t elements) {
  std::vector<T> values(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    values[i] = static_cast<T>(1 + (i + static_cast<std::size_t>(rank)) % 4);
  }
  return values;
}

template <class T>
std::vector<T> folded(std::int32_t op, int ranks, std::size_t elements, double scale) {
  std::vector<T> result(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    double value = op == 4 ? 1 : op == 2 ? 100 : 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto one = static_cast<double>(1 + (i + static_cast<std::size_t>(rank)) % 4);
      if (op == 4) value *= one;
      if (op == 2) value = one < value ? one : value;
      if (op == 3) value = one > value ? one : value;
      if (op < 2) value += one;
    }
    result[i] = static_cast<T>((op == 0 ? value / ranks : value) * scale);
  }
  return result;
}

template <class T>
bool about(const std::vector<T>& got, const std::vector<T>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double apart = static_cast<double>(got[i]) - static_cast<double>(expected[i]);
    const double limit = std::is_integral_v<T> ? 0 : 1e-5 * static_cast<double>(expected[i]);
    if (apart > limit || apart < -limit) return false;
  }
  return got.size() == expected.size();
}

template <class T>
void check_allreduce(GpuRank& rank, std::int32_t dtype, std::int32_t op, std::int32_t compression,
                     double prescale, double postscale) {
  const std::vector<std::size_t> lengths{1, 1000, 33, kLarge};
  std::vector<std::unique_ptr<GpuVector<T>>> memory;
  Batch batch(RONDE_PLUGIN_ALLREDUCE, dtype);
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
  rank.expect(run(rank, batch), what);
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
  Batch broadcast(RONDE_PLUGIN_BROADCAST);
  broadcast.batch.root = size - 1;
  broadcast.add(one.get(), one.get(), 777).add(two.get(), two.get(), 20);
  rank.expect(run(rank, broadcast), "broadcast");
  rank.expect(one.values() == contribution<float>(size - 1, 777), "broadcast, values");

  const auto length = [](int of) { return static_cast<std::size_t>(of == 1 ? 0 : 100 + 37 * of); };
  const Floats own(contribution<float>(me, length(me)));
  const Floats sum(std::vector<float>(length(me)));
  std::vector<std::unique_ptr<Floats>> blocks;
  Batch gather(RONDE_PLUGIN_ALLGATHER);
  Batch scatter(RONDE_PLUGIN_REDUCE_SCATTER);
  Batch exchange(RONDE_PLUGIN_ALL_TO_ALL);
  for (int of = 0; of < size; ++of) {
    blocks.push_back(std::make_unique<Floats>(std::vector<float>(length(of))));
    gather.add(of == me ? own.get() : nullptr, blocks.back()->get(), length(of));
    scatter.add(blocks.back()->get(), of == me ? sum.get() : nullptr, length(of));
  }
  rank.expect(run(rank, gather), "allgather");
  for (int of = 0; of < size; ++of) {
    rank.expect(
        blocks[static_cast<std::size_t>(of)]->values() == contribution<float>(of, length(of)),
        "allgather, values");
  }
  rank.expect(run(rank, scatter), "reduce-scatter");
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
  rank.expect(run(rank, exchange), "all-to-all");
  for (int from = 0; from < size; ++from) {
    rank.expect(blocks[static_cast<std::size_t>(2 * size + from)]->values() ==
                    contribution<float>(from + 2 * me, 50),
                "all-to-all, values");
  }
  rank.expect(run(rank, Batch(RONDE_PLUGIN_BARRIER)), "barrier");
}

void sleep_in_stream(cudaStream_t stream, int milliseconds) {
  static constexpr auto kSleep = [](void* how_long) {
    ::usleep(static_cast<useconds_t>(reinterpret_cast<std::uintptr_t>(how_long)) * 1000);
  };
  (void)good(cudaLaunchHostFunc(stream, kSleep,
                                reinterpret_cast<void*>(static_cast<std::uintptr_t>(milliseconds))),
             "a delay");
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
    Batch batch(RONDE_PLUGIN_ALLREDUCE);
    batch.add(memory.get(), memory.get(), 500, before, with_event ? event : nullptr);
    ronde_plugin_work* const work = rank.execute(batch.batch);
    const int rings = rank.rings();
    rank.expect(rank.poll(work) == RONDE_PLUGIN_PENDING, "behind its stream");
    rank.expect(rank.plugin().wait_on(rank.engine(), work, after, rank.text().data(),
                                      rank.text().size()) == RONDE_PLUGIN_OK,
                "wait_on");
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
  const ronde_plugin_tensor tensor{input.get(), output.get(), 1000, nullptr, nullptr};
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
  if (rank.rank() == 0) std::printf("  %s\n", rank.info().versions);
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

// Rank 0 is gone; the others wait for it in a kernel, until they are told.
void check_death(GpuRank& rank) {
  if (!rank.expect(rank.is_open() && rank.info().has_collectives == 1, "collectives")) return;
  (void)rank.meeting().meet(rank.size());
  if (rank.rank() == 0) ::_exit(kMeantToDie);
  const Floats memory(std::vector<float>(100, 1));
  Batch batch(RONDE_PLUGIN_ALLREDUCE);
  batch.add(memory.get(), memory.get(), 100);
  ronde_plugin_work* const work = rank.execute(batch.batch);
  ::usleep(100'000);
  const auto begin = std::chrono::steady_clock::now();
  rank.plugin().abort(rank.engine(), "rank 0 is dead");
  rank.expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(1), "abort is fast");
  rank.expect(rank.finish(work) == RONDE_PLUGIN_FAILED, "a batch without rank 0 fails");
  rank.expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5), "in time");
}

// Before the first call of CUDA or NCCL in this process.
void set_environment(int rank, bool own_host) {
  const char* const settings[][2] = {
      {"NCCL_P2P_DISABLE", "1"},  {"NCCL_SHM_DISABLE", "1"},      {"NCCL_NET", "Socket"},
      {"NCCL_IB_DISABLE", "1"},   {"NCCL_MNNVL_ENABLE", "0"},     {"NCCL_NVLS_ENABLE", "0"},
      {"NCCL_RAS_ENABLE", "0"},   {"NCCL_GIN_ENABLE", "0"},       {"NCCL_MAX_CTAS", "4"},
      {"NCCL_PROTO", "Simple"},   {"NCCL_ALGO", "Ring"},          {"NCCL_SOCKET_IFNAME", "lo"},
      {"NCCL_CUMEM_ENABLE", "0"}, {"NCCL_CUMEM_HOST_ENABLE", "0"}};
  for (const auto& [name, value] : settings) ::setenv(name, value, 0);
  if (own_host) ::setenv("NCCL_HOSTID", ("rank" + std::to_string(rank)).c_str(), 1);
}

struct Case {
  const char* name;
  int ranks;
  bool own_hosts;
  void (*check)(GpuRank&);
};
constexpr Case kCases[] = {
    {"one_rank", 1, false, check_all},
    {"two_ranks_nccl", 2, true, check_all},
    {"three_ranks_nccl", 3, true, check_all},
    {"two_ranks_staged", 2, false, check_staged},
    {"four_ranks_staged", 4, false, check_staged},
    {"a_rank_dies", 2, true, check_death},
};

bool run_case(const Case& one, const char* library) {
  return run_ranks(one.ranks, std::chrono::seconds(180), [&](int rank, Meeting& meeting) {
    if (one.ranks > 1) set_environment(rank, one.own_hosts);
    if (!good(cudaSetDevice(0), "the device")) return 1;
    GpuRank me(library, rank, one.ranks, meeting);
    one.check(me);
    me.close();
    return me.wrong() == 0 ? 0 : 1;
  });
}

// In a process of its own: a parent that has touched CUDA must not fork.
bool has_gpu() {
  return run_ranks(1, std::chrono::seconds(60), [](int, Meeting&) {
    int devices = 0;
    return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0 ? 0 : 1;
  });
}

}  // namespace
}  // namespace ronde::gpu_test

int main(int argc, char** argv) {
  using namespace ronde::gpu_test;
  if (argc < 2) {
    std::printf("usage: gpu_ranks <libronde_cuda.so> [case]\n");
    return 2;
  }
  if (!has_gpu()) {
    std::printf("no GPU: skipped\n");
    return 77;
  }
  bool all = true;
  for (const Case& one : kCases) {
    if (argc > 2 && std::string(argv[2]) != one.name) continue;
    const bool passed = run_case(one, argv[1]);
    std::printf("result %s=%s\n", one.name, passed ? "passed" : "FAILED");
    all = all && passed;
  }
  return all ? 0 : 1;
}
