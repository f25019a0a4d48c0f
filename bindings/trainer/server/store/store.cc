// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/server/store/store.h"

#include <span>
#include <string>
#include <utility>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {

namespace {

std::vector<std::int64_t> ids_of(std::size_t table, const std::vector<std::int64_t>& keys) {
  std::vector<std::int64_t> ids{static_cast<std::int64_t>(table),
                                static_cast<std::int64_t>(keys.size())};
  ids.insert(ids.end(), keys.begin(), keys.end());
  return ids;
}

}  // namespace

Store::Store(Replica& replica, const std::optional<Tasks>& tasks, ParameterServerOptions options)
    : options_(std::move(options)), replica_(&replica) {
  if (tasks) {
    const auto ranks = static_cast<std::size_t>(replica.size());
    if (tasks->workers.size() != ranks) {
      throw TrainerError("this job has " + std::to_string(ranks) + " ranks and " +
                             std::to_string(tasks->workers.size()) +
                             " workers: name as many workers as ranks",
                         kExitConfiguration);
    }
    Tasks mine = *tasks;
    mine.index = static_cast<std::uint32_t>(replica.rank());
    servers_.emplace(mine, none(), options_);
    return;
  }
  VariableSpecs specs;
  specs.tables = options_.tables;
  specs.optimizer = options_.optimizer;
  for (const TableSpec& one : specs.tables) {
    if (!one.grows) continue;
    throw TrainerError("table '" + one.name +
                       "' grows, which needs servers: give it rows, or name servers");
  }
  here_ = std::make_unique<Variables>(specs, Floats(), options_.rules);
}

std::vector<float> Store::pull(std::vector<std::int64_t> keys, std::size_t table) {
  Rows rows{.table = table, .ids = std::move(keys), .values = {}, .gradients = {}};
  if (servers_) {
    servers_->pull({&rows, 1});
    return std::move(rows.values);
  }
  const std::vector<std::int64_t> ids = ids_of(table, rows.ids);
  if (!here_->fits(ids)) {
    throw TrainerError("a pull asks for rows that table " + std::to_string(table) +
                       " of this store does not have");
  }
  return here_->values(ids).whole();
}

void Store::push(std::vector<std::int64_t> keys, std::vector<float> numbers, double rate,
                 std::size_t table) {
  const Rows rows{
      .table = table, .ids = std::move(keys), .values = {}, .gradients = std::move(numbers)};
  if (!servers_) return push_here(rows, rate);
  (void)servers_->push(1.0, rate, {&rows, 1});
}

// Behind the rows of the table comes for each how often it was pushed to: who is not is not
// updated.
void Store::push_here(const Rows& rows, double rate) {
  if (!here_->fits(ids_of(rows.table, rows.ids), rows.gradients.size())) {
    throw TrainerError("a push of " + std::to_string(rows.gradients.size()) + " numbers for " +
                       std::to_string(rows.ids.size()) + " keys does not fit table " +
                       std::to_string(rows.table) + " of this store");
  }
  const TableSpec& spec = options_.tables[rows.table];
  const std::size_t numbers = spec.rows * spec.width;
  std::vector<float> all(numbers + spec.rows, 0.0F);
  for (std::size_t i = 0; i < rows.gradients.size(); ++i) {
    const auto key = static_cast<std::size_t>(rows.ids[i / spec.width]);
    all[key * spec.width + i % spec.width] += rows.gradients[i];
    all[numbers + key] = 1.0F;
  }
  const auto replicas = static_cast<float>(replica_->size());
  replica_->allreduce("store/" + spec.name, std::span(all), Reduction::kSum);
  bytes_ += 2.0 * static_cast<double>(all.size() * sizeof(float)) *
            static_cast<double>(replicas - 1.0F) / static_cast<double>(replicas);
  std::vector<std::int64_t> keys;
  std::vector<float> means;
  for (std::size_t key = 0; key < spec.rows; ++key) {
    if (all[numbers + key] == 0.0F) continue;
    keys.push_back(static_cast<std::int64_t>(key));
    for (const float one : std::span(all).subspan(key * spec.width, spec.width)) {
      means.push_back(one / replicas);
    }
  }
  Message push = make_message(Kind::kPush);
  push.weight = 1.0;
  push.ids = ids_of(rows.table, keys);
  push.floats = Floats::of(std::move(means));
  const Message* const one = &push;
  here_->update({&one, 1}, rate);
}

}  // namespace ronde::trainer::server
