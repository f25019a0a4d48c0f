// SPDX-License-Identifier: Apache-2.0
// The pack kernel on a GPU: against the host, and its speed against one copy of the same bytes.
//   gpu_pack check | gpu_pack speed
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "fusion/cuda/pack.cuh"
#include "test/gpu/gpu_rank.h"

namespace ronde::gpu_test {
namespace {

using base::DType;
using fusion::PackPiece;
using fusion::cuda::PackKind;
using Bytes = std::vector<unsigned char>;

int multiprocessors() {
  int count = 0;
  (void)good(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0), "attributes");
  return count;
}

template <class T>
double widened(const unsigned char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return static_cast<double>(value);
}

double read(DType dtype, const unsigned char* from) {
  if (dtype == DType::kF32) return widened<float>(from);
  if (dtype == DType::kF64) return widened<double>(from);
  if (dtype == DType::kF16) return __half2float(*reinterpret_cast<const __half*>(from));
  return __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(from));
}

template <class T>
void store(T value, unsigned char* to) {
  std::memcpy(to, &value, sizeof value);
}

void write(DType dtype, double value, unsigned char* to) {
  const auto single = static_cast<float>(value);
  if (dtype == DType::kF32) return store(single, to);
  if (dtype == DType::kF64) return store(value, to);
  if (dtype == DType::kF16) return store(__float2half_rn(single), to);
  store(__float2bfloat16_rn(single), to);
}

// Sizes as gradients have them, at offsets that no vector likes; and what lies between stays.
bool check_kind(const PackKind& kind, std::size_t shift) {
  const auto from_size = static_cast<std::size_t>(base::size_of(kind.from));
  const auto to_size = static_cast<std::size_t>(base::size_of(kind.to));
  const std::vector<std::int64_t> lengths{1, 3, 64, 0, 1000, 8191, 8192, 8193, 70'001, 7};
  const bool copies = kind.from == kind.to && kind.scale == 1.0;
  Bytes input;
  Bytes expected;
  std::vector<std::size_t> starts;
  std::vector<std::size_t> ends;
  std::mt19937 random(1);
  for (const std::int64_t length : lengths) {
    input.resize(input.size() + shift * from_size);
    expected.resize(expected.size() + to_size, 0xEE);
    starts.push_back(input.size());
    ends.push_back(expected.size());
    for (std::int64_t i = 0; i < length; ++i) {
      alignas(8) unsigned char value[8] = {};
      write(kind.from, static_cast<double>(random() % 2000) / 8 - 125, value);
      input.insert(input.end(), value, value + from_size);
      alignas(8) unsigned char result[8];
      std::memcpy(result, value, 8);
      if (!copies) write(kind.to, read(kind.from, value) * kind.scale, result);
      expected.insert(expected.end(), result, result + to_size);
    }
  }
  const GpuVector<unsigned char> from(input);
  const GpuVector<unsigned char> to(Bytes(expected.size(), 0xEE));
  std::vector<PackPiece> pieces;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    pieces.push_back({static_cast<unsigned char*>(from.get()) + starts[i],
                      static_cast<unsigned char*>(to.get()) + ends[i], lengths[i]});
  }
  return good(fusion::cuda::pack(pieces, kind, multiprocessors(), nullptr), "pack") &&
         good(cudaDeviceSynchronize(), "the kernel") && to.values() == expected;
}

int check() {
  int wrong = 0;
  const std::vector<DType> real{DType::kF32, DType::kF64, DType::kF16, DType::kBf16};
  std::vector<PackKind> kinds{{DType::kU8, DType::kU8, 1}, {DType::kI32, DType::kI32, 1}};
  for (const double scale : {1.0, 0.25, -3.0}) {
    for (const DType dtype : real) kinds.push_back({dtype, dtype, scale});
    for (const DType half : {DType::kF16, DType::kBf16}) {
      kinds.push_back({DType::kF32, half, scale});
      kinds.push_back({half, DType::kF32, scale});
    }
  }
  for (const PackKind& kind : kinds) {
    for (const std::size_t shift : {0U, 1U, 2U, 3U, 5U}) {
      if (check_kind(kind, shift)) continue;
      ++wrong;
      std::printf("  pack %s to %s, scale %g, shift %zu: WRONG\n",
                  std::string(base::name_of(kind.from)).c_str(),
                  std::string(base::name_of(kind.to)).c_str(), kind.scale, shift);
    }
  }
  // More pieces than one launch has room for.
  const std::size_t many = 2 * fusion::cuda::kMostPieces + 7;
  const GpuVector<int> from(std::vector<int>(many, 42));
  const GpuVector<int> to(std::vector<int>(many, 0));
  std::vector<PackPiece> pieces;
  for (std::size_t i = 0; i < many; ++i) {
    pieces.push_back({static_cast<int*>(from.get()) + i, static_cast<int*>(to.get()) + i, 1});
  }
  if (!good(fusion::cuda::pack(pieces, {DType::kI32, DType::kI32, 1}, multiprocessors(), nullptr),
            "pack") ||
      to.values() != from.values()) {
    ++wrong;
    std::printf("  %zu pieces: WRONG\n", many);
  }
  return wrong == 0 ? 0 : 1;
}

// The shortest time of some runs, in seconds.
template <class Run>
double seconds_of(Run run) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  (void)good(cudaEventCreate(&begin), "event");
  (void)good(cudaEventCreate(&end), "event");
  float best = 1e9F;
  for (int i = 0; i < 20; ++i) {
    (void)cudaEventRecord(begin);
    run();
    (void)cudaEventRecord(end);
    (void)good(cudaEventSynchronize(end), "running");
    float milliseconds = 0;
    (void)cudaEventElapsedTime(&milliseconds, begin, end);
    best = std::min(best, milliseconds);
  }
  (void)cudaEventDestroy(begin);
  (void)cudaEventDestroy(end);
  return static_cast<double>(best) / 1e3;
}

// Tensors below 1 MiB of many sizes, `bytes` in all: packed, unpacked, and copied in one piece.
void measure(std::size_t bytes) {
  void* scattered = nullptr;
  void* packed = nullptr;
  if (!good(cudaMalloc(&scattered, 2 * bytes), "cudaMalloc") ||
      !good(cudaMalloc(&packed, bytes), "cudaMalloc")) {
    return;
  }
  const std::size_t sizes[] = {256, 1024, 4096, 16384, 65536, 147456, 262144, 589824, 1000000};
  std::vector<PackPiece> in;
  std::vector<PackPiece> out;
  std::size_t done = 0;
  for (std::size_t i = 0; done < bytes; ++i) {
    const std::size_t size = std::min(sizes[i % std::size(sizes)], bytes - done);
    void* const tensor = static_cast<char*>(scattered) + 2 * done;
    void* const place = static_cast<char*>(packed) + done;
    in.push_back({tensor, place, static_cast<std::int64_t>(size / 4)});
    out.push_back({place, tensor, static_cast<std::int64_t>(size / 4)});
    done += size;
  }
  const int count = multiprocessors();
  const PackKind kind{DType::kF32, DType::kF32, 1};
  const auto both = seconds_of([&] {
    (void)good(fusion::cuda::pack(in, kind, count, nullptr), "pack");
    (void)good(fusion::cuda::pack(out, kind, count, nullptr), "unpack");
  });
  const auto one = seconds_of([&] {
    (void)good(cudaMemcpyAsync(packed, scattered, bytes, cudaMemcpyDeviceToDevice), "copy");
  });
  const auto each = seconds_of([&] {
    for (const PackPiece& piece : in) {
      (void)cudaMemcpyAsync(piece.to, piece.from, static_cast<std::size_t>(piece.elements) * 4,
                            cudaMemcpyDeviceToDevice);
    }
  });
  std::printf("result pack_unpack_%zuMiB_tensors=%zu\n", bytes >> 20, in.size());
  std::printf("result pack_unpack_%zuMiB_us=%.1f\n", bytes >> 20, both * 1e6);
  std::printf("result copy_%zuMiB_us=%.1f\n", bytes >> 20, one * 1e6);
  std::printf("result copy_each_%zuMiB_us=%.1f\n", bytes >> 20, each * 1e6);
  std::printf("result pack_unpack_%zuMiB_of_copy_bandwidth=%.3f\n", bytes >> 20, 2 * one / both);
  (void)cudaFree(scattered);
  (void)cudaFree(packed);
}

}  // namespace
}  // namespace ronde::gpu_test

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no GPU: skipped\n");
    return 77;
  }
  const std::string what = argc > 1 ? argv[1] : "check";
  if (what == "check") return ronde::gpu_test::check();
  for (const std::size_t mebibytes : {4U, 16U, 64U, 256U})
    ronde::gpu_test::measure(mebibytes << 20);
  return 0;
}
