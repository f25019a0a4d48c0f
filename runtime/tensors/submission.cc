// SPDX-License-Identifier: Apache-2.0
// The checks of names, shapes, splits and memory that each operation asks for.
#include "runtime/tensors/submission.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>

#include "base/text.h"
#include "collectives/board/arena.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr std::size_t kLongestName = 4096;

Status wrong(const std::string& name, const std::string& what) {
  return Status::error(Code::kInvalidArgument, "'" + name + "': " + what);
}

Status check_name(const std::string& name) {
  if (!name.empty() && name.size() <= kLongestName) return {};
  return Status::error(Code::kInvalidArgument,
                       "a tensor's name has 1 to " + std::to_string(kLongestName) + " bytes");
}

Result<base::Bytes> bytes_of(const base::Shape& shape, base::DType dtype) {
  RONDE_ASSIGN_OR_RETURN(const auto elements, base::elements_of(shape));
  return base::bytes_of(elements, dtype);
}

// Checks what an operation does with the values.
Status check_arithmetic(const std::string& name, const Signature& is) {
  if (!row(is.operation).reduces) return {};
  if (!base::is_defined(is.dtype, is.op)) {
    if (is.op == base::ReduceOp::kAverage && is.dtype != base::DType::kBool) {
      return wrong(name, "the average of " + std::string(base::name_of(is.dtype)) +
                             " is not defined, since its sum would wrap around: use a sum, or a "
                             "wider type");
    }
    return wrong(name, std::string(base::name_of(is.op)) + " is not defined for " +
                           std::string(base::name_of(is.dtype)));
  }
  if (!base::is_floating(is.dtype) && (is.prescale != 1.0 || is.postscale != 1.0)) {
    return wrong(name, "integers cannot be scaled: leave prescale and postscale at 1");
  }
  if (is.compression != base::Compression::kNone && is.dtype != base::DType::kF32) {
    return wrong(name, "compression " + std::string(base::name_of(is.compression)) +
                           " is for f32, not for " + std::string(base::name_of(is.dtype)) +
                           ": set it to none");
  }
  return {};
}

// Checks the weights of an average; whether their sum over all ranks can be used shows later.
Status check_weights(const std::string& name, const Signature& is,
                     const std::vector<double>& weights) {
  if (!is.weighted) return {};
  if (is.op != base::ReduceOp::kAverage) {
    return wrong(name, std::string(base::name_of(is.op)) +
                           " has no weights: use an average, or give no weight");
  }
  if (!base::is_floating(is.dtype)) {
    return wrong(name, "there is no average by weights of " + std::string(base::name_of(is.dtype)) +
                           ": use a floating type, or give no weight");
  }
  for (const double weight : weights) {
    if (std::isfinite(weight) && weight >= 0.0) continue;
    return wrong(name, "its weight is " + base::number_text(weight, 17) +
                           ": give it a finite number, not below 0, such as the number of samples");
  }
  return {};
}

// Checks that there is one number per rank and that they add up to the rows.
Status check_splits(const std::string& name, const std::vector<std::int64_t>& splits,
                    std::int64_t rows, std::int32_t size) {
  if (!std::cmp_equal(splits.size(), size)) {
    return wrong(name, "splits has " + std::to_string(splits.size()) + " numbers for " +
                           std::to_string(size) + " ranks: give one for each");
  }
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < splits.size(); ++i) {
    if (splits[i] < 0) {
      return wrong(name, "splits[" + std::to_string(i) + "] is " + std::to_string(splits[i]) +
                             ": a number of rows is never negative");
    }
    // A split beyond the remaining rows is wrong however large it is; so the sum never overflows.
    if (splits[i] > rows - sum) {
      return wrong(name, "the splits " + base::to_string(splits) + " add up to more than the " +
                             std::to_string(rows) + " rows of the tensor");
    }
    sum += splits[i];
  }
  if (sum == rows) return {};
  return wrong(name, "the splits " + base::to_string(splits) + " add up to " + std::to_string(sum) +
                         ", but the tensor has " + std::to_string(rows) + " rows");
}

// Checks the first dimension and the splits of operations that cut or join along it. Fills in
// splits that no other rank learns.
Status check_rows(Submission& submission, std::int32_t size) {
  const Signature& is = submission.signature;
  const base::OperationRow& operation = row(is.operation);
  if (!operation.has_rows()) return {};
  const bool splits = operation.in == base::Extent::kBlocks;
  if (is.shape.empty()) {
    return wrong(submission.name, "a scalar cannot be " +
                                      std::string(splits ? "split" : "gathered") +
                                      ": give it a first dimension");
  }
  base::Shape row = is.shape;
  row.front() = 1;
  const auto row_bytes = bytes_of(row, is.dtype);
  if (!row_bytes.ok()) return wrong(submission.name, "one row: " + row_bytes.status().message());
  const std::int64_t rows = is.shape.front();
  if (!is.splits.empty()) return check_splits(submission.name, is.splits, rows, size);
  if (!operation.has_own_rows()) return {};
  if (!submission.splits.empty()) {
    return check_splits(submission.name, submission.splits, rows, size);
  }
  if (rows % size != 0) {
    return wrong(submission.name, std::to_string(rows) + " rows cannot be dealt evenly to " +
                                      std::to_string(size) + " ranks: give splits");
  }
  submission.splits.assign(static_cast<std::size_t>(size), rows / size);
  return {};
}

// Memory that is read or written, as [begin, end).
struct Range {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
};

bool disjoint(const Range& a, const Range& b) {
  const std::less_equal<> up_to;
  return a.begin == a.end || b.begin == b.end || up_to(a.end, b.begin) || up_to(b.end, a.begin);
}

// A caller may give memory for an allgather's result, of the host: room for this rank's rows from
// every rank, among which the input may lie at its own place.
Status check_room(const std::string& name, const Signature& is, std::int64_t bytes,
                  base::TensorView& memory, std::int32_t rank, std::int32_t size) {
  if (row(is.operation).has_own_rows() || is.device >= 0) memory.output = nullptr;
  if (memory.output == nullptr) return {};
  const auto all = base::checked_product(bytes, size);
  if (!all) return wrong(name, "the result of all ranks has more than 2^63 - 1 bytes");
  const std::int64_t place = rank * bytes;
  if (memory.input == memory.output + place ||
      disjoint({memory.input, memory.input + bytes}, {memory.output, memory.output + *all})) {
    return {};
  }
  return wrong(name, "the input lies in the output, but not at this rank's rows, " +
                         std::to_string(place) + " bytes from its start: put it there, or outside");
}

// Checks the memory of one tensor, and fills in the rest of its view. Where a rank keeps a block it
// writes its own rows only; in place means that the output is where these rows lie in the input.
Status check_memory(const std::string& name, const Signature& is, const base::Shape& shape,
                    base::TensorView& memory, std::int32_t rank, std::int32_t size) {
  const base::OperationRow& operation = row(is.operation);
  const auto bytes = bytes_of(shape, is.dtype);
  if (!bytes.ok()) return wrong(name, bytes.status().message());
  memory.dtype = is.dtype;
  memory.elements = base::elements_of(shape).value();
  if (bytes->value() == 0) return {};
  const bool keeps_block = operation.out == base::Extent::kBlock;
  std::int64_t output_bytes = bytes->value();
  std::int64_t in_place = 0;  // where in the input the output lies, if it lies there
  if (keeps_block) {
    const std::int64_t row_bytes = bytes->value() / shape.front();
    output_bytes = rows_of_rank(is, rank, size) * row_bytes;
    in_place = rows_before_rank(is, rank, size) * row_bytes;
  } else if (operation.makes_result()) {
    output_bytes = 0;
  }
  if (memory.input == nullptr || (output_bytes > 0 && memory.output == nullptr)) {
    return wrong(name, "the memory is a null pointer");
  }
  if (operation.makes_result()) return check_room(name, is, bytes->value(), memory, rank, size);
  if (output_bytes == 0 || memory.output == memory.input + in_place) return {};
  if (disjoint({memory.input, memory.input + bytes->value()},
               {memory.output, memory.output + output_bytes})) {
    return {};
  }
  return wrong(name, keeps_block ? "the output lies in the input, but not at this rank's rows, " +
                                       std::to_string(in_place) +
                                       " bytes from its start: put it there, or outside"
                                 : "input and output overlap partly: make them equal or disjoint");
}

// What one member writes must not be read or written by another, because their order is undefined.
Status check_apart(const Submission& group) {
  struct MemberUse {
    Range range;
    std::size_t member;
    bool written;
  };
  std::vector<MemberUse> uses;
  for (std::size_t i = 0; i < group.views.size(); ++i) {
    const base::TensorView& view = group.views[i];
    const std::int64_t bytes = view.bytes().value();
    if (bytes == 0) continue;
    uses.push_back({{view.output, view.output + bytes}, i, true});
    if (view.input != view.output) uses.push_back({{view.input, view.input + bytes}, i, false});
  }
  std::sort(uses.begin(), uses.end(), [](const MemberUse& a, const MemberUse& b) {
    return std::less<>()(a.range.begin, b.range.begin);
  });
  // With uses sorted by their beginnings, each one need only be compared with two before it: the
  // one that reaches furthest, and the written one that reaches furthest.
  const MemberUse* furthest = nullptr;
  const MemberUse* furthest_written = nullptr;
  const auto further = [](const MemberUse* old, const MemberUse& one) {
    return old == nullptr || std::less<>()(old->range.end, one.range.end) ? &one : old;
  };
  for (const MemberUse& use : uses) {
    const MemberUse* const other = use.written ? furthest : furthest_written;
    if (other != nullptr && !disjoint(other->range, use.range)) {
      const auto& members = group.signature.members;
      return wrong(members[use.member].name, "its memory overlaps with that of '" +
                                                 members[other->member].name +
                                                 "' in the same group: keep them apart");
    }
    furthest = further(furthest, use);
    if (use.written) furthest_written = further(furthest_written, use);
  }
  return {};
}

// Checks the members' memory, and fills in the shape of the whole.
Status check_group(Submission& group, std::int32_t rank, std::int32_t size) {
  Signature& is = group.signature;
  if (!row(is.operation).fuses) {
    return Status::error(Code::kUnsupported, "'" + group.name + "': there is no grouped " +
                                                 std::string(name_of(is.operation)) +
                                                 ": submit its tensors one by one");
  }
  base::check(is.members.size() == group.views.size(), "every member has its memory");
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < is.members.size(); ++i) {
    const GroupMember& member = is.members[i];
    RONDE_RETURN_IF_ERROR(check_name(member.name));
    RONDE_RETURN_IF_ERROR(check_memory(member.name, is, member.shape, group.views[i], rank, size));
    if (__builtin_add_overflow(sum, group.views[i].elements.value(), &sum)) sum = -1;
    if (sum < 0 || !base::bytes_of(base::Elements(sum), is.dtype).ok()) {
      return wrong(group.name, "its tensors together are more than 2^63 - 1 bytes");
    }
  }
  is.shape = {sum};
  return check_apart(group);
}

Status check_tensor(Submission& submission, std::int32_t rank, std::int32_t size) {
  const Signature& is = submission.signature;
  if (row(is.operation).is_barrier()) {
    submission.views.clear();
    return {};
  }
  RONDE_RETURN_IF_ERROR(check_arithmetic(submission.name, is));
  RONDE_RETURN_IF_ERROR(check_weights(submission.name, is, submission.weights));
  if (row(is.operation).has_root && (is.root < 0 || is.root >= size)) {
    return wrong(submission.name, "root " + std::to_string(is.root) +
                                      " is no rank of this job: use 0 to " +
                                      std::to_string(size - 1));
  }
  if (!is.members.empty()) return check_group(submission, rank, size);
  const auto bytes = bytes_of(is.shape, is.dtype);
  if (!bytes.ok()) return wrong(submission.name, bytes.status().message());
  RONDE_RETURN_IF_ERROR(check_rows(submission, size));
  return check_memory(submission.name, is, is.shape, submission.views.front(), rank, size);
}

}  // namespace

Result<Submission> group_of(std::vector<Submission> tensors) {
  base::check(!tensors.empty(), "a group has at least one tensor");
  Submission group;
  group.name = "group of " + tensors.front().name;
  group.place = tensors.front().place;
  group.will_wait = tensors.front().will_wait;
  group.step = tensors.front().step;
  group.deadline = tensors.front().deadline;
  group.signature = tensors.front().signature;
  group.signature.shape.clear();
  group.views.clear();
  const Signature first = normalized(tensors.front().signature);
  for (const Submission& tensor : tensors) {
    const Signature is = normalized(tensor.signature);
    Signature same_shape = is;
    same_shape.shape = first.shape;
    if (same_shape == first) continue;
    return wrong(tensor.name, "it is " + describe(is) + ", but '" + tensors.front().name +
                                  "', the first of its group, is " + describe(first) +
                                  ": only shapes may differ within a group");
  }
  for (Submission& tensor : tensors) {
    group.signature.members.push_back({tensor.name, std::move(tensor.signature.shape)});
    group.views.push_back(tensor.views.front());
    group.weights.insert(group.weights.end(), tensor.weights.begin(), tensor.weights.end());
    tensor.readiness.resize(1);
    group.readiness.push_back(tensor.readiness.front());
  }
  return group;
}

Result<LocalTensorPtr> check_submission(Submission&& submission, std::int32_t rank,
                                        std::int32_t size) {
  // A group's name is made from its first member's, which check_group() checks.
  if (submission.signature.members.empty()) RONDE_RETURN_IF_ERROR(check_name(submission.name));
  auto tensor = std::make_shared<LocalTensor>(std::move(submission));
  if (!row(tensor->signature.operation).has_own_rows()) {
    tensor->signature.splits = std::move(tensor->splits);
    tensor->splits.clear();
  }
  normalize(tensor->signature);
  RONDE_RETURN_IF_ERROR(check_tensor(*tensor, rank, size));
  const bool waits = on_device(tensor->signature);
  if (!tensor->signature.weighted) tensor->weights.clear();
  tensor->readiness.resize(waits ? std::max<std::size_t>(1, tensor->views.size()) : 0);
  return tensor;
}

bool may_be_used_in_place(const LocalTensor& tensor, std::span<const std::byte> arena,
                          base::Bytes small) {
  const Signature& is = tensor.signature;
  if (!row(is.operation).in_place || is.device >= 0 || is.compression != base::Compression::kNone ||
      tensor.bytes() <= small) {
    return false;
  }
  return std::all_of(tensor.views.begin(), tensor.views.end(), [&](const base::TensorView& view) {
    if (view.elements.value() == 0) return true;
    // What others only read may be apart from the output.
    return (view.input == view.output || row(is.operation).out != base::Extent::kTensor) &&
           collectives::lies_in(arena, view.input, view.bytes().size());
  });
}

}  // namespace ronde::runtime
