// SPDX-License-Identifier: Apache-2.0
// A key-value store: rows of numbers by key, which every task pulls and pushes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/trainer/fit/replica.h"
#include "bindings/trainer/server/parameter_server.h"
#include "bindings/trainer/server/tasks.h"
#include "bindings/trainer/server/variables.h"

namespace ronde::trainer::server {

// A program's server calls serve(tasks, options) with the same options, its workers say:
//
//   Store store(tasks, {.tables = {{.name = "users", .width = 8, .grows = true, .rule = "add"}},
//                       .rules = {{"add", [](std::span<float> row, std::span<const float> pushed,
//                                            double rate) { ... }}}});
//   const std::vector<float> rows = store.pull(keys);
//   store.push(keys, gradients, rate);
//   store.finish();
//
// What is pushed to a key is summed where the key comes twice; in sync the mean over the workers'
// pushes of a round counts. In sync and stale each push comes after a pull: a round is of one
// table.
//
// Thread safety: belongs to one thread.
class Store {
 public:
  // On servers. The chief's first pull makes the tables, and those of other tasks wait for that.
  Store(const Tasks& tasks, ParameterServerOptions options)
      : options_(std::move(options)), servers_(std::in_place, tasks, none(), options_) {}
  // With `tasks` the rows are on servers, and rank i of the job is worker i. Without tasks every
  // replica has all rows, and pushes are averaged over the replicas as whole tables: push() is
  // collective then. Throws TrainerError where ranks and workers differ, and for a table that grows
  // without servers.
  Store(Replica& replica, const std::optional<Tasks>& tasks, ParameterServerOptions options);

  // The rows of these keys, one after the other. One that nobody has pushed to has its first
  // values.
  [[nodiscard]] std::vector<float> pull(std::vector<std::int64_t> keys, std::size_t table = 0);
  // `width` numbers for each key, by which the table's rule, or the optimiser, updates its row.
  void push(std::vector<std::int64_t> keys, std::vector<float> numbers, double rate,
            std::size_t table = 0);

  // Bytes of numbers that have travelled from and to this task.
  [[nodiscard]] double bytes() const {
    return servers_ ? static_cast<double>(servers_->bytes()) : bytes_;
  }
  // At the end of a job: see ParameterServer.
  void finish() {
    if (servers_) (void)servers_->finish();
  }

 private:
  [[nodiscard]] static std::vector<Parameter*> none() { return {}; }
  void push_here(const Rows& rows, double rate);

  const ParameterServerOptions options_;
  std::optional<ParameterServer> servers_;
  Replica* replica_ = nullptr;
  std::unique_ptr<Variables> here_;  // without servers
  double bytes_ = 0.0;
};

}  // namespace ronde::trainer::server
