// SPDX-License-Identifier: Apache-2.0
// Whole trainings on servers, each task on a thread of this process.
#include "bindings/trainer/server/strategy/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bindings/trainer/fit/strategy/model.h"
#include "bindings/trainer/nn/layers.h"
#include "test/unit/trainer/server/served_kit.h"

namespace ronde::trainer::server {
namespace {

// The model that the chief, which is no worker, has in the end.
std::string hash_after(bool fed, const std::string& mode) {
  ServedJobOptions job{.chief = true, .tasks = {.fed = fed}};
  job.tasks.servers.mode = mode_of(mode);
  return run_served(job, [](Strategy&) {
    Model model([] { return Linear("line", 1, 1, Initialization::kGlorot, 1); });
    Optimizer sgd(model, {}, {.schedule = {.learning_rate = 0.05}});
    model.compile(sgd, regression_loss);
    // Five samples in batches of four: of every second batch one worker has none.
    const Dataset five =
        Dataset::from_arrays({1}, {1, 2, 3, 4, 5}, std::vector<float>{1, 3, 2, 5, 4});
    model.fit(five.batch(4), {.epochs = 20});
    return model.parameter_hash();
  });
}

TEST(ServerTraining, ARoundThatIsFedIsThePartsOfOneBatch) {
  const std::string own = hash_after(false, "sync");
  ASSERT_NE(own, "");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(hash_after(true, "sync"), own);
}

}  // namespace
}  // namespace ronde::trainer::server
