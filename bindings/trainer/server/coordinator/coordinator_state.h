// SPDX-License-Identifier: Apache-2.0
// What a coordinator and its workers say to each other, and who does what. Pure, as protocol.h.
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

// Hands tasks to workers. A task whose worker is lost is given to another one: it runs at least
// once, and its result counts once.
class CoordinatorState {
 public:
  explicit CoordinatorState(std::uint32_t workers, double worker_timeout = 5.0,
                            double start_timeout = 60.0)
      : workers_(workers), timeout_(worker_timeout), start_timeout_(start_timeout) {}

  // `only`: the worker that must run it; it waits for that one, even if it is lost where it `must`.
  std::uint64_t schedule(std::string text, Floats floats = {},
                         std::optional<std::uint32_t> only = {}, bool must = true);
  // What a worker that is started again runs first; nobody takes its result.
  void add_setup(std::string text, Floats floats) {
    setups_.push_back({0, std::move(text), std::move(floats), {}, true});
  }
  Messages on_message(double now, const Message& message);
  Messages on_tick(double now);
  // Nobody listened for so long: that is no silence of the workers.
  void forgive(double seconds) {
    for (Worker& worker : workers_) worker.heard += seconds;
  }

  [[nodiscard]] bool is_done(std::uint64_t task) const { return results_.contains(task); }
  // The end of a task that is done (kResult or kFailed), which is then forgotten.
  Message take(std::uint64_t task);
  [[nodiscard]] bool all_done() const noexcept { return waiting_.empty() && running_ == 0; }
  // What the setup of a worker that was started again has thrown.
  [[nodiscard]] const std::optional<std::string>& setup_failure() const { return setup_failure_; }
  // That, or what the first of the failed steps has thrown that nobody has been told of yet.
  // Once for each.
  [[nodiscard]] std::optional<std::string> take_failure();
  [[nodiscard]] std::uint64_t retried() const noexcept { return retried_; }

 private:
  struct Task {
    std::uint64_t number = 0;
    std::string text;
    Floats floats;
    std::optional<std::uint32_t> only;
    bool must = true;  // that one, even if it is lost
    bool is_setup = false;
  };
  struct Worker {
    double heard = -1e9;
    bool lost = false;
    double sent = 0.0;
    std::uint64_t incarnation = 0;
    std::set<std::uint64_t> before;  // earlier incarnations
    bool unfit = false;              // its setup has failed: it gets nothing
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
  std::uint64_t told_ = 0;  // failures of steps up to this one
};

}  // namespace ronde::trainer::server
