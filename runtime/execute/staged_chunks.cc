// SPDX-License-Identifier: Apache-2.0
// The pipeline of chunks over three lanes of host memory.
#include "runtime/execute/staged_chunks.h"

#include <algorithm>
#include <utility>

#include "runtime/execute/device_launch.h"
#include "runtime/execute/staged_copies.h"

namespace ronde::runtime {

using base::Result;
using base::Status;
using collectives::Collective;
using collectives::Device;
using collectives::StepResult;

namespace {

constexpr std::int64_t kLine = 64;

class StagedChunks final : public Collective {
 public:
  StagedChunks(const ExecutableBatch& batch, Device& device, collectives::DataPlane& plane,
               StagingLanes& lanes, std::int32_t rank)
      : batch_(batch),
        is_(batch.agreed.signature),
        plane_(plane),
        lanes_(lanes),
        views_(views_of(batch)),
        chunks_(cut_into_chunks(views_, StagingLanes::kChunkBytes)),
        copies_(StagingLanes::kLanes, StagedCopies(device)),
        contributes_(is_.operation != Operation::kBroadcast || is_.root == rank) {
    for (const LocalTensorPtr& tensor : batch.tensors) {
      ready_.insert(ready_.end(), tensor->ready.begin(), tensor->ready.end());
    }
  }

  // Steps the three activities that go on at the same time: copying out, reducing, copying in.
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
  [[nodiscard]] StagedCopies& copies_of(std::size_t chunk) {
    return copies_[chunk % StagingLanes::kLanes];
  }
  [[nodiscard]] std::byte* memory_of(std::size_t chunk) const {
    return lanes_.memory[chunk % StagingLanes::kLanes].get();
  }

  Status copy_out(std::size_t chunk) {
    for (const ChunkPart& part : chunks_[chunk]) {
      const ronde_plugin_tensor tensor = plugin_tensor(views_[part.tensor], ready_[part.tensor]);
      // A rank whose input is not used still starts an empty copy: it makes the lane wait for the
      // tensor's stream, before which the output must not be written.
      const base::Elements elements = contributes_ ? part.elements : base::Elements(0);
      RONDE_RETURN_IF_ERROR(copies_of(chunk).out(
          tensor, is_.dtype, {part.begin, elements, memory_of(chunk) + part.offset}));
    }
    return {};
  }
  Status copy_in(std::size_t chunk) {
    for (const ChunkPart& part : chunks_[chunk]) {
      const base::TensorView& view = views_[part.tensor];
      const bool own = is_.operation == Operation::kBroadcast && contributes_;
      if (own && view.input == view.output) continue;
      RONDE_RETURN_IF_ERROR(
          copies_of(chunk).in(plugin_tensor(view, ready_[part.tensor]), is_.dtype,
                              {part.begin, part.elements, memory_of(chunk) + part.offset}));
    }
    return {};
  }
  // Steps the collective of chunk `moving_`. True when something went on.
  Result<bool> step_collective() {
    if (collective_ == nullptr) {
      RONDE_ASSIGN_OR_RETURN(const auto finished, copies_of(moving_).finished());
      if (!finished) return false;
      collective_ = make(moving_);
    }
    RONDE_ASSIGN_OR_RETURN(const auto stepped, collective_->step());
    if (stepped != StepResult::kDone) return stepped == StepResult::kProgress;
    collective_.reset();
    RONDE_RETURN_IF_ERROR(copy_in(moving_++));
    return true;
  }
  // The collectives of all chunks use the tags of one batch; they do not mix, because they follow
  // each other and messages between two ranks keep their order.
  [[nodiscard]] collectives::DataPlane::CollectivePtr make(std::size_t chunk) {
    std::vector<base::TensorView> parts;
    for (const ChunkPart& part : chunks_[chunk]) {
      std::byte* const memory = memory_of(chunk) + part.offset;
      parts.push_back({memory, memory, part.elements, is_.dtype});
    }
    if (is_.operation == Operation::kBroadcast) {
      return plane_.broadcast(parts, is_.root, batch_.sequence);
    }
    return plane_.allreduce(parts, reduction_of(is_), false, batch_.sequence);
  }

  const ExecutableBatch& batch_;
  const Signature& is_;
  collectives::DataPlane& plane_;
  StagingLanes& lanes_;
  const std::vector<base::TensorView> views_;
  std::vector<collectives::ReadyMarkPtr> ready_;  // by view
  const std::vector<std::vector<ChunkPart>> chunks_;
  std::vector<StagedCopies> copies_;  // by lane
  const bool contributes_;            // this rank's input is used
  // Chunks before out_ are copied out or about to be, before moving_ reduced, before in_ back in
  // their tensors.
  std::size_t out_ = 0;
  std::size_t moving_ = 0;
  std::size_t in_ = 0;
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

Result<std::unique_ptr<Collective>> staged_chunks(const ExecutableBatch& batch, Device& device,
                                                  collectives::DataPlane& plane,
                                                  StagingLanes& lanes, std::int32_t rank) {
  while (lanes.memory.size() < StagingLanes::kLanes) {
    RONDE_ASSIGN_OR_RETURN(
        auto memory, device.allocate_staging(static_cast<std::size_t>(StagingLanes::kChunkBytes)));
    lanes.memory.push_back(std::move(memory));
  }
  return std::unique_ptr<Collective>(
      std::make_unique<StagedChunks>(batch, device, plane, lanes, rank));
}

}  // namespace ronde::runtime
