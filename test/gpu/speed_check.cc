// SPDX-License-Identifier: Apache-2.0
// What the plug-in costs on one GPU, each beside its yardstick in the same run:
//   - pack and unpack of the gradients of models and of tensors of many sizes, against one copy of
//     the same bytes, a copy for each tensor, and CUDA's batch of copies;
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
#include "examples/perf/options/models.h"
#include "fusion/cuda/pack.cuh"
#include "test/gpu/cuda.h"
#include "test/gpu/ranks.h"

namespace ronde::gpu_test {
namespace {

using device_test::Batch;
using device_test::Device;
using device_test::DeviceMemory;
using device_test::MarkOwner;
using fusion::PackPiece;
using Clock = std::chrono::steady_clock;

// The plug-in packs what is smaller, and leaves the rest where it is.
constexpr std::size_t kPackBelow = 1 << 20;

void print(const std::string& name, double value, const char* format) {
  std::printf("result %s=", name.c_str());
  std::printf(format, value);
  std::printf("\n");
}
void print_us(const std::string& name, double seconds) {
  print(name + "_us", seconds * 1e6, "%.1f");
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A stream and two events: the times of what is put into it.
//
// Thread safety: one thread.
class Stopwatch {
 public:
  Stopwatch() {
    (void)good(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    (void)good(cudaEventCreate(&begin_), "event");
    (void)good(cudaEventCreate(&end_), "event");
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    (void)cudaEventDestroy(begin_);
    (void)cudaEventDestroy(end_);
    (void)cudaStreamDestroy(stream_);
  }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }

  // Seconds of the device; the shortest of some runs.
  template <class Run>
  double best(Run run) const {
    float best = 1e9F;
    for (int i = 0; i < 20; ++i) {
      // The stream is held back until the host has put all of the run into it.
      Device::instance().kit->delay(stream_, 2);
      (void)cudaEventRecord(begin_, stream_);
      run();
      (void)cudaEventRecord(end_, stream_);
      (void)good(cudaEventSynchronize(end_), "running");
      float milliseconds = 0;
      (void)cudaEventElapsedTime(&milliseconds, begin_, end_);
      best = std::min(best, milliseconds);
    }
    return static_cast<double>(best) / 1e3;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

// ---- pack and unpack ----

// Tensors with room between them, as allocators leave it, and one buffer for all.
struct Layout {
  std::vector<PackPiece> in;   // into the buffer
  std::vector<PackPiece> out;  // and back
  std::size_t bytes = 0;
};

// `shift`: how far, in bytes, the tensors lie behind a multiple of 16, as views of others do.
Layout lay_out(const std::vector<std::size_t>& elements, char* scattered, char* packed,
               std::size_t shift) {
  Layout layout;
  std::size_t from = shift;
  for (const std::size_t count : elements) {
    void* const tensor = scattered + from;
    void* const place = packed + layout.bytes;
    layout.in.push_back({tensor, place, static_cast<std::int64_t>(count)});
    layout.out.push_back({place, tensor, static_cast<std::int64_t>(count)});
    from += (count * sizeof(float) + 255) / 256 * 256 + 256;
    layout.bytes += (count * sizeof(float) + 15) / 16 * 16;
  }
  return layout;
}

// As CUDA 12 has it, and as CUDA 13 has it.
using CopyBatch12 = cudaError_t (*)(void**, void**, std::size_t*, std::size_t,
                                    cudaMemcpyAttributes*, std::size_t*, std::size_t, std::size_t*,
                                    cudaStream_t);
using CopyBatch13 = cudaError_t (*)(void* const*, const void* const*, const std::size_t*,
                                    std::size_t, cudaMemcpyAttributes*, std::size_t*, std::size_t,
                                    cudaStream_t);
struct BatchOfCopies {
  std::vector<void*> to;
  std::vector<const void*> from;
  std::vector<std::size_t> sizes;
  cudaMemcpyAttributes attributes{};
  std::size_t first = 0;
};
[[maybe_unused]] cudaError_t start(CopyBatch12 copy, BatchOfCopies& batch, cudaStream_t stream) {
  std::size_t failed = 0;
  return copy(batch.to.data(), const_cast<void**>(batch.from.data()), batch.sizes.data(),
              batch.sizes.size(), &batch.attributes, &batch.first, 1, &failed, stream);
}
[[maybe_unused]] cudaError_t start(CopyBatch13 copy, BatchOfCopies& batch, cudaStream_t stream) {
  return copy(batch.to.data(), batch.from.data(), batch.sizes.data(), batch.sizes.size(),
              &batch.attributes, &batch.first, 1, stream);
}

cudaError_t copy_batch(const std::vector<PackPiece>& pieces, cudaStream_t stream) {
  BatchOfCopies batch;
  for (const PackPiece& piece : pieces) {
    batch.to.push_back(piece.to);
    batch.from.push_back(piece.from);
    batch.sizes.push_back(static_cast<std::size_t>(piece.elements) * sizeof(float));
  }
  batch.attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  return start(&cudaMemcpyBatchAsync, batch, stream);
}

bool measure_pack(const std::string& name, const std::vector<std::size_t>& elements,
                  std::size_t shift = 0) {
  std::size_t room = 0;
  for (const std::size_t count : elements) room += count * sizeof(float) + 512;
  const DeviceMemory scattered(std::vector<char>(room, 0));
  const DeviceMemory packed(std::vector<char>(room, 0));
  const Layout layout = lay_out(elements, static_cast<char*>(scattered.get()),
                                static_cast<char*>(packed.get()), shift);
  int multiprocessors = 0;
  (void)good(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), "asking");
  const fusion::cuda::PackKind kind{base::DType::kF32, base::DType::kF32, 1};
  const Stopwatch watch;
  bool right = true;
  const auto both = watch.best([&] {
    for (const auto* pieces : {&layout.in, &layout.out}) {
      right =
          good(fusion::cuda::pack(*pieces, kind, multiprocessors, watch.stream()), "pack") && right;
    }
  });
  const auto one = watch.best([&] {
    right = good(cudaMemcpyAsync(packed.get(), scattered.get(), layout.bytes,
                                 cudaMemcpyDeviceToDevice, watch.stream()),
                 "copy") &&
            right;
  });
  const auto each = watch.best([&] {
    for (const auto* pieces : {&layout.in, &layout.out}) {
      for (const PackPiece& piece : *pieces) {
        (void)cudaMemcpyAsync(piece.to, piece.from,
                              static_cast<std::size_t>(piece.elements) * sizeof(float),
                              cudaMemcpyDeviceToDevice, watch.stream());
      }
    }
  });
  const auto batch = watch.best([&] {
    for (const auto* pieces : {&layout.in, &layout.out}) {
      right = good(copy_batch(*pieces, watch.stream()), "cudaMemcpyBatchAsync") && right;
    }
  });
  print("pack_" + name + "_tensors", static_cast<double>(elements.size()), "%.0f");
  print("pack_" + name + "_bytes", static_cast<double>(layout.bytes), "%.0f");
  print_us("pack_" + name + "_pack_and_unpack", both);
  print_us("pack_" + name + "_one_copy", one);
  print_us("pack_" + name + "_copy_for_each_twice", each);
  print_us("pack_" + name + "_copy_batch_twice", batch);
  print("pack_" + name + "_of_copy_bandwidth", 2 * one / both, "%.3f");
  return right;
}

std::vector<std::size_t> sizes_of_model(const std::string& model, bool small_alone) {
  std::vector<std::size_t> sizes;
  for (const perf::Gradient& gradient : perf::gradients_of(model)) {
    if (small_alone && gradient.elements * sizeof(float) >= kPackBelow) continue;
    sizes.push_back(gradient.elements);
  }
  return sizes;
}

// bf16 to a buffer of f32 and back: the bytes read and written, against those of one copy.
bool measure_cast(const std::string& name, std::size_t bytes) {
  const std::size_t each = 250'000;
  const std::size_t room = (each * 2 + 511) / 256 * 256;
  const std::size_t count = bytes / (each * 6);
  const DeviceMemory halves(std::vector<char>(count * room, 0));
  const DeviceMemory floats(std::vector<char>(count * room * 2, 0));
  const DeviceMemory target(std::vector<char>(count * each * 3, 0));
  std::vector<PackPiece> in;
  std::vector<PackPiece> out;
  for (std::size_t i = 0; i < count; ++i) {
    void* const half = static_cast<char*>(halves.get()) + i * room;
    void* const wide = static_cast<char*>(floats.get()) + i * room * 2;
    in.push_back({half, wide, static_cast<std::int64_t>(each)});
    out.push_back({wide, half, static_cast<std::int64_t>(each)});
  }
  int multiprocessors = 0;
  (void)good(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), "asking");
  const Stopwatch watch;
  bool right = true;
  const auto both = watch.best([&] {
    right = good(fusion::cuda::pack(in, {base::DType::kBf16, base::DType::kF32, 1}, multiprocessors,
                                    watch.stream()),
                 "widening") &&
            right;
    right = good(fusion::cuda::pack(out, {base::DType::kF32, base::DType::kBf16, 0.5},
                                    multiprocessors, watch.stream()),
                 "narrowing") &&
            right;
  });
  const auto one = watch.best([&] {
    right = good(cudaMemcpyAsync(target.get(), floats.get(), count * each * 3,
                                 cudaMemcpyDeviceToDevice, watch.stream()),
                 "copy") &&
            right;
  });
  print_us("pack_" + name + "_and_back", both);
  print_us("pack_" + name + "_one_copy", one);
  print("pack_" + name + "_of_copy_bandwidth", 2 * one / both, "%.3f");
  return right;
}

// Small tensors of many sizes, `bytes` in all.
std::vector<std::size_t> mixed_sizes(std::size_t bytes) {
  const std::size_t sizes[] = {64, 256, 1024, 4096, 16384, 36864, 65536, 147456, 250000};
  std::vector<std::size_t> result;
  std::size_t left = bytes / sizeof(float);
  for (std::size_t i = 0; left > 0; ++i) {
    result.push_back(std::min(sizes[i % std::size(sizes)], left));
    left -= result.back();
  }
  return result;
}

int measure_packs() {
  bool right = true;
  for (const char* model : {"resnet50", "gpt2"}) {
    right = measure_pack(std::string(model) + "_small", sizes_of_model(model, true)) && right;
    right = measure_pack(std::string(model) + "_all", sizes_of_model(model, false)) && right;
  }
  for (const std::size_t mebibytes : {4U, 16U, 64U, 256U}) {
    right = measure_pack(std::to_string(mebibytes) + "MiB", mixed_sizes(mebibytes << 20)) && right;
  }
  right = measure_pack("64MiB_shifted", mixed_sizes(std::size_t{64} << 20U), 4) && right;
  right = measure_cast("64MiB_bf16_to_f32", std::size_t{64} << 20U) && right;
  return right ? 0 : 1;
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

int with_plugin(int rank, int size, Meeting& meeting, void (*measure)(PluginRank&)) {
  PluginRank me(rank, size, meeting);
  measure(me);
  me.close();
  return me.wrong() == 0 ? 0 : 1;
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
  if (argc < 2) {
    std::printf("usage: gpu_speed <libronde_cuda.so> [case]...\n");
    return 2;
  }
  set_plugin(argv[1]);
  const auto through = [](void (*measure)(PluginRank&)) {
    return [measure](int rank, int size, Meeting& meeting) {
      return with_plugin(rank, size, meeting, measure);
    };
  };
  const std::vector<Case> cases{
      {"speed_pack", 1, Sharing::kNccl, [](int, int, Meeting&) { return measure_packs(); }},
      {"speed_host", 1, Sharing::kNccl, through(measure_hosts)},
      {"speed_allreduce_1", 1, Sharing::kNccl, through(measure_overhead)},
      {"speed_allreduce_2", 2, Sharing::kNccl, through(measure_overhead)},
  };
  return run_cases(cases, std::span(argv, static_cast<std::size_t>(argc)).subspan(2), has_gpu);
}
