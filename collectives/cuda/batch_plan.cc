// SPDX-License-Identifier: Apache-2.0
// The rules by which tensors are packed, scaled and reduced, and what of a batch is refused.
#include "collectives/cuda/batch_plan.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

namespace ronde::collectives::cuda {

namespace {

using base::Compression;
using base::DType;
using base::ReduceOp;
using base::Status;

constexpr std::int64_t kAlignment = 16;  // tensors in the buffer: as the kernel's vectors

std::span<const ronde_plugin_tensor> tensors_of(const ronde_plugin_batch& batch) {
  return {batch.tensors, base::narrow<std::size_t>(batch.tensor_count)};
}

DType dtype_of(const ronde_plugin_batch& batch) { return static_cast<DType>(batch.dtype); }

bool reduces(const ronde_plugin_batch& batch) {
  return batch.operation == RONDE_PLUGIN_ALLREDUCE ||
         batch.operation == RONDE_PLUGIN_REDUCE_SCATTER;
}

Status check_tensors(const ronde_plugin_batch& batch, const Group& group) {
  const auto count = [&](int expected) {
    return batch.tensor_count == expected
               ? Status()
               : refused("a batch of " + std::to_string(batch.tensor_count) + " tensors, not " +
                         std::to_string(expected));
  };
  switch (batch.operation) {
    case RONDE_PLUGIN_ALLREDUCE:
      break;
    case RONDE_PLUGIN_BROADCAST:
      if (batch.root >= 0 && batch.root < group.size) break;
      return refused("there is no rank " + std::to_string(batch.root) + " to broadcast from");
    case RONDE_PLUGIN_ALLGATHER:
    case RONDE_PLUGIN_REDUCE_SCATTER:
      RONDE_RETURN_IF_ERROR(count(group.size));
      break;
    case RONDE_PLUGIN_ALL_TO_ALL:
      RONDE_RETURN_IF_ERROR(count(2 * group.size));
      break;
    case RONDE_PLUGIN_BARRIER:
      // A barrier has a tensor only for its stream.
      if (batch.tensor_count == 0) return {};
      RONDE_RETURN_IF_ERROR(count(1));
      if (tensors_of(batch).front().elements == 0) return {};
      return refused("a barrier of " + std::to_string(tensors_of(batch).front().elements) +
                     " elements");
    default:
      return refused("there is no operation " + std::to_string(batch.operation));
  }
  for (const ronde_plugin_tensor& tensor : tensors_of(batch)) {
    if (tensor.elements < 0 || tensor.elements > INT64_MAX / 16) {
      return refused("a tensor of " + std::to_string(tensor.elements) + " elements");
    }
  }
  return {};
}

// Refuses what NCCL has no type or operation for.
Status check_reduction(const ronde_plugin_batch& batch) {
  const DType dtype = dtype_of(batch);
  const auto op = base::reduce_op_from_value(batch.op);
  if (!op) return refused("there is no reduction " + std::to_string(batch.op));
  if (!base::compression_from_value(batch.compression)) {
    return refused("there is no compression " + std::to_string(batch.compression));
  }
  const std::string name(base::name_of(dtype));
  if (base::is_bitwise(*op)) {
    return refused("'" + std::string(base::name_of(*op)) + "' cannot be done on a GPU");
  }
  if (dtype == DType::kU16 || dtype == DType::kI16 || dtype == DType::kBool) {
    return refused(name + " cannot be reduced on a GPU");
  }
  if ((batch.prescale != 1.0 || batch.postscale != 1.0) && !base::is_floating(dtype)) {
    return refused(name + " cannot be scaled");
  }
  if (batch.compression != 0 && dtype != DType::kF32) {
    return refused(name + " cannot be compressed, f32 can");
  }
  return {};
}

bool is_linear(ReduceOp op) { return op == ReduceOp::kSum || op == ReduceOp::kAverage; }

bool is_half(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBf16; }

bool is_power_of_two(double value) {
  int exponent = 0;
  return std::abs(std::frexp(value, &exponent)) == 0.5;
}

// The scale factors of a reduction, an average's included.
struct Factors {
  double before = 1.0;  // multiplies each contribution
  double after = 1.0;   // multiplies the result, an average's 1 / ranks included
  [[nodiscard]] double both() const { return before * after; }
};

// Whether NCCL may reduce tensors where they lie, when all it can do is to multiply contributions
// by one number, in their own type, before it sums them in that type.
//
// For f32 and f64 one number in place of two changes a rounding or two, unless it is so large or
// small that the type has no such number.
//
// f16 and bf16 keep 11 and 8 bits: a factor such as 1/3 is wrong by up to 1/512 then, for all
// elements alike, and every product is rounded once more. So only powers of two will do, whose
// products are exact. The number must be at most 1, since a contribution may be too large for f16
// where the sum is not; and not so small that f16 has no full precision for it. With anything else
// such tensors are packed, scaled and summed in f32, and rounded once.
bool can_multiply_in_place(DType dtype, const Factors& factors) {
  const double number = factors.both();
  if (is_half(dtype)) {
    constexpr double kSmallestF16 = 0x1p-14;
    return is_power_of_two(factors.before) && is_power_of_two(factors.after) &&
           number >= kSmallestF16 && number <= 1.0;
  }
  return dtype == DType::kF64 ? std::isnormal(number) : std::isnormal(static_cast<float>(number));
}

// Chooses the type in which packed numbers are reduced: f32 for f16 and bf16, so that they are
// rounded once. Min and max need no rounding.
DType type_in_buffer(DType dtype, ReduceOp op, bool scaled, Compression compression) {
  if (compression != Compression::kNone) return base::wire_dtype(dtype, compression);
  const bool picks = op == ReduceOp::kMin || op == ReduceOp::kMax;
  return is_half(dtype) && (scaled || !picks) ? DType::kF32 : dtype;
}

// Decides where the scale factors are applied. For what is packed the pack kernel does it while it
// copies, which costs nothing.
void place_scales(const ronde_plugin_batch& batch, const Group& group, BatchLayout& layout) {
  const DType dtype = dtype_of(batch);
  const auto op = static_cast<ReduceOp>(batch.op);
  const auto compression = static_cast<Compression>(batch.compression);
  const bool scaled = batch.prescale != 1.0 || batch.postscale != 1.0;
  const bool averages = op == ReduceOp::kAverage && base::is_floating(dtype);
  const DType wire = type_in_buffer(dtype, op, scaled, compression);
  layout.in_buffer.op = averages ? ReduceOp::kSum : op;
  layout.in_place.op = op;
  layout.all_in_buffer = compression != Compression::kNone || (scaled && !is_linear(op));
  Factors factors{batch.prescale, batch.postscale / (averages ? group.size : 1)};
  if (is_linear(op) && base::is_floating(dtype) && (scaled || averages)) {
    layout.all_in_buffer = layout.all_in_buffer || !can_multiply_in_place(dtype, factors);
    if (scaled) layout.in_place = {ReduceOp::kSum, factors.both()};
  }
  if (averages && wire == DType::kF16) {
    // The sum may be too large for the type where the average is not.
    factors = {factors.before / group.size, batch.postscale};
  }
  layout.pack_kind = {dtype, wire, factors.before};
  layout.unpack_kind = {wire, dtype, factors.after};
}

bool is_small(const ronde_plugin_batch& batch, const ronde_plugin_tensor& tensor) {
  return tensor.elements > 0 && tensor.elements * base::size_of(dtype_of(batch)) < kPackBelow;
}

void place_tensors(const ronde_plugin_batch& batch, BatchLayout& layout) {
  const auto tensors = tensors_of(batch);
  layout.offsets.assign(tensors.size(), BatchLayout::kInPlace);
  const bool some =
      batch.operation == RONDE_PLUGIN_ALLREDUCE || batch.operation == RONDE_PLUGIN_BROADCAST;
  const auto small = std::count_if(tensors.begin(), tensors.end(),
                                   [&](const auto& tensor) { return is_small(batch, tensor); });
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    // A single tensor gains nothing from being copied.
    const bool packed = layout.all_in_buffer || (some && small > 1 && is_small(batch, tensors[i]));
    if (!packed || tensors[i].elements == 0) continue;
    layout.offsets[i] = layout.buffer_bytes;
    const std::int64_t bytes = tensors[i].elements * base::size_of(layout.pack_kind.to);
    layout.buffer_bytes += base::ceil_div(bytes, kAlignment) * kAlignment;
  }
}

// Builds the plan of one batch.
class Planner {
 public:
  Planner(const ronde_plugin_batch& batch, const BatchLayout& layout, const Group& group,
          std::byte* buffer)
      : batch_(batch), layout_(layout), group_(group), buffer_(buffer) {
    plan_.pack_kind = layout.pack_kind;
    plan_.unpack_kind = layout.unpack_kind;
  }

  BatchPlan plan() {
    const auto tensors = tensors_of(batch_);
    if (batch_.operation == RONDE_PLUGIN_BARRIER) {
      plan_.moves.push_back({MoveKind::kAllreduce, buffer_, buffer_, 1, DType::kI32, {}, 0});
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].elements > 0) add(i, tensors[i]);
    }
    if (packed_end_ > 0 && batch_.operation != RONDE_PLUGIN_REDUCE_SCATTER) {
      add_packed();
    }
    return std::move(plan_);
  }

 private:
  void add(std::size_t index, const ronde_plugin_tensor& tensor) {
    const int number = base::narrow<int>(index);
    switch (batch_.operation) {
      case RONDE_PLUGIN_ALLREDUCE:
        return add_reduction(index, tensor, MoveKind::kAllreduce, 0);
      case RONDE_PLUGIN_REDUCE_SCATTER:
        return add_reduction(index, tensor, MoveKind::kReduce, number);
      case RONDE_PLUGIN_BROADCAST:
        return add_broadcast(index, tensor);
      case RONDE_PLUGIN_ALLGATHER:
        return move_bytes(MoveKind::kBroadcast, tensor, number);
      default:
        if (number < group_.size) return move_bytes(MoveKind::kSend, tensor, number);
        return move_bytes(MoveKind::kReceive, tensor, number - group_.size);
    }
  }

  std::byte* packed(std::size_t index, std::int64_t bytes) {
    const std::int64_t offset = layout_.offsets[index];
    packed_end_ = std::max(packed_end_, offset + bytes);
    return buffer_ + offset;
  }

  void add_reduction(std::size_t index, const ronde_plugin_tensor& tensor, MoveKind kind,
                     int root) {
    if (layout_.offsets[index] == BatchLayout::kInPlace) {
      plan_.moves.push_back({kind, tensor.input, tensor.output, tensor.elements, dtype_of(batch_),
                             layout_.in_place, root});
      return;
    }
    const DType wire = layout_.pack_kind.to;
    std::byte* const place = packed(index, tensor.elements * base::size_of(wire));
    plan_.pack.push_back({tensor.input, place, tensor.elements});
    if (kind == MoveKind::kReduce) {
      plan_.moves.push_back({kind, place, place, tensor.elements, wire, layout_.in_buffer, root});
    }
    if (kind == MoveKind::kAllreduce || root == group_.rank) {
      plan_.unpack.push_back({place, tensor.output, tensor.elements});
    }
  }

  void add_broadcast(std::size_t index, const ronde_plugin_tensor& tensor) {
    if (layout_.offsets[index] == BatchLayout::kInPlace) {
      return move_bytes(MoveKind::kBroadcast, tensor, batch_.root);
    }
    std::byte* const place = packed(index, tensor.elements * base::size_of(dtype_of(batch_)));
    const bool root = group_.rank == batch_.root;
    if (root) plan_.pack.push_back({tensor.input, place, tensor.elements});
    if (!root || tensor.input != tensor.output) {
      plan_.unpack.push_back({place, tensor.output, tensor.elements});
    }
  }

  void move_bytes(MoveKind kind, const ronde_plugin_tensor& tensor, int peer) {
    const std::int64_t bytes = tensor.elements * base::size_of(dtype_of(batch_));
    plan_.moves.push_back({kind, tensor.input, tensor.output, bytes, DType::kU8, {}, peer});
  }

  // All packed tensors are reduced as one vector.
  void add_packed() {
    if (batch_.operation == RONDE_PLUGIN_BROADCAST) {
      plan_.moves.push_back(
          {MoveKind::kBroadcast, buffer_, buffer_, packed_end_, DType::kU8, {}, batch_.root});
      return;
    }
    const DType wire = layout_.pack_kind.to;
    plan_.moves.push_back({MoveKind::kAllreduce, buffer_, buffer_,
                           packed_end_ / base::size_of(wire), wire, layout_.in_buffer, 0});
  }

  const ronde_plugin_batch& batch_;
  const BatchLayout& layout_;
  const Group group_;
  std::byte* const buffer_;
  std::int64_t packed_end_ = 0;  // bytes of the buffer
  BatchPlan plan_;
};

}  // namespace

base::Result<BatchLayout> layout_of(const ronde_plugin_batch& batch, const Group& group) {
  if (!base::dtype_from_value(batch.dtype)) {
    return refused("there is no dtype " + std::to_string(batch.dtype));
  }
  RONDE_RETURN_IF_ERROR(check_tensors(batch, group));
  BatchLayout layout;
  layout.pack_kind = layout.unpack_kind = {dtype_of(batch), dtype_of(batch), 1.0};
  if (reduces(batch)) {
    RONDE_RETURN_IF_ERROR(check_reduction(batch));
    place_scales(batch, group, layout);
  }
  place_tensors(batch, layout);
  // A barrier is an allreduce of one number.
  if (batch.operation == RONDE_PLUGIN_BARRIER) layout.buffer_bytes = kAlignment;
  return layout;
}

ronde_plugin_batch barrier_batch() {
  ronde_plugin_batch batch{};
  batch.struct_size = sizeof batch;
  batch.operation = RONDE_PLUGIN_BARRIER;
  batch.prescale = batch.postscale = 1.0;
  return batch;
}

BatchPlan plan_of(const ronde_plugin_batch& batch, const BatchLayout& layout, const Group& group,
                  std::byte* buffer) {
  return Planner(batch, layout, group, buffer).plan();
}

}  // namespace ronde::collectives::cuda
