// SPDX-License-Identifier: Apache-2.0
// Staging as a collective: chunks on their way out of the device, between the ranks, and back in.
#include "runtime/execute/staging.h"

#include <algorithm>
#include <span>
#include <utility>

#include "collectives/plane/weighted.h"
#include "runtime/execute/device_launch.h"

namespace ronde::runtime {

using base::Result;
using base::Status;
using collectives::Collective;
using collectives::Device;
using collectives::Exchange;
using collectives::StepResult;

namespace {

constexpr std::int64_t kLine = 64;

// The copies of one chunk that are in progress together.
class Copies {
 public:
  Status keep(Result<collectives::DeviceWorkPtr> work) {
    RONDE_RETURN_IF_ERROR(work.status());
    works_.push_back(std::move(*work));
    return {};
  }
  Result<bool> finished() {
    while (!works_.empty()) {
      RONDE_ASSIGN_OR_RETURN(const auto polled, works_.back()->poll());
      if (!polled) return false;
      works_.pop_back();
    }
    return true;
  }

 private:
  std::vector<collectives::DeviceWorkPtr> works_;
};

class Staged final : public Collective {
 public:
  Staged(const Batch& batch, Device& device, collectives::DataPlane& plane, StagingLanes& lanes,
         std::int32_t rank)
      : batch_(batch),
        exchange_(batch.exchange),
        device_(device),
        plane_(plane),
        lanes_(lanes),
        rank_(rank),
        in_chunks_(exchange_.what().fuses),
        chunks_(in_chunks_ ? cut_into_chunks(exchange_.tensors, StagingLanes::kChunkBytes)
                           : Chunks{{ChunkPart{.elements = exchange_.tensors.front().elements}}}),
        copies_(StagingLanes::kLanes) {}

  // Makes the host memory that it needs from the beginning.
  Status allocate() {
    if (!in_chunks_ && !exchange_.what().is_barrier()) {
      const std::size_t bytes = exchange_.tensors.front().bytes().size();
      RONDE_ASSIGN_OR_RETURN(whole_, device_.allocate_staging(bytes));
    }
    while (in_chunks_ && lanes_.memory.size() < StagingLanes::kLanes) {
      const auto bytes = static_cast<std::size_t>(StagingLanes::kChunkBytes);
      RONDE_ASSIGN_OR_RETURN(auto memory, device_.allocate_staging(bytes));
      lanes_.memory.push_back(std::move(memory));
    }
    return {};
  }

  // Steps the three activities that go on at the same time: copying out, moving, copying in.
  Result<StepResult> step() override {
    bool moved = false;
    // A chunk may be copied out once the chunk that used its lane before is back in its tensors.
    while (out_ < chunks_.size() && out_ < in_ + StagingLanes::kLanes) {
      RONDE_RETURN_IF_ERROR(copy_out(out_++));
      moved = true;
    }
    if (moving_ < out_) {
      RONDE_ASSIGN_OR_RETURN(const auto stepped, step_collective());
      moved = moved || stepped;
    }
    while (in_ < moving_) {
      RONDE_ASSIGN_OR_RETURN(const auto finished, copies_of(in_).finished());
      if (!finished) break;
      ++in_;
      moved = true;
    }
    if (in_ == chunks_.size()) return StepResult::kDone;
    return moved ? StepResult::kProgress : StepResult::kIdle;
  }

 private:
  using Chunks = std::vector<std::vector<ChunkPart>>;

  [[nodiscard]] Copies& copies_of(std::size_t chunk) {
    return copies_[chunk % StagingLanes::kLanes];
  }
  [[nodiscard]] std::byte* memory_of(std::size_t chunk) const {
    return in_chunks_ ? lanes_.memory[chunk % StagingLanes::kLanes].get() : whole_.get();
  }
  // Whether the input of this rank is used.
  [[nodiscard]] bool gives() const { return !exchange_.what().has_root || exchange_.root == rank_; }
  [[nodiscard]] ronde_plugin_copy copy_of(const ronde_plugin_tensor& tensor, const ChunkPart& part,
                                          std::byte* host) const {
    ronde_plugin_copy copy{};
    copy.struct_size = sizeof copy;
    copy.tensor = &tensor;
    copy.begin = part.begin;
    copy.elements = part.elements.value();
    copy.dtype = static_cast<std::int32_t>(exchange_.how.dtype);
    copy.host = host;
    return copy;
  }

  // A rank whose input is not used still starts an empty copy: it makes the lane wait for the
  // tensor's stream, before which the output must not be written.
  Status copy_out(std::size_t chunk) {
    for (ChunkPart part : chunks_[chunk]) {
      const auto tensor = plugin_tensor(exchange_.tensors[part.tensor], batch_.ready[part.tensor]);
      if (!gives()) part.elements = base::Elements(0);
      RONDE_RETURN_IF_ERROR(copies_of(chunk).keep(
          device_.copy_out(copy_of(tensor, part, memory_of(chunk) + part.offset))));
    }
    return {};
  }

  // Steps the collective of chunk `moving_`. True when something went on.
  Result<bool> step_collective() {
    if (collective_ == nullptr) {
      RONDE_ASSIGN_OR_RETURN(const auto finished, copies_of(moving_).finished());
      if (!finished) return false;
      RONDE_ASSIGN_OR_RETURN(collective_, collectives::make_collective(plane_, on_host(moving_)));
    }
    RONDE_ASSIGN_OR_RETURN(const auto stepped, collective_->step());
    if (stepped != StepResult::kDone) return stepped == StepResult::kProgress;
    collective_.reset();
    RONDE_RETURN_IF_ERROR(in_chunks_ ? copy_in(moving_) : copy_whole_in());
    ++moving_;
    return true;
  }

  // The same exchange on the host memory of a chunk. Those of all chunks use the tags of one batch;
  // they do not mix, because they follow each other and messages between two ranks keep their
  // order.
  [[nodiscard]] Exchange on_host(std::size_t chunk) {
    Exchange same{.operation = exchange_.operation,
                  .sequence = exchange_.sequence,
                  .tensors = {},
                  .how = exchange_.how,
                  .root = exchange_.root,
                  .rows = exchange_.rows,
                  .row = exchange_.row,
                  .result = {},
                  .weights = {}};
    for (const ChunkPart& part : chunks_[chunk]) {
      if (!exchange_.weights.of_tensors.empty()) add_weight(same, part.tensor);
      std::byte* const memory = memory_of(chunk) + part.offset;
      same.tensors.push_back({memory, memory, part.elements, exchange_.how.dtype});
    }
    if (exchange_.what().out == base::Extent::kBlock) {
      // The result goes in place, into this rank's rows of its own copy.
      const auto blocks = cut(exchange_, exchange_.rows, whole_.get(), nullptr);
      const base::TensorView& own = blocks[base::narrow<std::size_t>(rank_)];
      same.tensors.front().output = whole_.get() + (own.input - whole_.get());
      keep_output(exchange_.tensors.front().output, same.tensors.front().output, own.elements);
    }
    if (exchange_.what().makes_result()) {
      same.result = [this](std::span<const std::int64_t> rows) -> Result<std::span<std::byte>> {
        RONDE_ASSIGN_OR_RETURN(const auto output, exchange_.result(rows));
        RONDE_ASSIGN_OR_RETURN(result_, device_.allocate_staging(output.size()));
        const std::int64_t element = base::size_of(exchange_.how.dtype);
        keep_output(output.data(), result_.get(),
                    base::Elements(base::narrow<std::int64_t>(output.size()) / element));
        return std::span<std::byte>(result_.get(), output.size());
      };
    }
    return same;
  }

  // The weights of a chunk's parts are those of their tensors.
  void add_weight(Exchange& chunk, std::size_t tensor) const {
    const collectives::OwnWeights& whole = exchange_.weights;
    chunk.weights.ranks = whole.ranks;
    chunk.weights.of_tensors.push_back(whole.of_tensors[tensor]);
    parts_.push_back(tensor);
    chunk.weights.refuse = [&whole, first = parts_.size() - chunk.weights.of_tensors.size(), this](
                               std::size_t part, const Status& why) {
      whole.refuse(parts_[first + part], why);
    };
  }
  void keep_output(std::byte* to, std::byte* from, base::Elements elements) {
    output_ = {from, to, elements, exchange_.how.dtype};
  }

  Status copy_in(std::size_t chunk) {
    for (const ChunkPart& part : chunks_[chunk]) {
      const base::TensorView& view = exchange_.tensors[part.tensor];
      const bool own = exchange_.what().has_root && gives();
      if (own && view.input == view.output) continue;
      const auto tensor = plugin_tensor(view, batch_.ready[part.tensor]);
      RONDE_RETURN_IF_ERROR(copies_of(chunk).keep(
          device_.copy_in(copy_of(tensor, part, memory_of(chunk) + part.offset))));
    }
    return {};
  }
  // It waits for no stream: the memory is the work's own, or copy_out() has waited already.
  Status copy_whole_in() {
    if (output_.elements.value() == 0) return {};
    const auto tensor = plugin_tensor({output_.output, output_.output, output_.elements}, nullptr);
    const ChunkPart all{.elements = output_.elements};
    return copies_of(0).keep(
        device_.copy_in(copy_of(tensor, all, const_cast<std::byte*>(output_.input))));
  }

  const Batch& batch_;
  const Exchange& exchange_;
  Device& device_;
  collectives::DataPlane& plane_;
  StagingLanes& lanes_;
  const std::int32_t rank_;
  const bool in_chunks_;
  const Chunks chunks_;
  std::vector<Copies> copies_;  // by lane
  // Chunks before out_ are copied out or about to be, before moving_ moved, before in_ back in
  // their tensors.
  std::size_t out_ = 0;
  std::size_t moving_ = 0;
  std::size_t in_ = 0;
  // A tensor that is copied whole has its input here, its result where that has memory of its own,
  // and what must be copied in at the end.
  collectives::Staging whole_;
  collectives::Staging result_;
  base::TensorView output_;
  mutable std::vector<std::size_t> parts_;  // the tensors of weighted parts, in their order
  collectives::DataPlane::CollectivePtr collective_;
};

}  // namespace

std::vector<std::vector<ChunkPart>> cut_into_chunks(const std::vector<base::TensorView>& tensors,
                                                    std::int64_t chunk_bytes) {
  base::check(chunk_bytes > 0 && chunk_bytes % kLine == 0, "chunks are of whole lines");
  std::vector<std::vector<ChunkPart>> chunks;
  std::int64_t room = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t element = base::size_of(tensors[i].dtype);
    const std::int64_t all = tensors[i].elements.value();
    for (std::int64_t begin = 0; begin < all;) {
      if (room == 0) {
        chunks.emplace_back();
        room = chunk_bytes;
      }
      const std::int64_t elements = std::min(all - begin, room / element);
      chunks.back().push_back({i, begin, base::Elements(elements), chunk_bytes - room});
      begin += elements;
      room -= base::ceil_div(elements * element, kLine) * kLine;
    }
  }
  return chunks;
}

Result<std::unique_ptr<Collective>> stage(const Batch& batch, Device& device,
                                          collectives::DataPlane& plane, StagingLanes& lanes,
                                          std::int32_t rank) {
  auto staged = std::make_unique<Staged>(batch, device, plane, lanes, rank);
  RONDE_RETURN_IF_ERROR(staged->allocate());
  return std::unique_ptr<Collective>(std::move(staged));
}

}  // namespace ronde::runtime
