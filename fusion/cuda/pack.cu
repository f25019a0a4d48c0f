// SPDX-License-Identifier: Apache-2.0
// The pack kernel and its launches; the only CUDA source of this layer.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "fusion/cuda/pack.cuh"

namespace ronde::fusion::cuda {

namespace {

constexpr int kThreads = 512;
constexpr std::int64_t kTileBytes = 32 << 10;  // of the input
// The device deals tiles out better than a loop in fewer blocks does: on an H100 256 MiB take 366
// us there and back, and 396 with 4 blocks.
constexpr int kBlocksPerMultiprocessor = 64;

// All of this is passed as a parameter of the kernel; parameters may have 32,764 bytes. Few pieces
// have a table of their own, since each launch copies the whole of it.
constexpr int kFewPieces = 128;
template <int kRoom>
struct Pieces {
  const void* from[kRoom];
  void* to[kRoom];
  std::uint32_t first_tile[kRoom + 1];
  std::uint32_t short_tile[kRoom];  // elements of the last tile of a piece
  std::int32_t count;
};
static_assert(sizeof(Pieces<kMostPieces>) + 64 <= 32764, "pieces fit the parameters of a kernel");

// These move vectors of 16 bytes, each read once and written once, so that neither takes a place in
// the caches.
__device__ uint4 load_once(const uint4* from) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}

// Several loads are under way before the first store: the compiler may not move a load above a
// store.
template <class Word>
__device__ void copy_words(const void* from, void* to, std::int64_t words) {
  const auto* const source = static_cast<const Word*>(from);
  auto* const target = static_cast<Word*>(to);
  constexpr int kUnroll = 8;
  std::int64_t i = threadIdx.x;
  for (; i + (kUnroll - 1) * kThreads < words; i += kUnroll * kThreads) {
    Word values[kUnroll];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) values[k] = source[i + k * kThreads];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) target[i + k * kThreads] = values[k];
  }
  for (; i < words; i += kThreads) target[i] = source[i];
}

// Copies the bytes before the next multiple of 16 one by one, then vectors, if both ends allow.
__device__ void copy_tile(const void* from, void* to, std::int64_t bytes) {
  const auto source = reinterpret_cast<std::uintptr_t>(from);
  const auto target = reinterpret_cast<std::uintptr_t>(to);
  const std::uintptr_t apart = (source ^ target) & 15;
  if (apart != 0) {
    const std::uintptr_t misfit = source | target | static_cast<std::uintptr_t>(bytes);
    if (misfit % 8 == 0) return copy_words<std::uint64_t>(from, to, bytes / 8);
    if (misfit % 4 == 0) return copy_words<std::uint32_t>(from, to, bytes / 4);
    if (misfit % 2 == 0) return copy_words<std::uint16_t>(from, to, bytes / 2);
    return copy_words<std::uint8_t>(from, to, bytes);
  }
  const std::int64_t to_line = static_cast<std::int64_t>(-source & 15);
  const std::int64_t head = bytes < to_line ? bytes : to_line;
  copy_words<std::uint8_t>(from, to, head);
  const std::int64_t vectors = (bytes - head) / 16;
  const auto* const lines = reinterpret_cast<const uint4*>(source + head);
  auto* const out = reinterpret_cast<uint4*>(target + head);
  constexpr int kUnroll = 4;
  std::int64_t i = threadIdx.x;
  for (; i + (kUnroll - 1) * kThreads < vectors; i += kUnroll * kThreads) {
    uint4 values[kUnroll];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) values[k] = load_once(lines + i + k * kThreads);
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) __stcs(out + i + k * kThreads, values[k]);
  }
  for (; i < vectors; i += kThreads) __stcs(out + i, load_once(lines + i));
  const std::int64_t done = head + vectors * 16;
  copy_words<std::uint8_t>(reinterpret_cast<const void*>(source + done),
                           reinterpret_cast<void*>(target + done), bytes - done);
}

__device__ float widened(float value) { return value; }
__device__ float widened(__half value) { return __half2float(value); }
__device__ float widened(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ double widened(double value) { return value; }

template <class To, class Wide>
__device__ To narrowed(Wide value) {
  if constexpr (std::is_same_v<To, __half>) {
    return __float2half_rn(value);
  } else if constexpr (std::is_same_v<To, __nv_bfloat16>) {
    return __float2bfloat16_rn(value);
  } else {
    return value;
  }
}

template <class From, class To, class Wide>
__device__ void convert_tile(const From* from, To* to, std::int64_t elements, Wide scale) {
  constexpr int kUnroll = 4;
  std::int64_t i = threadIdx.x;
  for (; i + (kUnroll - 1) * kThreads < elements; i += kUnroll * kThreads) {
    From values[kUnroll];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) values[k] = from[i + k * kThreads];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      to[i + k * kThreads] = narrowed<To>(static_cast<Wide>(widened(values[k])) * scale);
    }
  }
  for (; i < elements; i += kThreads) {
    to[i] = narrowed<To>(static_cast<Wide>(widened(from[i])) * scale);
  }
}

// Visits one tile after the other, each with a whole block. `visit` gets its two ends and its
// elements.
template <int kRoom, class Visit>
__device__ void for_each_tile(const Pieces<kRoom>& pieces, std::int64_t from_size,
                              std::int64_t to_size, std::int64_t tile_elements, Visit visit) {
  const std::int64_t tiles = pieces.first_tile[pieces.count];
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const std::int64_t piece = piece_of_tile(pieces.first_tile, pieces.count, tile);
    const bool last = tile + 1 == static_cast<std::int64_t>(pieces.first_tile[piece + 1]);
    const std::int64_t begin =
        (tile - static_cast<std::int64_t>(pieces.first_tile[piece])) * tile_elements;
    visit(static_cast<const char*>(pieces.from[piece]) + begin * from_size,
          static_cast<char*>(pieces.to[piece]) + begin * to_size,
          last ? static_cast<std::int64_t>(pieces.short_tile[piece]) : tile_elements);
  }
}

template <int kRoom>
__global__ void __launch_bounds__(kThreads)
    copy_kernel(const __grid_constant__ Pieces<kRoom> pieces, std::int64_t size,
                std::int64_t tile_elements) {
  for_each_tile(pieces, size, size, tile_elements,
                [size](const char* from, char* to, std::int64_t elements) {
                  copy_tile(from, to, elements * size);
                });
}

template <int kRoom, class From, class To, class Wide>
__global__ void __launch_bounds__(kThreads)
    convert_kernel(const __grid_constant__ Pieces<kRoom> pieces, Wide scale,
                   std::int64_t tile_elements) {
  for_each_tile(pieces, sizeof(From), sizeof(To), tile_elements,
                [scale](const char* from, char* to, std::int64_t elements) {
                  convert_tile(reinterpret_cast<const From*>(from), reinterpret_cast<To*>(to),
                               elements, scale);
                });
}

using base::DType;

struct Conversion {
  DType from;
  DType to;
  const void* few;   // the kernel for kFewPieces
  const void* many;  // for kMostPieces
};

template <class From, class To, class Wide>
Conversion conversion(DType from, DType to) {
  return {from, to, reinterpret_cast<const void*>(&convert_kernel<kFewPieces, From, To, Wide>),
          reinterpret_cast<const void*>(&convert_kernel<kMostPieces, From, To, Wide>)};
}

// The kernels; the first copies, whatever the type.
std::span<const Conversion> conversions() {
  using F16 = __half;
  using Bf16 = __nv_bfloat16;
  static const Conversion kAll[]{
      {DType::kU8, DType::kU8, reinterpret_cast<const void*>(&copy_kernel<kFewPieces>),
       reinterpret_cast<const void*>(&copy_kernel<kMostPieces>)},
      conversion<float, float, float>(DType::kF32, DType::kF32),
      conversion<double, double, double>(DType::kF64, DType::kF64),
      conversion<F16, F16, float>(DType::kF16, DType::kF16),
      conversion<Bf16, Bf16, float>(DType::kBf16, DType::kBf16),
      conversion<float, F16, float>(DType::kF32, DType::kF16),
      conversion<float, Bf16, float>(DType::kF32, DType::kBf16),
      conversion<F16, float, float>(DType::kF16, DType::kF32),
      conversion<Bf16, float, float>(DType::kBf16, DType::kF32)};
  return kAll;
}

template <int kRoom>
cudaError_t launch(std::span<const PackPiece> pieces, const PackKind& kind, int multiprocessors,
                   cudaStream_t stream) {
  std::int64_t tile_elements = kTileBytes / base::size_of(kind.from);
  const TilePlan plan(pieces, tile_elements);
  // Four billion tiles of 32 KiB are more memory than there is.
  if (plan.tiles() > UINT32_MAX) return cudaErrorInvalidValue;
  if (plan.tiles() == 0) return cudaSuccess;
  Pieces<kRoom> table;
  table.count = static_cast<std::int32_t>(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    table.from[i] = pieces[i].from;
    table.to[i] = pieces[i].to;
    table.first_tile[i] = static_cast<std::uint32_t>(plan.first_tiles()[i]);
    const std::int64_t rest = pieces[i].elements % tile_elements;
    table.short_tile[i] = static_cast<std::uint32_t>(rest == 0 ? tile_elements : rest);
  }
  table.first_tile[pieces.size()] = static_cast<std::uint32_t>(plan.tiles());
  const bool copies = kind.from == kind.to && kind.scale == 1.0;
  const auto fits = [&](const Conversion& one) {
    return copies || (one.from == kind.from && one.to == kind.to);
  };
  const auto all = conversions();
  const auto found = std::find_if(copies ? all.begin() : all.begin() + 1, all.end(), fits);
  if (found == all.end()) return cudaErrorInvalidValue;
  std::int64_t size = base::size_of(kind.from);
  auto narrow_scale = static_cast<float>(kind.scale);
  double scale = kind.scale;
  void* const second = copies                     ? static_cast<void*>(&size)
                       : kind.from == DType::kF64 ? static_cast<void*>(&scale)
                                                  : static_cast<void*>(&narrow_scale);
  void* arguments[]{&table, second, &tile_elements};
  const std::int64_t most = std::int64_t{multiprocessors} * kBlocksPerMultiprocessor;
  const auto blocks = static_cast<unsigned>(std::min(plan.tiles(), most));
  return cudaLaunchKernel(kRoom == kFewPieces ? found->few : found->many, dim3(blocks),
                          dim3(kThreads), arguments, 0, stream);
}

}  // namespace

cudaError_t prepare() {
  for (const Conversion& one : conversions()) {
    for (const void* const kernel : {one.few, one.many}) {
      cudaFuncAttributes ignored{};
      const cudaError_t error = cudaFuncGetAttributes(&ignored, kernel);
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

cudaError_t pack(std::span<const PackPiece> pieces, const PackKind& kind, int multiprocessors,
                 cudaStream_t stream) {
  while (!pieces.empty()) {
    const auto some = pieces.first(std::min<std::size_t>(pieces.size(), kMostPieces));
    pieces = pieces.subspan(some.size());
    const cudaError_t error = some.size() <= kFewPieces
                                  ? launch<kFewPieces>(some, kind, multiprocessors, stream)
                                  : launch<kMostPieces>(some, kind, multiprocessors, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace ronde::fusion::cuda
