// SPDX-License-Identifier: Apache-2.0
// Which server has which part of which variable. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bindings/trainer/server/variables.h"

namespace ronde::trainer::server {

// Into how many parts a variable is cut, along its first side.
struct Partition {
  enum class Kind : std::uint8_t {
    kWhole,
    kFixed,    // `amount` parts
    kMinSize,  // as many as there are servers, but none of less than `amount` bytes
    kMaxSize   // none of more than `amount` bytes, where the first side can be cut so often
  };
  Kind kind = Kind::kWhole;
  std::size_t amount = 0;
};

// "whole", "fixed=2", "min=262144" or "max=1048576". Throws TrainerError.
[[nodiscard]] Partition partition_of(const std::string& text);

// Elements first to first + size of a variable, on a server.
struct Piece {
  std::size_t variable = 0;
  std::size_t first = 0;
  std::size_t size = 0;
  Shape shape;
  std::string name;  // that of the variable, with "/part_0" where it is cut
  std::uint32_t server = 0;
};

// The pieces in order of creation, one server after the other.
[[nodiscard]] std::vector<Piece> place(std::span<const VariableSpec> variables,
                                       std::uint32_t servers, const Partition& partition);

// Rows of a table on a server: row r is on server r mod servers.
[[nodiscard]] std::size_t rows_on(std::size_t rows, std::uint32_t server, std::uint32_t servers);

// A line for each piece: its name, shape and server.
[[nodiscard]] std::string table_of(std::span<const Piece> pieces);

}  // namespace ronde::trainer::server
