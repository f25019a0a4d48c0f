// SPDX-License-Identifier: Apache-2.0
// Each trap of averaging the gradients of somebody else's LibTorch trainer. A training on ranks
// that share each batch must be the training of one process with the whole batch. One long
// file, since to compile LibTorch's headers takes most of a minute.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <ronde/torch.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "test/torch/ranks.h"

namespace ronde::torch::test {
namespace {

using ::torch::optim::SGD;
using ::torch::optim::SGDOptions;
using Step = std::function<void(Model&, SGD&, int)>;

constexpr int kSteps = 50;
constexpr double kClip = 0.05;

std::vector<at::Tensor> averaged(const Model& model) {
  std::vector<at::Tensor> parameters;
  for (const detail::NamedTensor& one : detail::tensors_of(model, false)) {
    if (one.tensor.requires_grad()) parameters.push_back(one.tensor);
  }
  return parameters;
}

SGD sgd_of(const Model& model) { return SGD(averaged(model), SGDOptions(0.05).momentum(0.9)); }

// What one process makes of all batches.
Model& alone(bool clip = false) {
  static std::array<std::unique_ptr<Model>, 2> models;
  std::unique_ptr<Model>& model = models.at(clip ? 1 : 0);
  if (model != nullptr) return *model;
  model = std::make_unique<Model>();
  SGD optimizer = sgd_of(*model);
  for (int step = 0; step < kSteps; ++step) {
    set_to_none(*model);
    loss_of(*model, batch_of(step)).backward();
    if (clip) ::torch::nn::utils::clip_grad_norm_(model->parameters(), kClip);
    optimizer.step();
  }
  return *model;
}

// Trains on `size` ranks with an averager in front of the optimiser's step.
void expect_same(int size, const GradientOptions& options, bool to_none,
                 const std::function<void(Model&, GradientAverager&, const Batch&)>& backward,
                 bool clip = false, double tolerance = 1e-4) {
  Model& expected = alone(clip);
  on_ranks(size, [&](Engine& engine) {
    Model model(0.1 + engine.rank());
    broadcast_parameters(engine, model);
    SGD optimizer = sgd_of(model);
    GradientAverager averager(engine, model, options);
    for (int step = 0; step < kSteps; ++step) {
      if (to_none) {
        set_to_none(model);
      } else {
        optimizer.zero_grad();
      }
      backward(model, averager, batch_of(step, engine.rank(), size));
      averager.wait();
      if (clip) ::torch::nn::utils::clip_grad_norm_(model.parameters(), kClip);
      optimizer.step();
    }
    EXPECT_LT(distance(model, expected), tolerance);
    at::Tensor sum = at::zeros({1}, at::kDouble);
    for (const at::Tensor& one : model.parameters()) sum += one.sum();
    const auto all = engine.allgather_blocking("sums", detail::span_of<double>(sum));
    for (const double other : all) EXPECT_EQ(other, all.front()) << "the ranks' models differ";
  });
}

void one_backward(Model& model, GradientAverager& /*averager*/, const Batch& batch) {
  loss_of(model, batch).backward();
}

// Nine samples on one rank and three on the other: weights make them the training of one process.
TEST(GradientAverager, CountsByWeightsWhereBatchesDiffer) {
  Model& expected = alone();
  on_ranks(2, [&expected](Engine& engine) {
    Model model(0.1 + engine.rank());
    broadcast_parameters(engine, model);
    SGD optimizer = sgd_of(model);
    GradientAverager averager(engine, model);
    for (int step = 0; step < kSteps; ++step) {
      const Batch all = batch_of(step);
      const std::int64_t begin = engine.rank() == 0 ? 0 : 9;
      const std::int64_t end = engine.rank() == 0 ? 9 : 12;
      optimizer.zero_grad();
      averager.weigh(static_cast<double>(end - begin));
      loss_of(model, {all.images.slice(0, begin, end), all.wanted.slice(0, begin, end)}).backward();
      averager.wait();
      optimizer.step();
    }
    EXPECT_LT(distance(model, expected), 1e-4);
  });
}

// Rank 0 has fewer batches: from then on it is the training of rank 1.
void expect_to_go_on(const Engine& engine, Model& model, GradientAverager& averager,
                     const std::function<void()>& take_step) {
  for (int step = 0; step < 2 + engine.rank(); ++step) {
    averager.zero_grad();
    loss_of(model, batch_of(step)).backward();
    take_step();
  }
  EXPECT_EQ(averager.join(), 1);
  Model same(0.5);
  SGD of_same = sgd_of(same);
  for (int step = 0; step < 2 + engine.rank(); ++step) {
    set_to_none(same);
    loss_of(same, batch_of(step)).backward();
    of_same.step();
  }
  EXPECT_LT(distance(model, same), 1e-5);
}

TEST(GradientAverager, GoesOnWithoutARankThatHasJoined) {
  on_ranks(2, [](Engine& engine) {
    Model model(0.5);
    SGD optimizer = sgd_of(model);
    GradientAverager averager(engine, model);
    expect_to_go_on(engine, model, averager, [&] {
      averager.wait();
      optimizer.step();
    });
  });
}

TEST(DistributedOptimizer, GoesOnWithoutARankThatHasJoined) {
  on_ranks(2, [](Engine& engine) {
    Model model(0.5);
    DistributedOptimizer<SGD> optimizer(engine, model, SGDOptions(0.05).momentum(0.9));
    expect_to_go_on(engine, model, optimizer.averager(), [&] { optimizer.step(); });
  });
}

TEST(GradientAverager, TwoRanksAreOneWithTheWholeBatch) {
  expect_same(2, {}, false, one_backward);
  expect_same(2, {.averager = {.bucket_bytes = 0}}, false, one_backward);
}

TEST(GradientAverager, GradientsMayBecomeUndefined) { expect_same(2, {}, true, one_backward); }

TEST(GradientAverager, FourRanks) { expect_same(4, {}, true, one_backward); }

TEST(GradientAverager, ClippingComesAfterTheAverage) {
  expect_same(2, {}, false, one_backward, true);
}

TEST(GradientAverager, SeveralBackwardPasses) {
  const auto halves = [](Model& model, const Batch& batch,
                         const std::function<void(std::size_t)>& between) {
    for (std::size_t half = 0; half < 2; ++half) {
      between(half);
      const Batch part{batch.images.chunk(2)[half], batch.wanted.chunk(2)[half]};
      (loss_of(model, part) / 2).backward();
    }
  };
  expect_same(2, {.backward_passes = 2}, true, [&](Model& model, auto& /*averager*/, auto& batch) {
    halves(model, batch, [](std::size_t) {});
  });
  expect_same(2, {}, true, [&](Model& model, GradientAverager& averager, const Batch& batch) {
    std::optional<GradientAverager::NoSync> accumulate;
    halves(model, batch, [&](std::size_t half) {
      half == 0 ? static_cast<void>(accumulate.emplace(averager)) : accumulate.reset();
    });
  });
}

TEST(GradientAverager, TooManyBackwardPassesAreAnError) {
  on_ranks(2, [](Engine& engine) {
    Model model;
    GradientAverager averager(engine, model);
    loss_of(model, batch_of(0)).backward();
    try {
      loss_of(model, batch_of(1)).backward();
      FAIL();
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("more than 1 times before wait()"),
                std::string::npos)
          << error.what();
    }
    averager.wait();
  });
}

TEST(GradientAverager, CompressionOnTheWire) {
  GradientOptions options;
  options.reduction.compression = Compression::kBf16;
  expect_same(2, options, false, one_backward, false, 2e-2);
}

TEST(GradientAverager, NothingIsCopiedWhereGradientsStayDefined) {
  on_ranks(2, [](Engine& engine) {
    Model model;
    GradientAverager averager(engine, model);
    std::vector<const void*> before;
    for (const at::Tensor& one : averaged(model)) before.push_back(one.grad().data_ptr());
    averager.zero_grad();
    loss_of(model, batch_of(0)).backward();
    averager.wait();
    std::size_t i = 0;
    for (const at::Tensor& one : averaged(model)) {
      EXPECT_EQ(one.grad().data_ptr(), before[i++]);
      EXPECT_EQ(one.grad().strides(), one.strides());
    }
    EXPECT_GT(averager.statistics().tensors, 0U);
  });
}

TEST(GradientAverager, GradientsOutliveAveragerAndEngine) {
  at::Tensor kept;
  on_ranks(1, [&](Engine& engine) {
    Model model;
    GradientAverager averager(engine, model);
    loss_of(model, batch_of(0)).backward();
    averager.wait();
    kept = model.first->weight.grad();
  });
  kept.fill_(3);
  EXPECT_EQ(kept.sum().item<float>(), 3.0F * 96);
}

TEST(GradientAverager, HooksEndWithTheAverager) {
  on_ranks(2, [](Engine& engine) {
    Model model;
    for (int i = 0; i < 2; ++i) {
      GradientAverager averager(engine, model);
      averager.zero_grad();
      loss_of(model, batch_of(engine.rank())).backward();
      averager.wait();
    }
    loss_of(model, batch_of(0)).backward();  // averages nothing
    loss_of(model, batch_of(0)).backward();
  });
}

TEST(GradientAverager, WhatOneRankAloneUsedIsAveraged) {
  on_ranks(2, [](Engine& engine) {
    Model model;
    GradientAverager averager(engine, model);
    for (int step = 0; step < 2; ++step) {
      set_to_none(model);
      if (engine.rank() == 0) (model.unused.sum() * 4).backward();
      averager.wait();
      EXPECT_EQ(model.unused.grad().sum().item<float>(), 6.0F);
      EXPECT_EQ(model.first->bias.grad().abs().sum().item<float>(), 0.0F);
    }
    EXPECT_FALSE(model.frozen.grad().defined());
  });
}

TEST(GradientAverager, WhatIsThawedLaterIsAveraged) {
  for (const bool defined : {true, false}) {  // before the backward of the step
    on_ranks(2, [&](Engine& engine) {
      Model model;
      GradientAverager averager(engine, model);
      for (std::size_t step = 0; step < 3; ++step) {
        averager.zero_grad();
        model.frozen.set_requires_grad(step > 0);
        if (step == 1 && defined) model.frozen.mutable_grad() = at::zeros({6});
        at::Tensor loss = loss_of(model, batch_of(0)) + model.unused.sum();
        if (step > 0 && engine.rank() == 0) loss = loss + model.frozen.sum() * 4;
        loss.backward();
        const at::Tensor own = model.frozen.grad().defined() ? model.frozen.grad().clone() : loss;
        EXPECT_EQ(averager.wait().size(), step == 1 ? 1U : 0U);
        EXPECT_EQ(averager.statistics().tensors, std::vector({7U, 15U, 23U}).at(step));
        if (step == 0) continue;
        const float change = engine.rank() == 0 ? -2.0F : 2.0F;  // hooked, it is averaged by now
        EXPECT_TRUE(step > 1 || at::allclose(model.frozen.grad(), own + change));
        std::vector<float> mine{model.frozen.grad().sum().item<float>()};
        const std::vector<float> all = engine.allgather_blocking("sums", mine);
        EXPECT_EQ(all[0], all[1]);
      }
    });
  }
}

struct Embedding : ::torch::nn::Module {
  Embedding() {
    table = register_module(
        "table", ::torch::nn::Embedding(::torch::nn::EmbeddingOptions(5, 2).sparse(true)));
  }
  ::torch::nn::Embedding table{nullptr};
};

TEST(GradientAverager, SparseGradientsAreAveragedAsDenseOnes) {
  on_ranks(2, [](Engine& engine) {
    Embedding model;
    GradientAverager averager(engine, model);
    for (int step = 0; step < 2; ++step) {
      set_to_none(model);
      const at::Tensor rows = at::arange(2) + engine.rank();  // 0 1, and 1 2
      model.table(rows).sum().backward();
      averager.wait();
      const at::Tensor sums = model.table->weight.grad().sum(1);
      EXPECT_TRUE(
          sums.equal(at::arange(5).eq(1).to(at::kFloat) + at::arange(5).lt(3).to(at::kFloat)))
          << sums;
    }
  });
}

struct OneParameter : ::torch::nn::Module {
  explicit OneParameter(at::Tensor value) { parameter = register_parameter("p", std::move(value)); }
  at::Tensor parameter;
};

TEST(GradientAverager, HalfTypesAndForeignLayouts) {
  for (const auto type : {at::kHalf, at::kBFloat16, at::kDouble}) {
    on_ranks(2, [&](Engine& engine) {
      OneParameter model(at::ones({4, 3}, type).t());
      GradientAverager averager(engine, model);
      set_to_none(model);
      (model.parameter * (1.0 + engine.rank())).sum().backward();
      averager.wait();
      EXPECT_EQ(model.parameter.grad().scalar_type(), type);
      EXPECT_TRUE(model.parameter.grad().to(at::kFloat).eq(1.5).all().item<bool>());
    });
  }
  on_ranks(2, [&](Engine& engine) {  // a parameter with holes
    OneParameter model(at::ones({4, 6}).slice(1, 0, 6, 2));
    GradientAverager averager(engine, model);
    for (int step = 0; step < 2; ++step) {
      averager.zero_grad();
      (model.parameter * (1.0 + engine.rank())).sum().backward();
      averager.wait();
      EXPECT_TRUE(model.parameter.grad().eq(1.5).all().item<bool>());
    }
  });
}

TEST(GradientAverager, WhatIsThawedAndOfNoKnownTypeIsAnErrorInEachStep) {
  on_ranks(2, [](Engine& engine) {
    OneParameter model(at::ones({2}, at::kComplexFloat));
    model.parameter.set_requires_grad(false);
    GradientAverager averager(engine, model);
    model.parameter.set_requires_grad(true);
    for (int step = 0; step < 2; ++step) EXPECT_THROW(averager.wait(), Error);
  });
}

TEST(GradientAverager, GradientsBeyondTheBoardLieInPlainMemory) {
  on_ranks(1, [](Engine& engine) {  // a local job has 64 MiB on the board
    OneParameter model(at::ones({17, 1 << 20}));
    GradientAverager averager(engine, model);
    model.parameter.sum().backward();
    averager.wait();
    EXPECT_EQ(model.parameter.grad().sum().item<double>(), 17.0 * (1 << 20));
  });
}

TEST(Errors, ModulesThatDifferAreAnErrorOnEveryRank) {
  on_ranks(3, [](Engine& engine) {
    OneParameter model(at::ones({2, engine.rank() == 2 ? 4 : 3}));
    for (int which = 0; which < 2; ++which) {
      try {
        if (which == 0) {
          broadcast_parameters(engine, model);
        } else {
          const GradientAverager averager(engine, model);
        }
        FAIL();
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), RONDE_MISMATCH);
        EXPECT_EQ(error.rank(), 2);
        EXPECT_NE(std::string(error.what())
                      .find("rank 0 has 'p' Float[2, 3] with strides [3, 1], and "
                            "rank 2 has 'p' Float[2, 4]"),
                  std::string::npos)
            << error.what();
      }
    }
  });
}

TEST(Errors, ATensorElsewhereOnOneRankIsAnErrorOnEveryRank) {
  on_ranks(2, [](Engine& engine) {
    OneParameter elsewhere(at::ones({2}, engine.rank() == 1 ? at::kMeta : at::kCPU));
    OneParameter sparse(engine.rank() == 1 ? at::ones({2}).to_sparse() : at::ones({2}));
    for (OneParameter* const model : {&elsewhere, &sparse}) {
      for (int which = 0; which < 2; ++which) {
        try {
          if (which == 0) {
            broadcast_parameters(engine, *model);
          } else {
            const GradientAverager averager(engine, *model);
          }
          FAIL();
        } catch (const Error& error) {
          EXPECT_EQ(error.status(), RONDE_MISMATCH) << error.what();
          EXPECT_EQ(error.rank(), 1);
          EXPECT_NE(
              std::string(error.what()).find(model == &sparse ? "of layout Sparse" : "on meta"),
              std::string::npos)
              << error.what();
        }
      }
    }
  });
}

TEST(Errors, ATensorElsewhereOrOfAnotherTypeIsRefused) {
  on_ranks(1, [](Engine& engine) {
    OneParameter elsewhere(at::empty({2}, at::TensorOptions().device(at::kMeta)));
    OneParameter complex(at::ones({2}, at::kComplexFloat));
    OneParameter sparse(at::ones({2}).to_sparse());
    for (OneParameter* const model : {&elsewhere, &complex, &sparse}) {
      try {
        const GradientAverager averager(engine, *model);
        FAIL();
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), RONDE_UNSUPPORTED) << error.what();
      }
    }
  });
}

TEST(Errors, AnExceptionInTheMiddleOfAStepHangsNobody) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(on_ranks(2,
                        [](Engine& engine) {
                          Model model;
                          GradientAverager averager(engine, model);
                          loss_of(model, batch_of(0)).backward();
                          if (engine.rank() == 0) throw std::runtime_error("the trainer is wrong");
                          EXPECT_THROW(
                              {
                                averager.wait();
                                averager.wait();
                              },
                              Error);
                        }),
               std::runtime_error);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST(Broadcast, ParametersBuffersAndTiedWeights) {
  on_ranks(3, [](Engine& engine) {
    Model model(engine.rank());
    model.count += engine.rank();
    broadcast_parameters(engine, model, 2);
    EXPECT_EQ(distance(model, Model(2)), 0.0);
    EXPECT_EQ(model.count.item<int>(), 2);
    EXPECT_TRUE(model.first->weight.is_same(model.second->named_parameters(false)["tied"]));
    EXPECT_FALSE(model.conv->weight.is_contiguous()) << "the layout stays";
  });
}

TEST(Broadcast, ATensorThatOneRankNegatesLazily) {
  for (const int root : {0, 1}) {
    on_ranks(2, [&](Engine& engine) {
      OneParameter model(at::ones({2}));
      at::Tensor buffer = at::arange(3, at::kFloat) + engine.rank();
      if (engine.rank() == 1) buffer = at::_neg_view(buffer);
      model.register_buffer("lazy", buffer);
      broadcast_parameters(engine, model, root);
      EXPECT_EQ(buffer.is_neg(), engine.rank() == 1);
      EXPECT_TRUE(buffer.equal(root == 0 ? at::arange(3.0F) : -1 - at::arange(3.0F))) << buffer;
    });
  }
}

TEST(Broadcast, ATensorThatTheRootMakesZerosLazily) {
  on_ranks(2, [](Engine& engine) {
    OneParameter model(at::ones({2}));
    const at::Tensor buffer = model.register_buffer(
        "lazy", engine.rank() == 0 ? at::_efficientzerotensor({3}) : at::ones({3}));
    broadcast_parameters(engine, model);
    EXPECT_TRUE((buffer + at::zeros({3})).equal(at::zeros({3}))) << buffer;
  });
}

TEST(Broadcast, StateOfAnOptimiser) {
  on_ranks(2, [](Engine& engine) {
    OneParameter model(at::ones({3}));
    ::torch::optim::Adam optimizer(model.parameters(),
                                   ::torch::optim::AdamOptions(engine.rank() == 1 ? 0.5 : 0.1));
    if (engine.rank() == 1) {
      model.parameter.sum().backward();
      optimizer.step();
    }
    broadcast_parameters(engine, model, 1);
    broadcast_optimizer(engine, optimizer, 1);
    model.parameter.mutable_grad() = at::full({3}, 2.0);
    optimizer.step();
    std::vector<float> mine{model.parameter[0].item<float>()};
    const std::vector<float> all = engine.allgather_blocking("after", mine);
    EXPECT_EQ(all[0], all[1]);
  });
}

struct Unsaved : SGD {
  using SGD::SGD;
  void save(::torch::serialize::OutputArchive& /*archive*/) const override {
    throw std::runtime_error("it cannot be saved");
  }
};

TEST(Broadcast, AnOptimiserThatCannotBeSavedIsAnErrorOnEveryRank) {
  on_ranks(2, [](Engine& engine) {
    OneParameter model(at::ones({3}));
    Unsaved optimizer(model.parameters(), SGDOptions(0.1));
    try {
      broadcast_optimizer(engine, optimizer, 1);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(engine.rank(), 0);
      EXPECT_EQ(error.status(), RONDE_INVALID_ARGUMENT);
      EXPECT_EQ(error.rank(), 1);
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(engine.rank(), 1);
      EXPECT_STREQ(error.what(), "it cannot be saved");
    }
  });
}

TEST(DistributedOptimizer, IsTheWholeOfTheChange) {
  on_ranks(2, [](Engine& engine) {
    Model model(0.1 + engine.rank());
    DistributedOptimizer<SGD> optimizer(engine, model, SGDOptions(0.05).momentum(0.9));
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      loss_of(model, batch_of(step, engine.rank(), engine.size())).backward();
      optimizer.step();
    }
    EXPECT_LT(distance(model, alone()), 1e-4);
  });
}

TEST(DistributedOptimizer, ClipsBetweenAverageAndStep) {
  on_ranks(2, [](Engine& engine) {
    Model model(0.1 + engine.rank());
    DistributedOptimizer<SGD> optimizer(engine, model, SGDOptions(0.05).momentum(0.9));
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      loss_of(model, batch_of(step, engine.rank(), engine.size())).backward();
      optimizer.average();
      ::torch::nn::utils::clip_grad_norm_(model.parameters(), kClip);
      optimizer.step();
    }
    EXPECT_LT(distance(model, alone(true)), 1e-4);
  });
}

TEST(DistributedOptimizer, TrainsWhatIsThawedLater) {
  on_ranks(2, [](Engine& engine) {
    OneParameter model(at::ones({1}));
    const at::Tensor frozen = model.register_parameter("frozen", at::ones({1}), false);
    const GradientOptions options{.averager = {.missing = Missing::kError}};
    DistributedOptimizer<SGD> optimizer(engine, model, SGDOptions(1.0).momentum(0.5), options);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      frozen.set_requires_grad(step > 0);
      ((model.parameter + frozen) * (engine.rank() + 1.0)).sum().backward();
      optimizer.step();
    }
    EXPECT_EQ(model.parameter.item<float>(), 1.0F - 1.5F - 2.25F - 2.625F);
    EXPECT_EQ(frozen.item<float>(), 1.0F - 1.5F - 2.25F);
  });
}

TEST(DistributedOptimizer, TrainsWhatIsThawedInAStepThatFails) {
  on_ranks(2, [](Engine& engine) {
    OneParameter model(at::zeros({1}));
    const at::Tensor frozen = model.register_parameter("frozen", at::zeros({1}), false);
    DistributedOptimizer<SGD> optimizer(engine, model, SGDOptions(1.0));
    frozen.set_requires_grad(true);
    for (const int number : {engine.rank(), 5}) {
      optimizer.zero_grad();
      optimizer.averager().begin_step(static_cast<std::uint64_t>(number));
      ((model.parameter + frozen) * (engine.rank() + 1.0)).sum().backward();
      if (number < 5) {
        EXPECT_THROW(optimizer.step(), Error);
      } else {
        optimizer.step();
      }
    }
    EXPECT_EQ(model.parameter.item<float>(), -1.5F);
    EXPECT_EQ(frozen.item<float>(), -1.5F);
  });
}

// A group of the program's; one of its parameters is frozen, and of the module.
TEST(DistributedOptimizer, AveragesWhatComesIntoAGroupLater) {
  on_ranks(2, [](Engine& engine) {
    OneParameter model(at::ones({1}));
    const at::Tensor frozen = model.register_parameter("frozen", at::ones({1}), false);
    const at::Tensor later = at::ones({1}).requires_grad_();
    DistributedOptimizer<SGD> optimizer(engine, model, SGDOptions(1.0));
    for (int step = 0; step < 3; ++step) {
      if (step == 1)
        optimizer.add_param_group(::torch::optim::OptimizerParamGroup({later, frozen}));
      frozen.set_requires_grad(step > 1);
      optimizer.zero_grad();
      at::Tensor loss = ((model.parameter + frozen) * (engine.rank() + 1.0)).sum();
      if (engine.rank() == 0) loss = loss + later.sum();
      loss.backward();
      optimizer.step();
    }
    EXPECT_EQ(model.parameter.item<float>(), 1.0F - 3 * 1.5F);
    EXPECT_EQ(later.item<float>(), 1.0F - 2 * 0.5F);
    EXPECT_EQ(frozen.item<float>(), 1.0F - 1.5F);
    const at::Tensor elsewhere = at::empty({1}, at::TensorOptions().device(at::kMeta));
    elsewhere.set_requires_grad(true);
    optimizer.add_param_group(::torch::optim::OptimizerParamGroup({elsewhere}));
    try {
      optimizer.step();
      FAIL();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("'param_groups[2].params[0]'"), std::string::npos)
          << error.what();
    }
  });
}

TEST(DistributedOptimizer, AveragesWhatAClosureLeaves) {
  on_ranks(2, [](Engine& engine) {
    OneParameter model(at::ones({1}));
    DistributedOptimizer<SGD> optimizer(engine, model, SGDOptions(1.0));
    optimizer.step([&] {
      optimizer.zero_grad();
      const at::Tensor loss = (model.parameter * (engine.rank() + 1.0)).sum();
      loss.backward();
      return loss;
    });
    EXPECT_EQ(model.parameter.item<float>(), -0.5F);
  });
}

TEST(DistributedOptimizer, ALineSearchKeepsTheRanksEqual) {
  on_ranks(2, [](Engine& engine) {
    ::torch::manual_seed(0);
    const int rank = engine.rank();
    const at::Tensor x = at::sin(at::arange(160, at::kFloat) * 0.7).view({2, 20, 4})[rank];
    const at::Tensor y = at::cos(at::arange(40, at::kFloat) * 1.3).view({2, 20})[rank];
    OneParameter model(at::ones({4}));
    DistributedOptimizer<::torch::optim::LBFGS> optimizer(
        engine, model,
        ::torch::optim::LBFGSOptions(0.1).max_iter(20).line_search_fn("strong_wolfe"));
    for (int step = 0; step < 3; ++step) {
      optimizer.step([&] {
        optimizer.zero_grad();
        const at::Tensor loss =
            (at::mv(x, model.parameter) * (1.0 + 5.0 * rank) - y).square().mean();
        loss.backward();
        return loss;
      });
      const auto all = engine.allgather_blocking("w", detail::span_of<float>(model.parameter));
      for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(all[i], all[i + 4]) << "step " << step;
    }
  });
}

// Its loss was no number, say. Nothing of two steps is taken.
TEST(DistributedOptimizer, AStepThatOneRankHasLeftOutIsAnErrorOnBoth) {
  using Closure = ::torch::optim::Optimizer::LossClosure;
  for (const std::string way : {"begin_step", "number", "closure"}) {
    on_ranks(2, [&](Engine& engine) {
      OneParameter model(at::zeros({3}));
      DistributedOptimizer<SGD> optimizer(engine, model, SGDOptions(1.0));
      std::string error;
      for (double number = 0; number < 6 && error.empty(); ++number) {
        if (number == 3 && engine.rank() == 1) continue;
        const auto step = static_cast<std::uint64_t>(number);
        const auto backward = [&] {
          optimizer.zero_grad();
          const at::Tensor loss = (model.parameter * number).sum();
          loss.backward();
          return loss;
        };
        try {
          if (way == "begin_step") optimizer.averager().begin_step(step);
          if (way != "closure") backward();
          if (way == "begin_step") {
            optimizer.step();
          } else {
            optimizer.step(way == "closure" ? Closure(backward) : nullptr, step);
          }
        } catch (const Error& caught) {
          error = caught.what();
        }
      }
      EXPECT_NE(error.find("rank 0 is in step 3, rank 1 is in step 4"), std::string::npos)
          << way << ": " << error;
      EXPECT_TRUE(model.parameter.equal(at::full({3}, -3))) << way << model.parameter;
    });
  }
}

TEST(DistributedOptimizer, AStepThatFailsLeavesItsAverageToNoOther) {
  on_ranks(2, [](Engine& engine) {
    OneParameter model(at::zeros({3}));
    DistributedOptimizer<SGD> optimizer(engine, model, SGDOptions(1.0));
    const auto step = [&](std::uint64_t number) {
      optimizer.zero_grad();
      (model.parameter * (engine.rank() + 1.0)).sum().backward();
      optimizer.step(nullptr, number);
    };
    const auto rank = static_cast<std::uint64_t>(engine.rank());
    for (const std::uint64_t wrong : {rank, (std::uint64_t{1} << 62U) + 1}) {
      EXPECT_THROW(step(wrong), Error);
      step(5);
    }
    EXPECT_TRUE(model.parameter.equal(at::full({3}, -2 * 1.5))) << model.parameter;
  });
}

TEST(DistributedOptimizer, ALossMayBeUndefined) {
  on_ranks(2, [](Engine& engine) {
    OneParameter model(at::ones({1}));
    DistributedOptimizer<SGD> optimizer(engine, model, SGDOptions(1.0), {.op = sum});
    const at::Tensor loss = optimizer.step([&] { return at::full({2}, 1 + engine.rank()); });
    EXPECT_TRUE(loss.equal(at::full({2}, 3)));
    EXPECT_FALSE(optimizer.step([&] { return at::Tensor(); }).defined());
  });
}

TEST(DistributedOptimizer, AStepWithAClosureUsesUpAnAverage) {
  on_ranks(2, [](Engine& engine) {
    OneParameter model(at::ones({1}));
    DistributedOptimizer<SGD> optimizer(engine, model, SGDOptions(1.0));
    const auto closure = [&] {
      optimizer.zero_grad(false);
      const at::Tensor loss = (model.parameter * (engine.rank() + 1.0)).sum();
      loss.backward();
      return loss;
    };
    closure();
    optimizer.average();
    optimizer.step(closure);
    closure();
    optimizer.step();
    EXPECT_EQ(model.parameter.item<float>(), -2.0F);
  });
}

}  // namespace
}  // namespace ronde::torch::test
