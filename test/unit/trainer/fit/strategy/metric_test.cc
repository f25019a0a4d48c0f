// SPDX-License-Identifier: Apache-2.0
// What compile() is told to watch, and training straight from arrays.
#include "bindings/trainer/fit/strategy/metric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "bindings/trainer/fit/strategy/model.h"
#include "bindings/trainer/fit/strategy/strategies.h"
#include "bindings/trainer/keep/callbacks.h"
#include "bindings/trainer/nn/layers.h"
#include "test/unit/trainer/error_of.h"
#include "test/unit/trainer/fit/strategy/strategy_kit.h"
#include "test/unit/trainer/temporary_folder.h"

namespace ronde::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Arrays {
  Array inputs;
  std::vector<std::uint8_t> labels;
};

Arrays toy_arrays(std::size_t samples) {
  const Images images = toy_data(samples, 1);
  Arrays made{{{samples, kFeatures}, {}}, images.labels};
  for (const std::uint8_t one : images.pixels) {
    made.inputs.values.push_back(static_cast<float>(one) / 255.0F);
  }
  return made;
}

double mean_label(const std::vector<std::uint8_t>& labels) {
  double sum = 0.0;
  for (const std::uint8_t one : labels) sum += one;
  return sum / static_cast<double>(labels.size());
}

class MetricsUnder : public testing::TestWithParam<NamedStrategy> {};

TEST_P(MetricsUnder, AreWatchedByName) {
  const auto strategy = GetParam().make();
  const Scope scope(*strategy);
  Model model(toy_network);
  const Metric::Sum labels = [](const Tensor&, const Batch& batch) {
    return std::accumulate(batch.labels.begin(), batch.labels.end(), 0.0);
  };
  model.compile(kToyOptions, classification_loss,
                {"accuracy", "top_2_accuracy", {"label", labels}});
  const Arrays data = toy_arrays(53);
  const double expected = mean_label(data.labels);
  const Metrics fitted = model.fit(data.inputs, data.labels, 10).training;
  EXPECT_NEAR(fitted.mean("label"), expected, 1e-12);
  const Metrics scored = model.evaluate(data.inputs, data.labels, 10);
  EXPECT_NEAR(scored.mean("label"), expected, 1e-12);
  EXPECT_EQ(scored.mean("accuracy"), scored.accuracy());
  EXPECT_EQ(scored.mean("loss"), scored.loss());
  const std::vector<float> outputs = model.predict(data.inputs, 10).outputs;
  double right = 0.0;
  for (std::size_t i = 0; i < data.labels.size(); ++i) {
    const auto row = std::span(outputs).subspan(i * kClasses, kClasses);
    const float own = row[data.labels[i]];
    if (std::ranges::count_if(row, [own](float other) { return other > own; }) < 2) ++right;
  }
  EXPECT_GT(right, scored.correct);
  EXPECT_EQ(scored.mean("top_2_accuracy"), right / static_cast<double>(data.labels.size()));
  EXPECT_THAT(error_of([&] { (void)scored.mean("top_3_accuracy"); }),
              HasSubstr("use one of loss, accuracy, label, top_2_accuracy"));
}

INSTANTIATE_TEST_SUITE_P(Every, MetricsUnder, testing::ValuesIn(every_strategy()),
                         [](const auto& cell) { return cell.param.name; });

TEST(Metrics, AreLoggedByName) {
  const TemporaryFolder folder;
  Mirrored strategy(2);
  const Scope scope(strategy);
  Model model(toy_network);
  model.compile(kToyOptions, classification_loss, {"top_2_accuracy"});
  const Dataset validation = toy_batches(20);
  const CallbackMaker logs = [&](Replica& here) {
    std::vector<std::unique_ptr<Callback>> mine;
    mine.push_back(std::make_unique<LogMetrics>(here, model.learner(),
                                                LogMetrics::Options{.directory = folder.path()}));
    return mine;
  };
  model.fit(toy_batches(), {.epochs = 1}, logs, &validation);
  std::ifstream file(folder.path() + "/metrics.jsonl");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, AllOf(HasSubstr("\"epoch/top_2_accuracy\""),
                          HasSubstr("\"validation/top_2_accuracy\"")));
}

TEST(Metrics, OfARegression) {
  Mirrored strategy(2);
  const Scope scope(strategy);
  Model model([] { return Linear("dense", 1, 2, Initialization::kGlorot, 3); });
  model.compile(kPlainOptions, regression_loss, {"mean_absolute_error"});
  const Array inputs{{3, 1}, {0, 0, 0}};  // the outputs are 0
  const std::vector<float> targets{1, -2, 3, 0, 0, 6};
  EXPECT_DOUBLE_EQ(model.evaluate(inputs, targets, 3).mean("mean_absolute_error"), 2.0);
}

TEST(Metrics, AreRefusedInALine) {
  const Metric::Sum none;
  const Metric::Sum one = [](const Tensor&, const Batch&) { return 1.0; };
  EXPECT_THAT(error_of([] { const Metric precision("precision"); }),
              AllOf(HasSubstr("\"precision\" is unknown: use accuracy"), HasSubstr("a function")));
  EXPECT_THAT(error_of([] { const Metric top("top_0_accuracy"); }), HasSubstr("is unknown"));
  EXPECT_THAT(error_of([&] { const Metric empty("own", none); }), HasSubstr("empty function"));
  EXPECT_THAT(error_of([&] { const Metric taken("loss", one); }), HasSubstr("is there already"));
  Model model(toy_network);
  EXPECT_THAT(error_of([&] {
                model.compile(kPlainOptions, classification_loss, {{"own", one}, {"own", one}});
              }),
              HasSubstr("\"own\" is there twice"));
  const Arrays data = toy_arrays(10);
  model.compile(kPlainOptions, classification_loss, {"mean_absolute_error"});
  EXPECT_THAT(error_of([&] { model.fit(data.inputs, data.labels, 5); }),
              HasSubstr("needs as many targets as outputs"));
}

TEST(Arrays, TrainAsTheDataSetOfThemDoes) {
  const Arrays data = toy_arrays(53);
  std::vector<std::string> hashes;
  for (const bool whole : {false, true}) {
    Mirrored strategy(2);
    const Scope scope(strategy);
    Model model(toy_network);
    model.compile(kToyOptions, classification_loss);
    const Dataset batches =
        Dataset::from_arrays({kFeatures}, data.inputs.values, data.labels, kClasses).batch(10);
    const FitResult fitted = whole ? model.fit(batches, {.epochs = 2})
                                   : model.fit(data.inputs, data.labels, 10, {.epochs = 2});
    EXPECT_EQ(fitted.steps, 2 * 6);
    EXPECT_EQ(model.evaluate(data.inputs, data.labels, 10), model.evaluate(batches));
    const Predictions expected = model.predict(batches);
    EXPECT_EQ(model.predict(data.inputs, 10).outputs, expected.outputs);
    EXPECT_EQ(expected.samples.size(), 53);
    hashes.push_back(model.parameter_hash());
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST(Arrays, AreRefusedInALine) {
  Model model(toy_network);
  model.compile(kPlainOptions, classification_loss);
  const Arrays data = toy_arrays(4);
  const std::vector<int> fewer{1, 2};
  const std::vector<int> below{0, 1, -1, 0};
  const std::vector<float> targets(6);
  EXPECT_THAT(error_of([&] { model.fit({{}, {1}}, fewer, 2); }), HasSubstr("{samples, ...}"));
  EXPECT_THAT(error_of([&] { model.fit(data.inputs, fewer, 2); }),
              HasSubstr("give as many samples of both"));
  EXPECT_THAT(error_of([&] { model.fit(data.inputs, below, 2); }), HasSubstr("label -1"));
  EXPECT_THAT(error_of([&] { model.fit(data.inputs, targets, 2); }),
              HasSubstr("6 numbers to predict for 4 samples"));
}

}  // namespace
}  // namespace ronde::trainer
