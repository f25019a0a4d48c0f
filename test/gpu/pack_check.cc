// SPDX-License-Identifier: Apache-2.0
// The pack kernel on a GPU, against the host.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "fusion/cuda/pack.cuh"
#include "test/device/device.h"
#include "test/gpu/cuda.h"

namespace ronde::gpu_test {
namespace {

using base::DType;
using device_test::DeviceMemory;
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
  const DeviceMemory from(input);
  const DeviceMemory to(Bytes(expected.size(), 0xEE));
  std::vector<PackPiece> pieces;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    pieces.push_back({static_cast<unsigned char*>(from.get()) + starts[i],
                      static_cast<unsigned char*>(to.get()) + ends[i], lengths[i]});
  }
  return good(fusion::cuda::pack(pieces, kind, multiprocessors(), nullptr), "pack") &&
         good(cudaDeviceSynchronize(), "the kernel") && to.values<unsigned char>() == expected;
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
  const DeviceMemory from(std::vector<int>(many, 42));
  const DeviceMemory to(std::vector<int>(many, 0));
  std::vector<PackPiece> pieces;
  for (std::size_t i = 0; i < many; ++i) {
    pieces.push_back({static_cast<int*>(from.get()) + i, static_cast<int*>(to.get()) + i, 1});
  }
  if (!good(fusion::cuda::pack(pieces, {DType::kI32, DType::kI32, 1}, multiprocessors(), nullptr),
            "pack") ||
      to.values<int>() != from.values<int>()) {
    ++wrong;
    std::printf("  %zu pieces: WRONG\n", many);
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ronde::gpu_test

int main() {
  if (!ronde::gpu_test::has_gpu()) {
    std::printf("no GPU: skipped\n");
    return 77;
  }
  return ronde::gpu_test::check();
}
