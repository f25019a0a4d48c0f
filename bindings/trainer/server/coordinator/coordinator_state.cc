// SPDX-License-Identifier: Apache-2.0
// Giving tasks to workers, and taking them back from lost ones.
#include <algorithm>
#include <utility>

#include "bindings/trainer/server/coordinator/coordinator_state.h"

namespace ronde::trainer::server {

std::uint64_t CoordinatorState::schedule(std::string text, Floats floats,
                                         std::optional<std::uint32_t> only, bool must) {
  waiting_.push_back({++tasks_, std::move(text), std::move(floats), only, must});
  return tasks_;
}

void CoordinatorState::give(double now, std::uint32_t worker, Messages& out) {
  Worker& to = workers_[worker];
  if (!to.task) {
    // Its setups first, wherever tasks of lost workers have been put.
    auto next = std::ranges::find_if(
        waiting_, [worker](const Task& task) { return task.is_setup && task.only == worker; });
    if (next == waiting_.end() && !to.unfit) {
      next = std::ranges::find_if(waiting_, [this, worker](const Task& task) {
        return !task.only || *task.only == worker || (!task.must && workers_[*task.only].lost);
      });
    }
    if (next == waiting_.end()) return;
    to.task = std::move(*next);
    waiting_.erase(next);
    ++running_;
  }
  Message run = make_message(Kind::kRun, 0, to.task->text);
  run.from = {Role::kChief, 0, 0};
  run.to = {Role::kWorker, worker, to.incarnation};
  run.sequence = to.task->number;
  run.floats = to.task->floats;
  to.sent = now;
  out.push_back(std::move(run));
}

void CoordinatorState::lose(Worker& worker) {
  if (!worker.task) return;
  waiting_.push_front(std::move(*worker.task));
  worker.task.reset();
  --running_;
  ++retried_;
}

Messages CoordinatorState::on_message(double now, const Message& message) {
  Messages out;
  if (message.from.role != Role::kWorker || message.from.index >= workers_.size()) return out;
  Worker& worker = workers_[message.from.index];
  if (message.from.incarnation == 0 || worker.before.contains(message.from.incarnation)) return out;
  if (message.from.incarnation != worker.incarnation) {
    if (worker.incarnation != 0) worker.before.insert(worker.incarnation);
    worker.unfit = false;
    lose(worker);
    // What its earlier start has still not run it gets anew, in order.
    std::erase_if(waiting_, [&message](const Task& task) {
      return task.is_setup && task.only == message.from.index;
    });
    for (auto setup = setups_.rbegin(); worker.incarnation != 0 && setup != setups_.rend();
         ++setup) {
      Task task = *setup;
      task.number = ++tasks_;
      task.only = message.from.index;
      task.is_setup = true;
      waiting_.push_front(std::move(task));
    }
    worker.incarnation = message.from.incarnation;
  }
  worker.heard = now;
  worker.lost = false;
  const bool ends = message.kind == Kind::kResult || message.kind == Kind::kFailed;
  if (ends && worker.task && worker.task->number == message.sequence) {
    if (!worker.task->is_setup) {
      results_.emplace(message.sequence, message);
    } else if (message.kind == Kind::kFailed && !std::exchange(worker.unfit, true)) {
      setup_failure_ = text_of(message.from) + " was started again, and " + message.text;
    }
    worker.task.reset();
    --running_;
  }
  if (!worker.task) give(now, message.from.index, out);
  return out;
}

Messages CoordinatorState::on_tick(double now) {
  Messages out;
  if (started_ < 0.0) started_ = now;
  for (std::uint32_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (now - worker.heard > timeout_) {
      worker.lost = worker.incarnation != 0 || now - started_ > start_timeout_;
      lose(worker);
    } else if (!worker.task || now - worker.sent > 1.0) {
      give(now, i, out);  // again, in case it was lost on the way; a worker runs a task once
    }
  }
  return out;
}

std::optional<std::string> CoordinatorState::take_failure() {
  if (setup_failure_) return setup_failure_;
  std::optional<std::string> first;
  for (const auto& [number, result] : results_) {
    if (number > told_ && result.kind == Kind::kFailed && !first) first = result.text;
  }
  told_ = tasks_;
  return first;
}

Message CoordinatorState::take(std::uint64_t task) {
  Message result = std::move(results_.at(task));
  results_.erase(task);
  return result;
}

}  // namespace ronde::trainer::server
