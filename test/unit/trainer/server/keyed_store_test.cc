// SPDX-License-Identifier: Apache-2.0
// A key-value store: the same numbers on servers and on the replicas.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bindings/trainer/server/store/store.h"
#include "test/unit/trainer/local_ranks.h"

namespace ronde::trainer::server {
namespace {

std::vector<float> pushed_and_pulled(Store& store) {
  const std::vector<std::int64_t> keys{0, 1, 2};
  (void)store.pull(keys);
  store.push({0, 1}, {1.0F, -1.0F, 0.5F, 2.0F}, 0.1);
  (void)store.pull(keys);
  store.push({1}, {0.0F, 0.0F}, 0.1);  // moments move the row all the same
  std::vector<float> rows = store.pull(keys);
  store.finish();
  return rows;
}

TEST(KeyedStore, HasTheSameNumbersOnServersAndOnTheReplicas) {
  const ParameterServerOptions options{.optimizer = {.kind = RuleOptions::Kind::kAdam},
                                       .tables = {{.name = "table", .rows = 3, .width = 2}},
                                       .say = [](const std::string&) {}};
  const std::string prefix = "ipc://@ronde-keyed-" + std::to_string(::getpid()) + "-";
  Tasks worker;
  worker.servers = {prefix + "ps"};
  worker.workers = {prefix + "worker"};
  worker.role = Role::kWorker;
  Tasks server = worker;
  server.role = Role::kServer;
  std::jthread serving([&] { serve(server, options); });
  Store on_servers(worker, options);
  const std::vector<float> served = pushed_and_pulled(on_servers);
  run_ranks(1, [&](const LocalJob& job, int rank) {
    JobRank strategy(job, rank);
    Store here(strategy.here(), std::nullopt, options);
    EXPECT_EQ(pushed_and_pulled(here), served);
  });
}

}  // namespace
}  // namespace ronde::trainer::server
