// SPDX-License-Identifier: Apache-2.0
// Whole trainings on servers, each task on a thread of this process.
#include "bindings/trainer/server/strategy/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bindings/trainer/nn/layers.h"
#include "bindings/trainer/strategy/strategy_model.h"

namespace ronde::trainer::server {
namespace {

constexpr std::uint32_t kWorkersOfTraining = 2;

// The model that worker 0 has in the end.
std::string hash_after(bool fed, const std::string& mode) {
  static std::atomic<int> jobs = 0;
  const std::string prefix =
      "ipc://@ronde-training-" + std::to_string(::getpid()) + "-" + std::to_string(++jobs);
  Tasks all;
  all.servers = {prefix + "-ps"};
  for (std::uint32_t i = 0; i < kWorkersOfTraining; ++i) {
    all.workers.push_back(prefix + std::to_string(i));
  }
  all.chief = {prefix + "-chief"};
  std::string hash;
  const auto run = [&](Role role, std::uint32_t index) {
    ServedOptions options{.fed = fed};
    options.servers.mode = mode_of(mode);
    options.servers.say = [](const std::string&) {};
    Tasks task = all;
    task.role = role;
    task.index = index;
    if (role == Role::kServer) return serve(task, options.servers);
    trainer::ParameterServer strategy(task, options);
    const Scope scope(strategy);
    StrategyModel model([] { return Linear("line", 1, 1, Initialization::kGlorot, 1); });
    StrategyOptimizer sgd(model, {}, {.schedule = {.learning_rate = 0.05}});
    model.compile(sgd, regression_loss);
    // Five samples in batches of four: of every second batch one worker has none.
    const Dataset five =
        Dataset::from_arrays({1}, {1, 2, 3, 4, 5}, std::vector<float>{1, 3, 2, 5, 4});
    model.fit(five.batch(4), {.epochs = 20});
    if (role == Role::kChief) hash = model.parameter_hash();
    strategy.finish();
  };
  std::vector<std::jthread> tasks;
  tasks.emplace_back(run, Role::kServer, 0U);
  for (std::uint32_t i = 0; i < kWorkersOfTraining; ++i) tasks.emplace_back(run, Role::kWorker, i);
  tasks.emplace_back(run, Role::kChief, 0U);
  tasks.clear();
  return hash;
}

TEST(ServerTraining, ARoundThatIsFedIsThePartsOfOneBatch) {
  const std::string own = hash_after(false, "sync");
  ASSERT_NE(own, "");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(hash_after(true, "sync"), own);
}

}  // namespace
}  // namespace ronde::trainer::server
