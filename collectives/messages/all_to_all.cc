// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/all_to_all.h"

#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "collectives/messages/pairwise.h"

namespace ronde::collectives {
namespace {

class AllToAll final : public Collective {
 public:
  AllToAll(Transport& transport, Workspace& workspace, RowsToSend send, AllocateRows allocate,
           base::Bytes segment, int tag)
      : transport_(transport),
        workspace_(workspace),
        send_(std::move(send)),
        allocate_(std::move(allocate)),
        segment_(segment),
        tag_(tag),
        received_rows_(send_.rows.size()) {
    base::check_eq(std::ssize(send_.rows), transport.size(), "all-to-all: rows for every rank");
    exchange_.emplace(transport_, workspace_, each_as_block<const std::byte>(send_.rows),
                      each_as_block<std::byte>(received_rows_), segment_, tag_);
  }

  base::Result<StepResult> step() override {
    base::Result<StepResult> result = exchange_->step();
    if (!result.ok() || *result != StepResult::kDone || rows_move_) return result;
    RONDE_RETURN_IF_ERROR(begin_rows());
    return StepResult::kProgress;
  }

 private:
  // The blocks of the first exchange: every number is a block of its own.
  template <class Byte, class Rows>
  static std::vector<std::span<Byte>> each_as_block(Rows& rows) {
    std::vector<std::span<Byte>> blocks;
    blocks.reserve(rows.size());
    for (auto& number : rows) {
      blocks.emplace_back(reinterpret_cast<Byte*>(&number), sizeof(number));
    }
    return blocks;
  }

  // Cuts memory into consecutive blocks of so many rows.
  template <class Byte>
  std::vector<std::span<Byte>> blocks_at(Byte* memory,
                                         const std::vector<std::int64_t>& rows) const {
    std::vector<std::span<Byte>> blocks;
    blocks.reserve(rows.size());
    for (const std::int64_t number : rows) {
      const auto bytes = static_cast<std::size_t>(number * send_.row_bytes.value());
      blocks.emplace_back(memory, bytes);
      // The pointer may be null on a rank without bytes, and is not moved then.
      if (bytes > 0) memory += bytes;
    }
    return blocks;
  }

  // Returns the bytes of all received rows. The numbers come from other ranks, so they are checked.
  [[nodiscard]] base::Result<std::int64_t> received_bytes() const {
    std::int64_t sum = 0;
    for (std::size_t rank = 0; rank < received_rows_.size(); ++rank) {
      const std::int64_t rows = received_rows_[rank];
      const auto bytes = base::checked_product(rows, send_.row_bytes.value());
      if (rows < 0 || !bytes || __builtin_add_overflow(sum, *bytes, &sum)) {
        return base::Status::error(base::Code::kTransport,
                                   "all-to-all: rank " + std::to_string(rank) + " announced " +
                                       std::to_string(rows) + " rows of " +
                                       std::to_string(send_.row_bytes.value()) +
                                       " bytes for rank " + std::to_string(transport_.rank()) +
                                       ", which cannot be; check its splits")
            .with_rank(static_cast<int>(rank));
      }
    }
    return sum;
  }

  base::Status begin_rows() {
    RONDE_ASSIGN_OR_RETURN(const auto bytes, received_bytes());
    RONDE_ASSIGN_OR_RETURN(const auto output, allocate_(received_rows_));
    base::check_eq(std::ssize(output), bytes, "all-to-all: the memory for the received rows");
    rows_move_ = true;
    exchange_.emplace(transport_, workspace_, blocks_at(send_.input, send_.rows),
                      blocks_at(output.data(), received_rows_), segment_, tag_);
    return {};
  }

  Transport& transport_;
  Workspace& workspace_;
  RowsToSend send_;
  AllocateRows allocate_;
  base::Bytes segment_;
  int tag_;
  std::vector<std::int64_t> received_rows_;
  bool rows_move_ = false;
  std::optional<PairwiseExchange> exchange_;  // exchanges the numbers, then the rows
};

}  // namespace

std::unique_ptr<Collective> all_to_all(Transport& transport, Workspace& workspace, RowsToSend send,
                                       AllocateRows allocate, base::Bytes segment, int tag) {
  return std::make_unique<AllToAll>(transport, workspace, std::move(send), std::move(allocate),
                                    segment, tag);
}

}  // namespace ronde::collectives
