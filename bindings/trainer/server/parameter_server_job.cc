// SPDX-License-Identifier: Apache-2.0
// What a task says and asks beside its pulls and pushes: what its training is, what is looked at
// before it is sent, what servers have and have counted, and how the tasks of a job end together.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <utility>

#include "bindings/trainer/fit/replica.h"
#include "bindings/trainer/server/parameter_server.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer::server {

namespace {

// Seconds that the chief waits at the end for workers that are there and make no step.
constexpr double kPatience = 600.0;

[[noreturn]] void not_finite(const std::string& name) {
  throw TrainerError("a gradient of '" + name +
                     "' is not a finite number: use a smaller learning " +
                     "rate, or look for NaN in the data");
}

}  // namespace

// Settings that the tasks of one training have alike.
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
  if (samples == 0.0) return;  // what lies there counts for nothing
  for (Parameter* const one : parameters_) {
    if (!all_finite(one->gradient())) not_finite(one->name());
  }
}

// Before a chief creates anything. One that was started again with a server would begin a part of
// the model anew beside what the others have learned.
void ParameterServer::compare_servers() {
  std::vector<ServerCounts> counts;
  for (std::uint32_t group = 0; group < servers_; ++group) {
    Message message;
    message.kind = Kind::kStatus;
    message.group = group;
    counts.push_back(counts_of(client_.ask(message).text));
  }
  const auto furthest = std::ranges::max_element(counts, {}, &ServerCounts::global_step);
  const auto empty = std::ranges::find(counts, false, &ServerCounts::created);
  if (furthest->global_step == 0 || empty == counts.end()) return;
  const std::string text = "ps " + std::to_string(empty - counts.begin()) +
                           " has no variables, and ps " +
                           std::to_string(furthest - counts.begin()) + " has those of step " +
                           std::to_string(furthest->global_step);
  if (restored_)
    return say(text + ": it begins with the checkpoint of step " + std::to_string(first_step_));
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
std::vector<ParameterServer::Stretch> ParameterServer::state_of(std::uint32_t group) {
  const std::size_t parameters = parameters_.size();
  const std::size_t values = parameters + options_.statistics.size() + tables_.size();
  const std::size_t learned = parameters + tables_.size();  // which have moments of each kind
  const std::size_t kinds = learned == 0 ? 0 : (tensors_.size() - values) / learned;
  std::vector<Stretch> stretches;
  const auto add_dense = [&](std::size_t first, std::size_t variables) {
    for (const Piece& piece : pieces_) {
      if (piece.server != group || piece.variable >= variables) continue;
      const StateTensor& tensor = tensors_[first + piece.variable];
      stretches.push_back({tensor.values.data() + piece.first, piece.size, 0, 1});
    }
  };
  const auto add_table = [&](const StateTensor& tensor) {
    const std::size_t width = tensor.shape[1];
    stretches.push_back({tensor.values.data() + group * width, width, servers_ * width,
                         rows_on(tensor.shape[0], group, servers_)});
  };
  add_dense(0, values);
  for (std::size_t i = 0; i < tables_.size(); ++i) add_table(tensors_[values - tables_.size() + i]);
  for (std::size_t kind = 0; kind < kinds; ++kind) add_dense(values + kind * learned, parameters);
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    for (std::size_t kind = 0; kind < kinds; ++kind) {
      add_table(tensors_[values + kind * learned + parameters + i]);
    }
  }
  return stretches;
}

void ParameterServer::state() {
  for (std::uint32_t group = 0; group < servers_; ++group) {
    Message message;
    message.kind = Kind::kState;
    message.group = group;
    const Message answer = client_.ask(std::move(message));
    versions_[group] = answer.version;
    if (group == 0) global_step_ = answer.version;
    FloatReader from(answer.floats);
    for (const Stretch& one : state_of(group)) {
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
                           ": it is not saved, so that the checkpoints of before stay; go on from "
                           "the newest with a smaller learning rate",
                       kExitConfiguration);
  }
}

std::string ServerCounts::staleness_text() const {
  std::string text;
  for (std::size_t i = 0; i < staleness.size(); ++i) {
    if (staleness[i] == 0) continue;
    text += (text.empty() ? "" : ",") + std::to_string(i) +
            (i + 1 == staleness.size() ? "+:" : ":") + std::to_string(staleness[i]);
  }
  return text;
}

ServerCounts ParameterServer::counts() {
  Message message;
  message.kind = Kind::kStatus;
  const ServerCounts counts = counts_of(client_.ask(message).text);
  end_ = std::max(end_, counts.end);
  global_step_ = std::max(global_step_, counts.global_step);
  return counts;
}

void ParameterServer::say_end(std::uint64_t end) {
  end_ = std::max(end_, end);
  // The first server last: whoever hears it there hears it everywhere.
  for (std::uint32_t group = servers_; group-- > 0;) {
    Message message;
    message.kind = Kind::kStop;
    message.group = group;
    message.version = end_;
    (void)client_.ask(std::move(message));
  }
}

ServerCounts ParameterServer::counts_of(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  ServerCounts counts;
  counts.global_step = json.at("version");
  counts.steps_by_worker = json.at("steps").get<std::vector<std::uint64_t>>();
  counts.dropped_by_worker = json.at("dropped").get<std::vector<std::uint64_t>>();
  counts.staleness = json.at("staleness").get<Histogram>();
  counts.there = json.at("there");
  counts.expected = json.at("expected");
  counts.most_ahead = json.at("most_ahead");
  counts.lost = json.at("lost").get<std::vector<std::string>>();
  counts.chief_is_heard = json.at("chief");
  counts.closed = json.at("closed");
  counts.created = json.at("created");
  counts.end = json.at("end");
  return counts;
}

void ParameterServer::leave() {
  left_ = true;
  // The first server last: once that one says that all are done, the chief closes the job.
  for (std::uint32_t group = servers_; group-- > 0;) {
    Message message;
    message.kind = Kind::kBye;
    message.group = group;
    (void)client_.ask(std::move(message));
  }
}

void ParameterServer::wait_for(std::uint64_t end) {
  const std::string seconds = std::to_string(std::lround(options_.deadline)) + " s";
  double heard = steady_seconds();
  bool said = false;
  while (true) {
    Message message;
    message.kind = Kind::kStatus;
    const auto answer = client_.try_ask(message, options_.deadline);
    if (client_.closed()) return;
    if (!answer || answer->kind != Kind::kCounts) {
      throw TrainerError("ps 0 has not answered for " + seconds + ", nor said that the chief has " +
                         "closed the job: look whether the chief has kept the last state");
    }
    const ServerCounts now = counts_of(answer->text);
    end_ = std::max(end_, now.end);
    if (now.closed || end_ >= end) return;
    if (now.chief_is_heard) heard = steady_seconds();
    const double silence = steady_seconds() - heard;
    if (silence > options_.deadline) {
      throw TrainerError("the chief has not been heard for " + seconds +
                         ": nobody has kept the last state, so start all tasks again");
    }
    if (silence > 1.0 && !std::exchange(said, true)) {
      say(text_of(tasks_.self()) + " is done, and the chief, which keeps the last state, is not " +
          "heard: it waits for at most " + seconds);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

ServerCounts ParameterServer::wait_for_workers() {
  // Those who stop without a word are gone after worker_timeout.
  ServerCounts last = counts();
  double news = steady_seconds();
  while (last.there > 0 || last.expected > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ServerCounts now = counts();
    if (now.global_step != last.global_step || now.there != last.there) news = steady_seconds();
    last = std::move(now);
    if (steady_seconds() - news < kPatience) continue;
    say(std::to_string(last.there) + " workers are there, but have made no step for " +
        std::to_string(static_cast<long>(kPatience)) + " s: the chief goes on without them");
    break;
  }
  return last;
}

void ParameterServer::close() {
  for (std::uint32_t group = 0; group < servers_; ++group) {
    Message message;
    message.kind = Kind::kClose;
    message.group = group;
    if (!client_.try_ask(std::move(message), 5.0)) {
      say("ps " + std::to_string(group) + " did not say that it ends: it does so by itself");
    }
  }
}

ServerCounts ParameterServer::finish() {
  leave();
  if (!chief_) return wait_for(UINT64_MAX), ServerCounts{};
  const ServerCounts last = wait_for_workers();
  for (const std::string& one : last.lost) {
    say(one + " was lost before it was done: what it had still to learn is not learned");
  }
  pull();
  close();
  return last;
}

}  // namespace ronde::trainer::server
