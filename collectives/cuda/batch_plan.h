// SPDX-License-Identifier: Apache-2.0
// Plans a batch for a GPU: pieces to pack, calls of NCCL (one group), pieces to unpack. Pure.
// Small tensors go through one buffer; large ones are reduced where they lie. Which are small, and
// where they lie in the buffer, depends only on what the ranks have agreed on: it is the same on
// all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "collectives/device/plugin.h"
#include "fusion/cuda/pack.cuh"
#include "fusion/tiles.h"

namespace ronde::collectives::cuda {

// The caller asked for what this back end does not do, and the job goes on.
inline base::Status refused(const std::string& why) {
  return base::Status::error(base::Code::kInvalidArgument, why);
}

// Tensors of at least this many bytes are not packed: a call of NCCL is short beside their copy.
inline constexpr std::int64_t kPackBelow = 1 << 20;

// How NCCL reduces: kAverage is its own average, which integers need; a multiplier is for sums of
// floating-point numbers.
struct Fold {
  base::ReduceOp op = base::ReduceOp::kSum;
  double multiplier = 1.0;

  friend bool operator==(const Fold&, const Fold&) = default;
};

enum class MoveKind : std::uint8_t { kAllreduce, kBroadcast, kReduce, kSend, kReceive };

struct Move {
  MoveKind kind = MoveKind::kAllreduce;
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t elements = 0;
  base::DType dtype = base::DType::kU8;
  Fold fold;
  int peer = 0;  // or the root
};

struct Group {
  int rank = 0;
  int size = 1;
};

// Where in the buffer each tensor lies, and how it is converted on the way in and out.
struct BatchLayout {
  static constexpr std::int64_t kInPlace = -1;

  std::vector<std::int64_t> offsets;  // by tensor, bytes; kInPlace: not in the buffer
  std::int64_t buffer_bytes = 0;
  bool all_in_buffer = false;  // NCCL alone cannot do it, or not well
  fusion::cuda::PackKind pack_kind;
  fusion::cuda::PackKind unpack_kind;
  Fold in_buffer;
  Fold in_place;
};

// kInvalidArgument: this back end cannot do it, or the batch makes no sense.
base::Result<BatchLayout> layout_of(const ronde_plugin_batch& batch, const Group& group);

// What makes the ranks meet, and moves nothing.
[[nodiscard]] ronde_plugin_batch barrier_batch();

struct BatchPlan {
  std::vector<fusion::PackPiece> pack;
  std::vector<Move> moves;
  std::vector<fusion::PackPiece> unpack;
  fusion::cuda::PackKind pack_kind;
  fusion::cuda::PackKind unpack_kind;
};

// `buffer` has layout.buffer_bytes.
[[nodiscard]] BatchPlan plan_of(const ronde_plugin_batch& batch, const BatchLayout& layout,
                                const Group& group, std::byte* buffer);

}  // namespace ronde::collectives::cuda
