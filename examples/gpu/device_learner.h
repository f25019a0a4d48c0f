// SPDX-License-Identifier: Apache-2.0
// A learner of the training core on a device: a multilayer perceptron with one hidden layer whose
// parameters, gradients and momenta live there. Ronde sums the gradients where they are, behind the
// stream that computes them, and the stream waits for the sums; the host only puts work in.
#pragma once

#include <array>
#include <cstdint>
#include <ronde/ronde.hpp>
#include <string>
#include <vector>

#include "bindings/trainer/data/images.h"
#include "bindings/trainer/fit/learner.h"
#include "bindings/trainer/nn/network.h"
#include "examples/gpu/device_math.h"

namespace ronde::trainer {

struct DeviceSgd {
  double learning_rate = 0.0;
  double momentum = 0.0;
};

class DeviceLearner final : public Learner {
 public:
  // All must outlive this object. `model` is one of make_mlp(): where parameters come from, and,
  // for the hash, go to. Batches say which of `images` they hold: pixels travel as bytes.
  DeviceLearner(Engine& engine, DeviceMath& math, Network model, const DeviceSgd& sgd,
                const Images& images);
  // Waits for what is in flight, since its memory goes away.
  ~DeviceLearner() override;

  void broadcast_state(int root) override;
  void try_shapes(const Batch& batch) override;
  void step(const StepBatch& batch, std::uint64_t epoch) override;
  [[nodiscard]] Metrics take_metrics() override;
  // Batches of evaluate() are of these images; the training ones until it is called.
  void evaluate_on(const Images& images) { evaluated_ = &images; }
  [[nodiscard]] Metrics evaluate(const Batch& batch) override;
  [[nodiscard]] std::vector<float> predict(const Batch& batch) override;
  [[nodiscard]] std::string parameter_hash() override;
  [[nodiscard]] LearnerTimes times() const override { return {.waited_seconds = waited_seconds_}; }

 private:
  // A parameter of the model on the device.
  struct Twin {
    explicit Twin(DeviceMath& math) : value(math), gradient(math), velocity(math) {}
    DeviceArray<float> value;
    DeviceArray<float> gradient;
    DeviceArray<float> velocity;  // empty without momentum
  };
  // Host memory for what is sent to the device.
  class Staging {
   public:
    explicit Staging(DeviceMath& math) : math_(math) {}
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;
    ~Staging() { math_.release_staging(memory_); }
    std::uint8_t* room(std::size_t bytes);

   private:
    DeviceMath& math_;
    void* memory_ = nullptr;
    std::size_t bytes_ = 0;
  };

  void send_batch(const Images& data, std::span<const std::uint32_t> samples);
  void forward(std::size_t rows, float* gradient, DeviceSums* sums, std::size_t global_size);
  void backward(std::size_t rows);
  void submit(std::size_t parameter);
  // Waits for these works, those of a step, and forgets them. Throws the first error of them.
  void finish(std::vector<Work>& works);
  void finish_sums();
  [[nodiscard]] std::vector<Work>& works_of_step() { return works_[steps_ % works_.size()]; }

  Engine& engine_;
  DeviceMath& math_;
  Network model_;
  const DeviceSgd sgd_;
  const Images& images_of_training_;
  const Images* evaluated_;
  const std::size_t features_;
  const std::size_t hidden_;
  const std::size_t classes_;
  std::vector<Twin> twins_;  // by the parameter's place in the model: weight and bias of each layer
  // A step fills one while copies out of the others may be under way: see send_batch().
  std::array<Staging, 3> staging_;
  std::uint64_t batches_ = 0;
  DeviceArray<std::uint8_t> bytes_;  // pixels, then labels
  DeviceArray<float> images_;
  DeviceArray<float> active_;  // the hidden layer's output
  DeviceArray<float> logits_;
  DeviceArray<float> logit_gradient_;
  DeviceArray<float> active_gradient_;
  DeviceArray<DeviceSums> sums_;  // of training, and of counting
  // The sums of the last two steps. Even and odd steps use names of their own, since a name may be
  // used again only when its work is over: so the host can be a step ahead of the device.
  std::array<std::vector<Work>, 2> works_;
  std::uint64_t steps_ = 0;
  std::size_t samples_ = 0;  // of the steps since metrics were taken
  double waited_seconds_ = 0.0;
};

}  // namespace ronde::trainer
