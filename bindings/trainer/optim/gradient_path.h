// SPDX-License-Identifier: Apache-2.0
// The way of a replica's gradients, which its strategy gives it: averaged by the engine while
// backward goes on, summed in the memory that replicas share, or served, where variables live on
// servers: pushed there, applied there, and pulled again (server/strategy has that one).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ronde/ronde.hpp>
#include <span>
#include <string>

#include "bindings/trainer/optim/optimizer_options.h"
#include "bindings/trainer/tensor/parameter.h"

namespace ronde::trainer {

struct StepBatch;

// Why a training ends before its last step.
enum class Stop : std::uint8_t { kNo, kEnded, kStopped };

// What a training loop asks is answered here for ranks that take the same step at the same time.
// Where variables are served, other workers step them at their own pace, so nothing is agreed in a
// step: how far all of them are the servers say, and what one of them says on the servers, the
// others see at their next pull.
//
// Thread safety: belongs to the thread of its model.
class GradientPath {
 public:
  GradientPath() = default;
  GradientPath(const GradientPath&) = delete;
  GradientPath& operator=(const GradientPath&) = delete;
  virtual ~GradientPath() = default;
  using Sums = std::array<double, 3>;  // of the loss, of what is right, and of samples

  // Before the first gradient of a step, with its number, where the program knows it, and with the
  // weight of this replica's gradients, where the path averages by weights.
  virtual void begin_step(std::optional<std::uint64_t> /*number*/, double /*weight*/) {}
  // The gradient of the parameter of this place among all is final on this replica.
  virtual void ready(std::size_t /*parameter*/) {}
  // All gradients are: each is the sum over the replicas when this returns.
  virtual void end_step() {}
  [[nodiscard]] virtual AveragerStatistics averaging() const { return {}; }
  // How long this replica has waited for others' gradients, or for servers, in seconds.
  [[nodiscard]] virtual double waited_seconds() const { return averaging().seconds_in_wait; }

  // Whether the steps from now on average by weights, between steps; throws TrainerError where that
  // cannot be.
  virtual void average_by_weights(bool by_weights);
  [[nodiscard]] virtual bool by_weights() const { return false; }
  // The parameters have been updated, from so many samples on this replica. Whether all replicas
  // are equal now.
  virtual bool updated(std::uint64_t /*samples*/) { return true; }
  // The epoch is over. Whether something was averaged.
  virtual bool end_epoch() { return false; }
  // Each replica steps on its own between averages of the parameters.
  [[nodiscard]] virtual bool is_local() const { return false; }
  // This replica has no more steps, until no other one has: returns the last one that had.
  virtual int join() { return 0; }

  // The rest is for variables on servers.
  [[nodiscard]] virtual bool is_served() const { return false; }
  // Writes the servers' values into parameters and statistics, and waits where the mode says so.
  // The chief's first one creates the variables from what it has.
  virtual void pull() {}
  // Sends the gradients, of a mean over so many samples, and the statistics.
  virtual void push(double /*samples*/, double /*rate*/) {}
  // On the chief: a pull, and what the servers' optimiser has kept as well, into that of this
  // replica. Throws TrainerError where a number is not finite.
  virtual void fetch() {}

  // The updates that the servers have made, as the last pull or push has told; how many of them a
  // batch of all workers is; and whether workers take the same step at the same time.
  [[nodiscard]] virtual std::uint64_t global_step() const { return 0; }
  [[nodiscard]] virtual std::uint64_t steps_per_batch() const { return 1; }
  [[nodiscard]] virtual bool in_rounds() const { return true; }
  // "worker 1", in errors.
  [[nodiscard]] virtual std::string task() const { return ""; }

  // Whether this task has batches of its own. One without waits for others in await_batch(): false,
  // unless it is sent its batches by the chief, and there is one; then it answers the sums of the
  // loss. It ends when the chief sends none any more.
  [[nodiscard]] virtual bool reads_data() const { return true; }
  [[nodiscard]] virtual bool is_sent_data() const { return false; }
  virtual bool await_batch(StepBatch& /*batch*/, std::uint64_t& /*epoch*/) { return false; }
  virtual void answer(const Sums& /*sums*/) {}
  // A chief that sends its batches does so in place of a step of its own, and gets what workers
  // have answered meanwhile.
  [[nodiscard]] virtual bool sends_data() const { return false; }
  virtual Sums send_batch(const StepBatch& /*batch*/, std::uint64_t /*epoch*/, double /*rate*/) {
    return {};
  }
  // What they have answered since, once they have answered all that was sent.
  virtual Sums finish_sent() { return {}; }

  // Before the first pull: what tasks that say it must say alike.
  virtual void alike(const std::string& /*name*/, const std::string& /*value*/) {}
  // On the chief, before its first pull: what it has is of this step, moments included.
  virtual void restored(std::uint64_t /*step*/) {}
  // On the chief: a server that begins anew goes on from the checkpoint whose path this returns
  // once it is written; null: there is none.
  virtual void saved(const std::function<std::string()>& /*path*/) {}

  // A training is what lies between these two. In end() a worker is done; the chief waits until all
  // are done or gone; the others wait until it has said so. Then this task has the last values.
  virtual void begin() {}
  virtual void end() {}
  // All tasks end this training after the steps that they have under way.
  virtual void stop(Stop /*why*/) {}
  [[nodiscard]] virtual Stop stopped() const { return Stop::kNo; }
  // For the line of results, on the chief; for a line of its own, on another task.
  [[nodiscard]] virtual std::string words() { return ""; }
};

// The engine sums each gradient as soon as it, and what fills a bucket with it, is ready
// everywhere.
[[nodiscard]] std::unique_ptr<GradientPath> averaged_path(Engine& engine,
                                                          std::span<Parameter* const> parameters,
                                                          const OptimizerOptions& options);
// No gradient leaves its replica: each so many steps the parameters are averaged, by samples.
[[nodiscard]] std::unique_ptr<GradientPath> local_path(Engine& engine,
                                                       std::span<Parameter* const> parameters,
                                                       std::uint64_t every);
// `sum` leaves in all gradients the sums over the replicas, once backward is over everywhere.
[[nodiscard]] std::unique_ptr<GradientPath> summed_path(std::function<void()> sum);

}  // namespace ronde::trainer
