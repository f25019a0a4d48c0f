// SPDX-License-Identifier: Apache-2.0
// Staging of whole tensors: a base class with the three stages, and one class for each operation.
#include "runtime/execute/staging.h"

#include <algorithm>
#include <functional>
#include <span>
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

// Copies everything out, runs one collective, copies everything in.
class StagedWhole : public Collective {
 public:
  StagedWhole(const ExecutableBatch& batch, Device& device, collectives::DataPlane& plane,
              std::int32_t rank, std::int32_t size)
      : batch_(batch), device_(device), plane_(plane), rank_(rank), size_(size), copies_(device) {}

  Result<StepResult> step() override {
    if (stage_ == Stage::kBegin) {
      RONDE_RETURN_IF_ERROR(copy_out());
      stage_ = Stage::kOut;
    }
    if (stage_ == Stage::kOut) {
      const auto finished = copies_.finished();
      if (!finished.ok() || !*finished) return waiting(finished);
      RONDE_ASSIGN_OR_RETURN(collective_, make());
      stage_ = Stage::kMoving;
    }
    if (stage_ == Stage::kMoving) {
      auto moved = collective_->step();
      if (!moved.ok() || *moved != StepResult::kDone) return moved;
      collective_.reset();
      RONDE_RETURN_IF_ERROR(copy_in());
      stage_ = Stage::kIn;
    }
    const auto finished = copies_.finished();
    if (!finished.ok() || !*finished) return waiting(finished);
    return StepResult::kDone;
  }

 protected:
  virtual Status copy_out() = 0;
  virtual Result<collectives::DataPlane::CollectivePtr> make() = 0;
  virtual Status copy_in() = 0;

  [[nodiscard]] const LocalTensor& tensor() const { return *batch_.tensors.front(); }
  [[nodiscard]] const ExecutableBatch& batch() const { return batch_; }
  [[nodiscard]] collectives::DataPlane& plane() const { return plane_; }
  [[nodiscard]] Device& device() const { return device_; }
  [[nodiscard]] std::int32_t rank() const { return rank_; }
  [[nodiscard]] std::int32_t size() const { return size_; }

  // Starts a copy of the tensor's input into new host memory, after what its stream has to do.
  Status copy_input(base::Bytes bytes, collectives::Staging& memory) {
    RONDE_ASSIGN_OR_RETURN(memory, device_.allocate_staging(bytes.size()));
    return copies_.out(plugin_tensor(tensor().views.front(), tensor().ready.front()),
                       tensor().signature.dtype,
                       {0, tensor().views.front().elements, memory.get()});
  }
  // Starts a copy into a part of the output. It waits for no stream: the memory is the work's own,
  // or copy_input() has waited already.
  Status copy_output(std::byte* output, base::Elements elements, std::byte* from) {
    if (elements.value() == 0) return {};
    const base::TensorView view{output, output, elements, tensor().signature.dtype};
    return copies_.in(plugin_tensor(view, nullptr), view.dtype, {0, elements, from});
  }
  [[nodiscard]] StagedCopies& copies() { return copies_; }

 private:
  enum class Stage { kBegin, kOut, kMoving, kIn };

  static Result<StepResult> waiting(const Result<bool>& finished) {
    if (!finished.ok()) return finished.status();
    return StepResult::kIdle;
  }

  const ExecutableBatch& batch_;
  Device& device_;
  collectives::DataPlane& plane_;
  const std::int32_t rank_;
  const std::int32_t size_;
  Stage stage_ = Stage::kBegin;
  StagedCopies copies_;
  collectives::DataPlane::CollectivePtr collective_;
};

class StagedAllgather final : public StagedWhole {
 public:
  using StagedWhole::StagedWhole;

 private:
  Status copy_out() override {
    RONDE_ASSIGN_OR_RETURN(blocks_, gathered_blocks(batch(), rank(), &device()));
    RONDE_ASSIGN_OR_RETURN(gathered_, device().allocate_staging(payload_of(batch().agreed).size()));
    return copy_input(tensor().bytes(), mine_);
  }
  Result<collectives::DataPlane::CollectivePtr> make() override {
    std::byte* next = gathered_.get();
    for (base::TensorView& block : blocks_) {
      block.output = next;
      if (block.input != nullptr) block.input = mine_.get();
      next += block.bytes().value();
    }
    // The loop has skipped this rank's block if its input is a null pointer, which is legal for a
    // tensor without elements.
    blocks_[base::narrow<std::size_t>(rank())].input = mine_.get();
    return plane().allgather(batch().agreed.signature.dtype, blocks_, batch().sequence);
  }
  Status copy_in() override {
    base::Elements all;
    for (const base::TensorView& block : blocks_) all += block.elements;
    return copy_output(tensor().work->output.data(), all, gathered_.get());
  }

  std::vector<base::TensorView> blocks_;
  collectives::Staging mine_;
  collectives::Staging gathered_;
};

class StagedReduceScatter final : public StagedWhole {
 public:
  using StagedWhole::StagedWhole;

 private:
  Status copy_out() override { return copy_input(tensor().bytes(), whole_); }
  // The result goes in place, into this rank's rows of its own copy.
  Result<collectives::DataPlane::CollectivePtr> make() override {
    auto blocks = scattered_blocks(batch(), rank(), size());
    std::byte* next = whole_.get();
    for (base::TensorView& block : blocks) {
      block.input = next;
      if (block.output != nullptr) mine_ = block.output = next;
      next += block.bytes().value();
    }
    share_ = blocks[base::narrow<std::size_t>(rank())].elements;
    return plane().reduce_scatter(blocks, reduction_of(batch().agreed.signature), batch().sequence);
  }
  Status copy_in() override { return copy_output(tensor().views.front().output, share_, mine_); }

  collectives::Staging whole_;
  std::byte* mine_ = nullptr;
  base::Elements share_;
};

class StagedAllToAll final : public StagedWhole {
 public:
  using StagedWhole::StagedWhole;

 private:
  Status copy_out() override { return copy_input(tensor().bytes(), sent_); }
  Result<collectives::DataPlane::CollectivePtr> make() override {
    return plane().all_to_all(
        {sent_.get(), tensor().splits, base::Bytes(row_bytes_of(tensor().signature))},
        [this](std::span<const std::int64_t> rows) -> Result<std::span<std::byte>> {
          RONDE_ASSIGN_OR_RETURN(const auto output, received_rows(tensor(), rows, &device()));
          RONDE_ASSIGN_OR_RETURN(received_, device().allocate_staging(output.size()));
          return std::span<std::byte>(received_.get(), output.size());
        },
        batch().sequence);
  }
  Status copy_in() override {
    const OutputBuffer& output = tensor().work->output;
    const base::Elements elements(base::narrow<std::int64_t>(output.size()) /
                                  base::size_of(tensor().signature.dtype));
    return copy_output(output.data(), elements, received_.get());
  }

  collectives::Staging sent_;
  collectives::Staging received_;
};

class StagedBarrier final : public StagedWhole {
 public:
  using StagedWhole::StagedWhole;

 private:
  Status copy_out() override {
    return copies().out(plugin_tensor({}, tensor().ready.front()), base::DType::kU8, {});
  }
  Result<collectives::DataPlane::CollectivePtr> make() override {
    return plane().barrier(batch().sequence);
  }
  Status copy_in() override { return {}; }
};

}  // namespace

Result<std::unique_ptr<Collective>> stage(const ExecutableBatch& batch, Device& device,
                                          collectives::DataPlane& plane, StagingLanes& lanes,
                                          std::int32_t rank, std::int32_t size) {
  const auto whole = [&]<class Kind>(std::in_place_type_t<Kind>) -> std::unique_ptr<Collective> {
    return std::make_unique<Kind>(batch, device, plane, rank, size);
  };
  switch (batch.agreed.signature.operation) {
    case Operation::kAllgather:
      return whole(std::in_place_type<StagedAllgather>);
    case Operation::kReduceScatter:
      return whole(std::in_place_type<StagedReduceScatter>);
    case Operation::kAllToAll:
      return whole(std::in_place_type<StagedAllToAll>);
    case Operation::kBarrier:
    case Operation::kDeviceBarrier:
      return whole(std::in_place_type<StagedBarrier>);
    case Operation::kAllreduce:
    case Operation::kBroadcast:
      break;
  }
  return staged_chunks(batch, device, plane, lanes, rank);
}

}  // namespace ronde::runtime
