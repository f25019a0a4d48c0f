// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/server/placement.h"

#include <algorithm>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {

Partition partition_of(const std::string& text) {
  using How = Partition::Kind;
  if (text == "whole") return {};
  const std::size_t equals = text.find('=');
  const std::string kind = text.substr(0, equals);
  const auto amount =
      number_of<std::size_t>(equals == std::string::npos ? "" : text.substr(equals + 1))
          .value_or(0);
  if (amount > 0 && kind == "fixed") return {How::kFixed, amount};
  if (amount > 0 && kind == "min") return {How::kMinSize, amount};
  if (amount > 0 && kind == "max") return {How::kMaxSize, amount};
  throw TrainerError(
      "there is no partition '" + text + "': use whole, fixed=<parts>, min=<bytes> or max=<bytes>",
      kExitConfiguration);
}

std::vector<Piece> place(std::span<const VariableSpec> variables, std::uint32_t servers,
                         const Partition& partition) {
  using How = Partition::Kind;
  std::vector<Piece> pieces;
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const VariableSpec& variable = variables[i];
    const std::size_t elements = elements_of(variable.shape);
    const std::size_t bytes = elements * sizeof(float);
    const std::size_t side = variable.shape.empty() ? 1 : variable.shape.front();
    std::size_t parts = 1;
    if (partition.kind == How::kFixed) parts = partition.amount;
    if (partition.kind == How::kMinSize) {
      parts = std::min<std::size_t>(servers, bytes / partition.amount);
    }
    if (partition.kind == How::kMaxSize) {
      // A row is not cut: a part has as many whole rows as fit.
      const std::size_t row = std::max<std::size_t>(1, bytes / std::max<std::size_t>(1, side));
      const std::size_t rows = std::max<std::size_t>(1, partition.amount / row);
      parts = (side + rows - 1) / rows;
    }
    parts = std::clamp<std::size_t>(parts, 1, std::max<std::size_t>(1, side));
    const std::size_t row = side == 0 ? 0 : elements / side;
    for (std::size_t part = 0; part < parts; ++part) {
      // The first parts have one row more.
      const std::size_t begin = part * (side / parts) + std::min(part, side % parts);
      const std::size_t rows = side / parts + (part < side % parts ? 1 : 0);
      Piece piece{i, begin * row, rows * row, variable.shape, variable.name, next};
      if (parts > 1) {
        piece.shape.front() = rows;
        piece.name += "/part_" + std::to_string(part);
      }
      pieces.push_back(std::move(piece));
      next = (next + 1) % servers;
    }
  }
  return pieces;
}

std::size_t rows_on(std::size_t rows, std::uint32_t server, std::uint32_t servers) {
  return rows / servers + (server < rows % servers ? 1 : 0);
}

std::string table_of(std::span<const Piece> pieces) {
  std::string table;
  for (const Piece& piece : pieces) {
    table += (table.empty() ? "" : "\n") + piece.name + " (" + trainer::text_of(piece.shape) +
             ") on ps " + std::to_string(piece.server);
  }
  return table;
}

}  // namespace ronde::trainer::server
