// SPDX-License-Identifier: Apache-2.0
// The lists of gradients against the published totals of the models.
#include "examples/perf/options/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>

namespace ronde::perf {
namespace {

struct Published {
  std::string name;
  std::size_t tensors;
  std::size_t parameters;
  std::size_t largest;
  std::size_t below_4k;  // tensors of less than 4 KiB in f32
};

class ModelTest : public testing::TestWithParam<Published> {};

TEST_P(ModelTest, HasThePublishedNumberOfTensorsAndParameters) {
  const Published& model = GetParam();
  ASSERT_TRUE(model_exists(model.name));
  std::size_t parameters = 0;
  std::size_t largest = 0;
  std::size_t small = 0;
  std::set<std::string> names;
  for (const Gradient& gradient : gradients_of(model.name)) {
    parameters += gradient.elements;
    largest = std::max(largest, gradient.elements);
    if (gradient.elements * 4 < 4096) ++small;
    names.insert(gradient.name);
  }
  EXPECT_EQ(gradients_of(model.name).size(), model.tensors);
  EXPECT_EQ(names.size(), model.tensors) << "names are not unique";
  EXPECT_EQ(parameters, model.parameters);
  EXPECT_EQ(largest, model.largest);
  EXPECT_EQ(small, model.below_4k);
}

INSTANTIATE_TEST_SUITE_P(All, ModelTest,
                         testing::Values(Published{"resnet50", 161, 25'557'032, 2'359'296, 85},
                                         Published{"resnet101", 314, 44'549'160, 2'359'296, 153},
                                         Published{"vgg16", 32, 138'357'544, 102'760'448, 14},
                                         Published{"bert-base", 199, 109'482'240, 23'440'896, 111},
                                         Published{"bert-large", 391, 335'141'888, 31'254'528, 0},
                                         Published{"gpt2", 148, 124'439'808, 38'597'376, 74}),
                         [](const testing::TestParamInfo<Published>& parameters) {
                           std::string name = parameters.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Models, ComeInBackwardOrder) {
  EXPECT_EQ(gradients_of("resnet50").front().name, "fc.bias");
  EXPECT_EQ(gradients_of("resnet50").back().name, "conv1.weight");
  EXPECT_EQ(gradients_of("gpt2").back().name, "wte") << "the embedding is the last to be ready";
}

TEST(Models, UnknownOnesDoNotExist) {
  EXPECT_FALSE(model_exists("resnet"));
  EXPECT_FALSE(model_exists(""));
  EXPECT_THAT(model_names(), testing::HasSubstr("bert-large"));
}

}  // namespace
}  // namespace ronde::perf
