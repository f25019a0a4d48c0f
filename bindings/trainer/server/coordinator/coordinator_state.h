// SPDX-License-Identifier: Apache-2.0
// Which worker runs which task of a coordinator. Pure, as protocol.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/server/protocol.h"

namespace ronde::trainer::server {

// Gives tasks to workers. If a worker is lost, another one gets its task: it runs at least once,
// and its result counts once.
class CoordinatorState {
 public:
  explicit CoordinatorState(std::uint32_t workers, double worker_timeout = 5.0,
                            double start_timeout = 60.0)
      : workers_(workers), timeout_(worker_timeout), start_timeout_(start_timeout) {}

  // `only`: the worker that runs the task; `must`: no other one, even if that worker is lost.
  std::uint64_t schedule(std::string text, Floats floats = {},
                         std::optional<std::uint32_t> only = {}, bool must = true);
  // A task that a worker runs first when it is started again. Its result is dropped.
  void add_setup(std::string text, Floats floats) {
    setups_.push_back({0, std::move(text), std::move(floats), {}, true});
  }
  Messages on_message(double now, const Message& message);
  Messages on_tick(double now);

  // Whether the start of the worker that this result comes from is its last one.
  [[nodiscard]] bool is_current(const Message& result) const {
    return workers_.at(result.from.index).incarnation == result.from.incarnation;
  }
  [[nodiscard]] bool is_done(std::uint64_t task) const { return results_.contains(task); }
  // The result (kResult or kFailed) of a task that is done; it is then forgotten.
  Message take(std::uint64_t task);
  [[nodiscard]] bool all_done() const noexcept { return waiting_.empty() && running_ == 0; }
  // The error of the setup of a worker that was started again.
  [[nodiscard]] const std::optional<std::string>& setup_failure() const { return setup_failure_; }
  // That, or the error of the first step that has failed since the last call.
  [[nodiscard]] std::optional<std::string> take_failure();
  [[nodiscard]] std::uint64_t retried() const noexcept { return retried_; }

 private:
  struct Task {
    std::uint64_t number = 0;
    std::string text;
    Floats floats;
    std::optional<std::uint32_t> only;
    bool must = true;  // no other one, even if it is lost
    bool is_setup = false;
  };
  struct Worker {
    double heard = -1e9;
    bool lost = false;
    double sent = 0.0;
    std::uint64_t incarnation = 0;
    std::set<std::uint64_t> before;  // earlier incarnations
    bool unfit = false;              // its setup has failed: it gets no tasks
    std::optional<Task> task;
  };
  void give(double now, std::uint32_t worker, Messages& out);
  void lose(Worker& worker);

  std::vector<Worker> workers_;
  const double timeout_;
  const double start_timeout_;
  double started_ = -1.0;
  std::deque<Task> waiting_;
  std::optional<std::string> setup_failure_;
  std::vector<Task> setups_;
  std::size_t running_ = 0;
  std::uint64_t tasks_ = 0;
  std::uint64_t retried_ = 0;
  std::map<std::uint64_t, Message> results_;
  std::uint64_t told_ = 0;  // take_failure() has returned failures up to this task
};

}  // namespace ronde::trainer::server
