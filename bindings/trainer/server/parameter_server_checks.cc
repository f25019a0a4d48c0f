// SPDX-License-Identifier: Apache-2.0
// What a task says of its training, and what is looked at before it is sent.
#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "bindings/trainer/server/parameter_server.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer::server {

namespace {

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
            {"optimizer", make_optimizer(options_.optimizer, {})->settings()}};
  all.insert(all.end(), options_.flags.begin(), options_.flags.end());
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

}  // namespace ronde::trainer::server
