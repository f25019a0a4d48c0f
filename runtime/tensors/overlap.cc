// SPDX-License-Identifier: Apache-2.0
// The memory that a tensor reads and writes, and its comparison with another tensor's.
#include "runtime/tensors/overlap.h"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace ronde::runtime {

using base::Status;

namespace {

// Memory that one view of a tensor uses, as [begin, end).
struct Use {
  const std::byte* begin;
  const std::byte* end;
  bool written;
  std::size_t view;
};

bool conflict(const Use& a, const Use& b) {
  const std::less<> below;
  return (a.written || b.written) && below(a.begin, b.end) && below(b.begin, a.end);
}

// How many elements at the output of a view the operation writes on this rank.
std::int64_t written_elements(const Signature& is, const base::TensorView& view, std::int32_t rank,
                              std::int32_t size) {
  const base::OperationRow& operation = row(is.operation);
  // The root's own tensor stays as it is, and a result belongs to the work, unless memory is given.
  if (operation.has_root && is.root == rank && view.input == view.output) return 0;
  if (operation.makes_result()) return view.output == nullptr ? 0 : size * view.elements.value();
  if (operation.out == base::Extent::kTensor) return view.elements.value();
  return rows_of_rank(is, rank, size) * row_elements(is.shape).value();
}

std::vector<Use> uses_of(const TensorMemory& tensor, std::int32_t rank, std::int32_t size) {
  std::vector<Use> uses;
  for (std::size_t i = 0; i < tensor.views.size(); ++i) {
    const base::TensorView& view = tensor.views[i];
    if (view.elements.value() == 0) continue;
    const std::int64_t written = written_elements(tensor.signature, view, rank, size);
    const std::int64_t bytes = written * base::size_of(view.dtype);
    // What is written comes first, since an error tells the first conflict.
    if (written > 0) uses.push_back({view.output, view.output + bytes, true, i});
    uses.push_back({view.input, view.input + view.bytes().value(), false, i});
  }
  return uses;
}

std::string text_of(const TensorMemory& tensor, std::size_t view) {
  const auto& members = tensor.signature.members;
  const std::string& name = members.empty() ? tensor.name : members[view].name;
  return "'" + name + "'" + (tensor.place.empty() ? "" : ", submitted at " + tensor.place);
}

}  // namespace

Status check_apart(const TensorMemory& in_flight, const TensorMemory& submitted, std::int32_t rank,
                   std::int32_t size) {
  const std::vector<Use> others = uses_of(in_flight, rank, size);
  for (const Use& use : uses_of(submitted, rank, size)) {
    for (const Use& other : others) {
      if (!conflict(use, other)) continue;
      return Status::error(base::Code::kInvalidArgument,
                           text_of(submitted, use.view) + ": its memory overlaps with that of " +
                               text_of(in_flight, other.view) + " and still in flight, and " +
                               (use.written && other.written ? "both are" : "one of them is") +
                               " written: keep them apart, or wait for the earlier one first");
    }
  }
  return {};
}

}  // namespace ronde::runtime
