// SPDX-License-Identifier: Apache-2.0
// The way of gradients where variables live on servers: pushed there, applied there, and pulled
// again. server/strategy.h has the one there is; nothing here knows of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace ronde::trainer {

struct StepBatch;

// Why a training ends before its last step.
enum class Stop : std::uint8_t { kNo, kEnded, kStopped };

// Other workers step the same variables at their own pace, so nothing is agreed in a step: how far
// all of them are the servers say, and what one of them says on the servers, the others see at
// their next pull.
//
// Thread safety: belongs to the thread of its model.
class ServedPath {
 public:
  ServedPath() = default;
  ServedPath(const ServedPath&) = delete;
  ServedPath& operator=(const ServedPath&) = delete;
  virtual ~ServedPath() = default;
  using Sums = std::array<double, 3>;  // of the loss, of what is right, and of samples

  // Writes the servers' values into parameters and statistics, and waits where the mode says so.
  // The chief's first one creates the variables from what it has.
  virtual void pull() = 0;
  // Sends the gradients, of a mean over so many samples, and the statistics.
  virtual void push(double samples, double rate) = 0;
  // On the chief: a pull, and what the servers' optimiser has kept as well, into that of this
  // replica. Throws TrainerError where a number is not finite.
  virtual void fetch() = 0;

  // The updates that the servers have made, as the last pull or push has told; how many of them a
  // batch of all workers is; and whether workers take the same step at the same time.
  [[nodiscard]] virtual std::uint64_t global_step() const = 0;
  [[nodiscard]] virtual std::uint64_t steps_per_batch() const = 0;
  [[nodiscard]] virtual bool in_rounds() const = 0;
  [[nodiscard]] virtual std::size_t workers() const = 0;

  // Whether this task has batches of its own. One without waits for others in await_batch(): false,
  // unless it is sent its batches by the chief, and there is one; then it answers the sums of the
  // loss. It ends when the chief sends none any more.
  [[nodiscard]] virtual bool reads_data() const = 0;
  [[nodiscard]] virtual bool is_sent_data() const = 0;
  virtual bool await_batch(StepBatch& batch, std::uint64_t& epoch) = 0;
  virtual void answer(const Sums& sums) = 0;
  // A chief that sends its batches does so in place of a step of its own, and gets what workers
  // have answered meanwhile.
  [[nodiscard]] virtual bool sends_data() const = 0;
  virtual Sums send_batch(const StepBatch& batch, std::uint64_t epoch, double rate) = 0;
  // What they have answered since, once they have answered all that was sent.
  virtual Sums finish_sent() = 0;

  // Before the first pull: what tasks that say it must say alike.
  virtual void alike(const std::string& name, const std::string& value) = 0;
  // On the chief, before its first pull: what it has is of this step, moments included.
  virtual void restored(std::uint64_t step) = 0;
  // On the chief: a server that begins anew goes on from the checkpoint whose path this returns
  // once it is written; null: there is none.
  virtual void saved(std::function<std::string()> path) = 0;

  // A training is what lies between these two. In end() a worker is done; the chief waits until all
  // are done or gone; the others wait until it has said so. Then this task has the last values.
  virtual void begin() = 0;
  virtual void end() = 0;
  // All tasks end this training after the steps that they have under way.
  virtual void stop(Stop why) = 0;
  [[nodiscard]] virtual Stop stopped() const = 0;
  // For the line of results, on the chief; for a line of its own, on another task.
  [[nodiscard]] virtual std::string words() = 0;
  // How long this task has waited for servers, in seconds.
  [[nodiscard]] virtual double waited_seconds() const = 0;
};

}  // namespace ronde::trainer
