// SPDX-License-Identifier: Apache-2.0
// The operations, as one table: a row says what everybody but an operation's algorithms has to know
// of it. Whoever checks, compares, describes, fuses, stages or executes a tensor asks the row, and
// names no operation. The values travel between ranks, so a new operation comes last.
#pragma once

#include <array>
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
  bool reduces;       // it takes an op, factors and a compression
  bool has_root;      // whose input alone is used
  bool fuses;         // several tensors may move as one: in a batch, and as a group
  bool in_place;      // tensors that lie on the board of a host can stay there
  bool on_streams;    // a device's, even where no memory tells so
  std::int32_t code;  // what plug-ins of devices call it (ronde_plugin_operation)

  // It has a name, but no memory.
  [[nodiscard]] constexpr bool is_barrier() const { return in == Extent::kNothing; }
  // It cuts or joins tensors along their first dimension.
  [[nodiscard]] constexpr bool has_rows() const { return in > Extent::kTensor || makes_result(); }
  // The size of the output is known only when the ranks have told each other how many rows they
  // give, which may differ. The result belongs to the work.
  [[nodiscard]] constexpr bool makes_result() const { return out == Extent::kBlocks; }
  // What each rank gives to each is its own: nobody else learns the rows of its tensor.
  [[nodiscard]] constexpr bool has_own_rows() const {
    return in == Extent::kBlocks && out == Extent::kBlocks;
  }
};

inline constexpr std::array<OperationRow, 7> kOperations{{
    // operation, name, in, out, reduces, has_root, fuses, in_place, on_streams, code
    {Operation::kAllreduce, "allreduce", Extent::kTensor, Extent::kTensor, true, false, true, true,
     false, 0},
    {Operation::kBroadcast, "broadcast", Extent::kTensor, Extent::kTensor, false, true, true, false,
     false, 1},
    {Operation::kAllgather, "allgather", Extent::kBlock, Extent::kBlocks, false, false, false,
     false, false, 2},
    {Operation::kBarrier, "barrier", Extent::kNothing, Extent::kNothing, false, false, false, false,
     false, 5},
    {Operation::kReduceScatter, "reduce_scatter", Extent::kBlocks, Extent::kBlock, true, false,
     false, false, false, 3},
    {Operation::kAllToAll, "all_to_all", Extent::kBlocks, Extent::kBlocks, false, false, false,
     false, false, 4},
    {Operation::kDeviceBarrier, "device barrier", Extent::kNothing, Extent::kNothing, false, false,
     false, false, true, 5},
}};

[[nodiscard]] constexpr const OperationRow& row(Operation operation) {
  return kOperations[static_cast<std::size_t>(operation)];
}
[[nodiscard]] constexpr std::string_view name_of(Operation operation) {
  return row(operation).name;
}

static_assert([] {
  for (std::size_t i = 0; i < kOperations.size(); ++i) {
    if (kOperations[i].operation != static_cast<Operation>(i)) return false;
  }
  return true;
}());

}  // namespace ronde::base
