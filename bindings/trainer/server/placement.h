// SPDX-License-Identifier: Apache-2.0
// Where variables lie: which server has which part of which variable. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bindings/trainer/server/variables.h"

namespace ronde::trainer::server {

// How variables are cut into parts, along the first side.
struct Partition {
  enum class Kind : std::uint8_t {
    kWhole,
    kFixed,    // `amount` parts
    kMinSize,  // a part for each server, but none of less than `amount` bytes
    kMaxSize   // parts of at most `amount` bytes, or of one row
  };
  Kind kind = Kind::kWhole;
  std::size_t amount = 0;
};

// "whole", "fixed=2", "min=262144" or "max=1048576". Throws TrainerError.
[[nodiscard]] Partition partition_of(const std::string& text);

// Elements [first, first + size) of a variable, on a server.
struct Piece {
  std::size_t variable = 0;
  std::size_t first = 0;
  std::size_t size = 0;
  Shape shape;
  std::string name;  // the variable's; of a part with "/part_0"
  std::uint32_t server = 0;
};

// All pieces, in the order of the variables, on the servers in turn.
[[nodiscard]] std::vector<Piece> place(std::span<const VariableSpec> variables,
                                       std::uint32_t servers, const Partition& partition);

// How many rows of a table a server has: row r is on server r mod servers.
[[nodiscard]] std::size_t rows_on(std::size_t rows, std::uint32_t server, std::uint32_t servers);

// A line for each piece: its name, shape and server.
[[nodiscard]] std::string table_of(std::span<const Piece> pieces);

}  // namespace ronde::trainer::server
