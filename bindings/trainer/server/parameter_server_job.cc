// SPDX-License-Identifier: Apache-2.0
// A task beside its pulls and pushes: the settings of its training, checks of a push, the servers'
// state and counts, and the common end of the tasks of a job.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <sstream>
#include <thread>
#include <utility>

#include "bindings/trainer/server/parameter_server.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer::server {

namespace {

// Seconds that the chief waits at the end for workers that are there but make no steps.
constexpr double kPatience = 600.0;
// Seconds that a task that ends waits for the servers' acknowledgement.
constexpr double kConfirms = 5.0;

[[noreturn]] void not_finite(const std::string& name) {
  throw TrainerError("a gradient of '" + name +
                     "' is not a finite number: use a smaller learning " +
                     "rate, or look for NaN in the data");
}

}  // namespace

// The settings that the tasks of one training have alike.
std::string ParameterServer::training() const {
  Flags all{{"--mode", text_of(options_.mode)},
            {"--backup_workers", std::to_string(options_.mode.backup_workers)},
            {"--scale_by_staleness", options_.mode.scale_by_staleness ? "on" : "off"},
            {"optimizer", UpdateRule(options_.optimizer, {}).settings()}};
  all.insert(all.end(), options_.alike.begin(), options_.alike.end());
  std::istringstream lines(table_);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    all.emplace_back("variable-" + std::to_string(count), line);
  }
  all.emplace_back("variables", std::to_string(count));
  std::string text;
  for (auto [name, value] : all) {
    std::ranges::replace(name, ' ', '-');
    std::string line = name + " " + value;
    std::ranges::replace(line, '\n', ' ');
    text += (text.empty() ? "" : "\n") + line;
  }
  return text;
}

void ParameterServer::check_rows(std::span<const Rows> rows, bool with_gradients) const {
  for (const Rows& one : rows) {
    if (one.table >= options_.tables.size()) {
      throw TrainerError("there is no table " + std::to_string(one.table) + ": there are " +
                         std::to_string(options_.tables.size()));
    }
    const TableSpec& table = options_.tables[one.table];
    if (!with_gradients) continue;
    if (one.gradients.size() != one.ids.size() * table.width) {
      throw TrainerError("rows of '" + table.name + "' come with " +
                         std::to_string(one.gradients.size()) + " gradients, and not with " +
                         std::to_string(table.width) + " for each of " +
                         std::to_string(one.ids.size()) + " ids");
    }
    if (!all_finite(one.gradients)) not_finite(table.name);
  }
}

void ParameterServer::check_push(double samples, double rate, std::span<const Rows> rows) const {
  if (!std::isfinite(rate) || !std::isfinite(samples) || samples < 0.0) {
    throw TrainerError("a push of " + number_text(samples) + " samples at a rate of " +
                       number_text(rate) + ": both must be finite, and samples not below 0");
  }
  check_rows(rows, true);
  if (samples == 0.0) return;  // the gradients are not used
  for (Parameter* const one : parameters_) {
    if (!all_finite(one->gradient())) not_finite(one->name());
  }
}

// Before the chief creates variables: a chief that was started again together with a server would
// begin a part of the model anew beside the others' learned parts.
void ParameterServer::compare_servers() {
  std::vector<ServerCounts> counts;
  counts.reserve(servers_);
  for (std::uint32_t group = 0; group < servers_; ++group) {
    counts.push_back(ServerCounts::of(client_.ask(make_message(Kind::kStatus, group)).text));
  }
  const auto furthest = std::ranges::max_element(counts, {}, &ServerCounts::global_step);
  const auto empty = std::ranges::find(counts, false, &ServerCounts::created);
  if (furthest->global_step == 0 || empty == counts.end()) return;
  const std::string text = "ps " + std::to_string(empty - counts.begin()) +
                           " has no variables, and ps " +
                           std::to_string(furthest - counts.begin()) + " has those of step " +
                           std::to_string(furthest->global_step);
  if (restored_)
    return options_.say(text + ": it begins with the checkpoint of step " +
                        std::to_string(first_step_));
  throw TrainerError(text +
                         ", which belong together: there is no checkpoint, so end all tasks and " +
                         "begin anew, with --logdir or --standby on to lose less next time",
                     kExitConfiguration);
}

void ParameterServer::restored(std::uint64_t step) {
  restored_ = true;
  first_step_ = global_step_ = step;
  mirror_->set_steps(step);
}

// In the order of Variables::state().
std::vector<ParameterServer::Blocks> ParameterServer::state_of(
    std::uint32_t group, const std::vector<StateTensor>& tensors) const {
  const std::size_t parameters = parameters_.size();
  const std::size_t values = parameters + options_.statistics.size() + tables_.size();
  const std::size_t learned = parameters + tables_.size();  // each has moments of each kind
  const std::size_t kinds = learned == 0 ? 0 : (tensors.size() - values) / learned;
  std::vector<Blocks> blocks;
  const auto add_dense = [&](std::size_t first, std::size_t variables) {
    for (const Piece& piece : pieces_) {
      if (piece.server != group || piece.variable >= variables) continue;
      const StateTensor& tensor = tensors[first + piece.variable];
      blocks.push_back({tensor.values.data() + piece.first, piece.size, 0, 1});
    }
  };
  const auto add_table = [&](const StateTensor& tensor) {
    const std::size_t width = tensor.shape[1];
    blocks.push_back({tensor.values.data() + group * width, width, servers_ * width,
                      rows_on(tensor.shape[0], group, servers_)});
  };
  add_dense(0, values);
  for (std::size_t i = 0; i < tables_.size(); ++i) add_table(tensors[values - tables_.size() + i]);
  for (std::size_t kind = 0; kind < kinds; ++kind) add_dense(values + kind * learned, parameters);
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    for (std::size_t kind = 0; kind < kinds; ++kind) {
      add_table(tensors[values + kind * learned + parameters + i]);
    }
  }
  return blocks;
}

std::vector<float> ParameterServer::numbers_of(const std::vector<Blocks>& blocks) {
  std::vector<float> numbers;
  for (const Blocks& one : blocks) {
    for (std::size_t i = 0; i < one.count; ++i) {
      const float* const from = one.first + i * one.step;
      numbers.insert(numbers.end(), from, from + one.size);
    }
  }
  return numbers;
}

void ParameterServer::state() {
  for (std::uint32_t group = 0; group < servers_; ++group) {
    const Message answer = client_.ask(make_message(Kind::kState, group));
    versions_[group] = answer.version;
    if (group == 0) global_step_ = answer.version;
    FloatReader from(answer.floats);
    for (const Blocks& one : state_of(group, tensors_)) {
      for (std::size_t i = 0; i < one.count && from.left() >= one.size; ++i) {
        from.read({one.first + i * one.step, one.size});
      }
    }
  }
  mirror_->set_steps(global_step_);
  for (Parameter* const one : parameters_) one->changed();
  for (const StateTensor& one : tensors_) {
    if (all_finite(one.values)) continue;
    throw TrainerError("not every number of '" + one.name + "' on the servers is finite at step " +
                           std::to_string(global_step_) +
                           ": it is not saved, and the earlier checkpoints stay; go on from the "
                           "newest with a smaller learning rate",
                       kExitConfiguration);
  }
}

ServerCounts ParameterServer::counts() {
  ServerCounts counts = ServerCounts::of(client_.ask(make_message(Kind::kStatus)).text);
  end_ = std::max(end_, counts.end);
  global_step_ = std::max(global_step_, counts.global_step);
  return counts;
}

// The first server last: tasks ask it for counts, and so all servers know the news before them.
void ParameterServer::ask_each(Message message) {
  for (message.group = servers_; message.group-- > 0;) (void)client_.ask(message);
}

void ParameterServer::say_end(std::uint64_t end) {
  end_ = std::max(end_, end);
  Message message = make_message(Kind::kStop);
  message.version = end_;
  ask_each(std::move(message));
}

void ParameterServer::leave() {
  left_ = true;
  ask_each(make_message(Kind::kBye));
}

void ParameterServer::wait_for(std::uint64_t end) {
  const std::string seconds = std::to_string(std::lround(options_.deadline)) + " s";
  double heard = client_.now();
  bool said = false;
  while (true) {
    const auto answer = client_.try_ask(make_message(Kind::kStatus), options_.deadline);
    if (client_.closed()) return;
    if (!answer || answer->kind != Kind::kCounts) {
      throw TrainerError("ps 0 has not answered for " + seconds + ", and this task does not know " +
                         "whether the chief has saved the last state: look at the chief's output");
    }
    const ServerCounts now = ServerCounts::of(answer->text);
    end_ = std::max(end_, now.end);
    if (now.closed || end_ >= end) return;
    if (now.chief_is_heard) heard = client_.now();
    const double silence = client_.now() - heard;
    if (silence > options_.deadline) {
      throw TrainerError("the chief has not been heard for " + seconds +
                         ": the last state may be lost, so start all tasks again");
    }
    if (silence > 1.0 && !std::exchange(said, true)) {
      options_.say(text_of(tasks_.self()) + " is done, and waits for at most " + seconds +
                   " for the chief, which saves the last state and is not heard");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

ServerCounts ParameterServer::wait_for_workers() {
  // A worker that dies is gone after worker_timeout.
  ServerCounts last = counts();
  double news = client_.now();
  while (last.there > 0 || last.expected > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ServerCounts now = counts();
    if (now.global_step != last.global_step || now.there != last.there) news = client_.now();
    last = std::move(now);
    if (client_.now() - news < kPatience) continue;
    options_.say(std::to_string(last.there) + " workers are there, but have made no step for " +
                 std::to_string(static_cast<long>(kPatience)) +
                 " s: the chief goes on without them");
    break;
  }
  return last;
}

void ParameterServer::close() {
  is_closed_ = true;
  if (const auto silent = client_.tell_all(make_message(Kind::kClose), kConfirms)) {
    options_.say("ps " + std::to_string(*silent) +
                 " has not confirmed that it ends: it ends by itself");
  }
}

void ParameterServer::fail(const std::string& error, int exit_code) {
  if (std::exchange(is_closed_, true)) return;
  Message message = make_message(chief_ ? Kind::kClose : Kind::kBye, 0, chief_ ? error : "");
  message.version = static_cast<std::uint64_t>(exit_code);
  if (chief_ || tasks_.role == Role::kEvaluator) (void)client_.tell_all(message, kConfirms);
}

ServerCounts ParameterServer::finish() {
  leave();
  if (!chief_) return wait_for(UINT64_MAX), ServerCounts{};
  const ServerCounts last = wait_for_workers();
  for (const std::string& one : last.lost) {
    options_.say(one + " was lost before it was done: its remaining samples are not learned");
  }
  pull();
  close();
  return last;
}

}  // namespace ronde::trainer::server
