// SPDX-License-Identifier: Apache-2.0
// The comparison of the ranks' statements, and the text that groups ranks by their statement.
#include "runtime/negotiate/disagreement.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "base/text.h"

namespace ronde::runtime {

namespace {

using base::Code;
using base::Status;

using Statements = std::vector<Statement>;

// Returns "ranks 0-2 submitted X at train.cc:40, rank 3 submitted Y at train.cc:41", where
// `words` makes X and Y.
std::string who_submitted_what(const Statements& statements,
                               const std::function<std::string(const Signature&)>& words) {
  struct Group {
    std::string submitted;
    std::string place;
    std::vector<std::int32_t> ranks;
  };
  std::vector<Group> groups;
  for (std::size_t rank = 0; rank < statements.size(); ++rank) {
    if (statements[rank].absent) continue;
    const std::string submitted = words(statements[rank].signature);
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& known) { return known.submitted == submitted; });
    if (group == groups.end()) {
      group = groups.insert(groups.end(), {submitted, statements[rank].place, {}});
    }
    group->ranks.push_back(base::narrow<std::int32_t>(rank));
  }
  std::string text;
  for (const Group& group : groups) {
    if (!text.empty()) text += ", ";
    text += base::ranks_phrase(group.ranks) + " submitted " + group.submitted;
    if (!group.place.empty()) text += " at " + group.place;
  }
  return text;
}

// The first tensor of a group at which the ranks disagree; nothing when they disagree about
// something else, or when a rank submitted no group.
std::optional<std::size_t> differing_member(const Statements& statements) {
  const Signature& first = statements.front().signature;
  std::optional<std::size_t> differs;
  for (const Statement& statement : statements) {
    const Signature& other = statement.signature;
    if (other.members.empty() || first.members.empty()) return std::nullopt;
    Signature same_members = other;
    same_members.members = first.members;
    same_members.shape = first.shape;  // the elements of all members
    if (!(same_members == first)) return std::nullopt;
    const auto [mine, theirs] = std::mismatch(first.members.begin(), first.members.end(),
                                              other.members.begin(), other.members.end());
    if (mine == first.members.end() && theirs == other.members.end()) continue;
    const auto index = base::narrow<std::size_t>(mine - first.members.begin());
    differs = std::min(differs.value_or(index), index);
  }
  return differs;
}

Status disagreement(const std::string& name, const Statements& statements) {
  const std::string subject = "'" + name + "': the ranks disagree";
  const std::string advice = ". Make the calls agree";
  if (const auto index = differing_member(statements)) {
    const auto words = [&](const Signature& signature) {
      const auto& members = signature.members;
      if (*index >= members.size())
        return "nothing: its group has " + base::tensors_text(members.size());
      return "'" + members[*index].name + "' " + base::to_string(members[*index].shape);
    };
    return Status::error(Code::kMismatch,
                         subject + " about tensor " + std::to_string(*index + 1) +
                             " of the group: " + who_submitted_what(statements, words) + advice);
  }
  return Status::error(Code::kMismatch,
                       subject + ": " + who_submitted_what(statements, describe) + advice);
}

// The first rank's, so that all ranks have one text.
Status check_finite(const std::string& name, const Statements& statements) {
  for (std::size_t rank = 0; rank < statements.size(); ++rank) {
    const Statement& statement = statements[rank];
    if (statement.not_finite.empty()) continue;
    return Status::error(Code::kInvalidArgument,
                         "'" + name + "': rank " + std::to_string(rank) + " submitted " +
                             statement.not_finite +
                             (statement.place.empty() ? "" : " at " + statement.place) +
                             ", and RONDE_CHECK=finite keeps it from the other ranks: look at its "
                             "inputs and loss in this step")
        .with_rank(base::narrow<std::int32_t>(rank));
  }
  return {};
}

}  // namespace

base::Result<AgreedTensor> agree_on(const std::string& name,
                                    const std::vector<Statement>& statements) {
  base::check(!statements.empty(), "a job has at least one rank");
  AgreedTensor tensor;
  tensor.signature = statements.front().signature;
  for (const Statement& statement : statements) {
    if (!agree(tensor.signature, statement.signature)) return disagreement(name, statements);
    // The tensor is reduced in place on every rank or on none.
    tensor.signature.on_board = tensor.signature.on_board && statement.signature.on_board;
  }
  RONDE_RETURN_IF_ERROR(check_finite(name, statements));
  const base::OperationRow& is = row(tensor.signature.operation);
  if (is.has_own_rows() && !tensor.signature.shape.empty()) tensor.signature.shape[0] = 0;
  if (is.has_own_rows() || !is.makes_result()) return tensor;
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
