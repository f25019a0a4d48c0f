// SPDX-License-Identifier: Apache-2.0
// Three ways for batches to reach the replicas.
#include <array>
#include <optional>
#include <span>

#include "bindings/trainer/fit/strategy/part_bytes.h"
#include "bindings/trainer/fit/strategy/strategy.h"

namespace ronde::trainer {

namespace {

using Parts = std::vector<std::reference_wrapper<const StepBatch>>;

// Each replica's own part of each batch.
class OwnParts final : public DistributedEpoch::Reader {
 public:
  OwnParts(const std::vector<Dataset>& shards, std::uint64_t epoch, std::size_t first_step) {
    for (const Dataset& one : shards) epochs_.push_back(one.epoch(epoch, first_step));
  }
  bool next(Parts& parts) override {
    for (Epoch& one : epochs_) {
      const StepBatch* const batch = one.next();
      if (batch == nullptr) return false;  // on all replicas alike
      parts.emplace_back(*batch);
    }
    return true;
  }

 private:
  std::vector<Epoch> epochs_;
};

// The same of a process's own data set. How many samples a step has, the processes agree on.
class OwnInput final : public DistributedEpoch::Reader {
 public:
  OwnInput(Strategy& strategy, const std::vector<Dataset>& shards, std::uint64_t epoch,
           std::uint32_t pipeline, std::size_t first_step)
      : strategy_(strategy), shards_(shards), own_(shards, epoch, first_step), pipeline_(pipeline) {
    for (const Dataset& one : shards) mine_.push_back(one.no_samples());
  }
  bool next(Parts& parts) override {
    Parts own;
    const bool more = own_.next(own);
    std::uint64_t size = 0;
    const std::vector<std::uint64_t> sizes{more ? own.front().get().global_size : 0};
    for (const std::uint64_t one : strategy_.over_processes("input", sizes)) size += one;
    if (size == 0) return false;
    for (std::size_t i = 0; i < mine_.size(); ++i) {
      if (more) {
        mine_[i] = own[i];
        // Each process counts its samples from 0, and must not drop what another one drops.
        for (Batch& part : mine_[i].parts) {
          for (std::uint32_t& one : part.repetitions) one += pipeline_ << 20U;
        }
      } else {
        mine_[i] = shards_[i].no_samples();  // others have more, and wait for this one
      }
      mine_[i].global_size = size;
      parts.emplace_back(mine_[i]);
    }
    return true;
  }

 private:
  Strategy& strategy_;
  const std::vector<Dataset> shards_;
  OwnParts own_;
  const std::uint32_t pipeline_;
  std::vector<StepBatch> mine_;
};

// The chief reads all parts, and sends each its own.
class FromChief final : public DistributedEpoch::Reader {
 public:
  FromChief(Strategy& strategy, const Dataset& data, std::uint64_t epoch, std::size_t first_step)
      : strategy_(strategy), format_(data.format()), mine_(strategy.local_replicas()) {
    if (!strategy_.is_chief()) return;
    epoch_.emplace(data.shard(0, 1, strategy.num_replicas_in_sync()).epoch(epoch, first_step));
  }
  bool next(Parts& parts) override {
    const StepBatch* const all = epoch_ ? epoch_->next() : nullptr;
    strategy_.run([&](Replica& here) {
      std::vector<char> bytes;
      std::vector<std::int64_t> splits(strategy_.num_replicas_in_sync(), 0);
      for (std::size_t rank = 0; here.is_chief() && rank < splits.size(); ++rank) {
        const std::size_t before = bytes.size();
        write(all, rank, bytes);
        splits[rank] = static_cast<std::int64_t>(bytes.size() - before);
      }
      const Work done = here.engine().all_to_all_blocking("strategy/feed", bytes, splits);
      read(done.output<char>(), mine_[here.local()]);
    });
    if (mine_.front().global_size == 0) return false;
    parts.assign(mine_.begin(), mine_.end());
    return true;
  }

 private:
  static void write(const StepBatch* all, std::size_t rank, std::vector<char>& bytes) {
    const std::array<std::uint64_t, 3> head{all == nullptr ? 0 : all->global_size,
                                            all == nullptr ? 0 : all->step,
                                            all == nullptr ? 0 : all->epoch};
    append_bytes<std::uint64_t>(bytes, head);
    append_part(bytes, all == nullptr ? Batch() : all->parts[rank]);
  }
  void read(std::span<const char> bytes, StepBatch& batch) const {
    std::vector<std::uint64_t> head;
    take_bytes(bytes, head, 3);
    batch.global_size = head[0];  // 0: that was the last step
    if (batch.global_size == 0) return;
    batch.step = head[1];
    batch.epoch = head[2];
    batch.parts.resize(1);
    take_part(bytes, batch.parts.front());
    if (!fits(format_, batch.parts.front())) refuse_part();
  }

  Strategy& strategy_;
  const SampleFormat format_;
  std::optional<Epoch> epoch_;  // on the chief
  std::vector<StepBatch> mine_;
};

}  // namespace

DistributedDataset Strategy::distribute(const Dataset& data) {
  require_usable("distribute()");
  std::vector<Dataset> shards;
  shards.reserve(replicas_.size());
  for (const auto& one : replicas_) shards.push_back(one->shard(data));
  return DistributedDataset([shards](std::uint64_t epoch, std::size_t first_step) {
    return std::make_unique<OwnParts>(shards, epoch, first_step);
  });
}

DistributedDataset Strategy::distribute_from_chief(const Dataset& data) {
  require_usable("distribute_from_chief()");
  static_cast<void>(replicas_.front()->shard(data));  // throws where it cannot be cut
  return DistributedDataset([this, data](std::uint64_t epoch, std::size_t first_step) {
    return std::make_unique<FromChief>(*this, data, epoch, first_step);
  });
}

DistributedDataset Strategy::distribute_from(
    const std::function<Dataset(const InputContext&)>& input) {
  require_usable("distribute_from()");
  const auto pipeline = static_cast<std::size_t>(replicas_.front()->rank()) / replicas_.size();
  const Dataset data = input({.num_input_pipelines = processes(),
                              .input_pipeline_id = pipeline,
                              .num_replicas_in_sync = size_});
  std::vector<Dataset> shards;
  shards.reserve(replicas_.size());
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    shards.push_back(data.shard(i, replicas_.size()));
  }
  return DistributedDataset([this, shards, pipeline](std::uint64_t epoch, std::size_t first_step) {
    return std::make_unique<OwnInput>(*this, shards, epoch, static_cast<std::uint32_t>(pipeline),
                                      first_step);
  });
}

}  // namespace ronde::trainer
