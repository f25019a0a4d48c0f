// SPDX-License-Identifier: Apache-2.0
// Comparing what the ranks said: see disagreement.h.
#include "runtime/disagreement.h"

#include <algorithm>

namespace ronde::runtime {

namespace {

using base::Code;
using base::Status;

struct Group {
  const Statement* statement;
  std::vector<std::int32_t> ranks;
};

Status disagreement(const std::string& name, const std::vector<Statement>& statements) {
  std::vector<Group> groups;
  for (std::size_t rank = 0; rank < statements.size(); ++rank) {
    const auto same = [&](const Group& group) {
      return group.statement->signature == statements[rank].signature;
    };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end()) group = groups.insert(groups.end(), {&statements[rank], {}});
    group->ranks.push_back(base::narrow<std::int32_t>(rank));
  }
  std::string text = "'" + name + "': the ranks disagree: ";
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (i != 0) text += ", ";
    text += ranks_phrase(groups[i].ranks) + " said " + describe(groups[i].statement->signature);
    if (!groups[i].statement->place.empty()) text += " at " + groups[i].statement->place;
  }
  return Status::error(Code::kMismatch, text + ". Make the calls agree");
}

}  // namespace

base::Result<AgreedTensor> agree_on(const std::string& name,
                                    const std::vector<Statement>& statements) {
  base::check(!statements.empty(), "a job has at least one rank");
  AgreedTensor tensor;
  tensor.signature = statements.front().signature;
  for (const Statement& statement : statements) {
    if (!agree(tensor.signature, statement.signature)) return disagreement(name, statements);
  }
  if (tensor.signature.operation != Operation::kAllgather) return tensor;
  if (tensor.signature.shape.empty()) {
    return Status::error(Code::kInvalidArgument,
                         "'" + name + "': a scalar cannot be gathered: give it a first dimension");
  }
  std::int64_t rows = 0;
  for (const Statement& statement : statements) {
    const std::int64_t first = statement.signature.shape[0];
    tensor.first_dimensions.push_back(first);
    if (__builtin_add_overflow(rows, first, &rows)) rows = -1;
    if (rows < 0) break;
  }
  base::Shape whole = tensor.signature.shape;
  whole[0] = rows;
  const auto elements = base::elements_of(whole);
  if (!elements.ok() || !base::bytes_of(*elements, tensor.signature.dtype).ok()) {
    return Status::error(Code::kInvalidArgument,
                         "'" + name + "': the gathered tensor would be larger than 2^63 - 1 bytes");
  }
  return tensor;
}

}  // namespace ronde::runtime
