// SPDX-License-Identifier: Apache-2.0
// The operations, as one table: a row says what everybody but an operation's algorithms has to know
// of it. Whoever checks, compares, describes, fuses, stages or executes a tensor asks the row, and
// names no operation. The values travel between ranks, so a new operation comes last.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ronde::base {

enum class Operation : std::uint8_t {
  kAllreduce = 0,
  kBroadcast = 1,
  kAllgather = 2,
  kBarrier = 3,
  kReduceScatter = 4,
  kAllToAll = 5,
  // A barrier among streams of devices. It is an operation of its own because a barrier has no
  // memory whose place could tell the two apart.
  kDeviceBarrier = 6,
};

// What a rank gives to an operation, or gets from it. Blocks are rows: parts of the tensor along
// its first dimension.
enum class Extent : std::uint8_t {
  kNothing = 0,
  kTensor = 1,  // a whole tensor of the same shape on every rank
  kBlock = 2,   // the block of this rank
  kBlocks = 3,  // a block for each rank, or from each
};

struct OperationRow {
  Operation operation;
  std::string_view name;
  Extent in;
  Extent out;
  bool reduces = false;     // it takes an op, factors and a compression
  bool has_root = false;    // whose input alone is used
  bool fuses = false;       // several tensors may move as one: in a batch, and as a group
  bool in_place = false;    // tensors that lie on the board of a host are read there
  bool on_streams = false;  // a device's, even where no memory tells so
  std::int32_t code = -1;   // what plug-ins of devices call it (ronde_plugin_operation)

  // It has a name, but no memory.
  [[nodiscard]] constexpr bool is_barrier() const { return in == Extent::kNothing; }
  // It cuts or joins tensors along their first dimension.
  [[nodiscard]] constexpr bool has_rows() const { return in > Extent::kTensor || makes_result(); }
  // The size of the output is known only when the ranks have told each other how many rows they
  // give, which may differ. The result belongs to the work, unless it fits memory of the caller.
  [[nodiscard]] constexpr bool makes_result() const { return out == Extent::kBlocks; }
  // What each rank gives to each is its own: nobody else learns the rows of its tensor.
  [[nodiscard]] constexpr bool has_own_rows() const {
    return in == Extent::kBlocks && out == Extent::kBlocks;
  }
};

inline constexpr std::array<OperationRow, 7> kOperations{{
    {.operation = Operation::kAllreduce,
     .name = "allreduce",
     .in = Extent::kTensor,
     .out = Extent::kTensor,
     .reduces = true,
     .fuses = true,
     .in_place = true,
     .code = 0},
    {.operation = Operation::kBroadcast,
     .name = "broadcast",
     .in = Extent::kTensor,
     .out = Extent::kTensor,
     .has_root = true,
     .fuses = true,
     .code = 1},
    {.operation = Operation::kAllgather,
     .name = "allgather",
     .in = Extent::kBlock,
     .out = Extent::kBlocks,
     .in_place = true,
     .code = 2},
    {.operation = Operation::kBarrier,
     .name = "barrier",
     .in = Extent::kNothing,
     .out = Extent::kNothing,
     .code = 5},
    {.operation = Operation::kReduceScatter,
     .name = "reduce_scatter",
     .in = Extent::kBlocks,
     .out = Extent::kBlock,
     .reduces = true,
     .in_place = true,
     .code = 3},
    {.operation = Operation::kAllToAll,
     .name = "all_to_all",
     .in = Extent::kBlocks,
     .out = Extent::kBlocks,
     .code = 4},
    {.operation = Operation::kDeviceBarrier,
     .name = "device barrier",
     .in = Extent::kNothing,
     .out = Extent::kNothing,
     .on_streams = true,
     .code = 5},
}};

[[nodiscard]] constexpr const OperationRow& row(Operation operation) {
  return kOperations[static_cast<std::size_t>(operation)];
}
[[nodiscard]] constexpr std::string_view name_of(Operation operation) {
  return row(operation).name;
}

// The one in which each rank gives a block and gets those of all: by it the runtime itself
// exchanges small things, whichever operation the program has asked for.
inline constexpr Operation kExchange = [] {
  for (const OperationRow& each : kOperations) {
    if (each.in == Extent::kBlock && each.out == Extent::kBlocks) return each.operation;
  }
  return kOperations.front().operation;
}();

static_assert([] {
  for (std::size_t i = 0; i < kOperations.size(); ++i) {
    if (kOperations[i].operation != static_cast<Operation>(i)) return false;
  }
  return true;
}());

}  // namespace ronde::base
