// SPDX-License-Identifier: Apache-2.0
// Pack and unpack of the gradients of models and of tensors of many sizes, against one copy of the
// same bytes, a copy for each tensor, and CUDA's batch of copies.
#include <string>
#include <vector>

#include "fusion/cuda/pack.cuh"
#include "test/gpu/speed.h"

namespace ronde::gpu_test {
namespace {

using device_test::DeviceMemory;
using fusion::PackPiece;

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

}  // namespace

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

}  // namespace ronde::gpu_test
