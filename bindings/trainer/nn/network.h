// SPDX-License-Identifier: Apache-2.0
// A model is anything callable that lists its parameters: Layers, a class of the user's with
// branches, a lambda's owner. It knows nothing of ranks.
#pragma once

#include <concepts>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/tensor/parameter.h"
#include "bindings/trainer/tensor/tensor.h"

namespace ronde::trainer {

// What a class must have to be trained: `Tensor operator()(const Tensor&)` and
// `std::vector<Parameter*> parameters()`, in the same order on every rank. Where it uses running
// statistics (of normalisation), it must have `std::vector<StateTensor> statistics()` too.
template <typename M>
concept Trainable = requires(M& model, const Tensor& input) {
  { model(input) } -> std::convertible_to<Tensor>;
  { model.parameters() } -> std::convertible_to<std::vector<Parameter*>>;
};

// A handle on a model of any class, which must outlive it. A copy is the same model.
//
// Thread safety: belongs to one thread at a time.
class Network {
 public:
  // Throws TrainerError if two parameters have the same name.
  template <typename M>
    requires Trainable<M> && (!std::same_as<std::remove_cvref_t<M>, Network>)
  Network(M& model)  // NOLINT(google-explicit-constructor): any model is a Network
      : call_([&model](const Tensor& input) -> Tensor { return model(input); }),
        parameters_(model.parameters()) {
    if constexpr (requires { model.statistics(); }) statistics_ = model.statistics();
    check_names();
  }

  Tensor operator()(const Tensor& input) const { return call_(input); }
  [[nodiscard]] const std::vector<Parameter*>& parameters() const noexcept { return parameters_; }
  [[nodiscard]] const std::vector<StateTensor>& statistics() const noexcept { return statistics_; }
  // 16 hexadecimal digits over the bytes of all parameters, in order.
  [[nodiscard]] std::string parameter_hash() const;

 private:
  void check_names() const;

  std::function<Tensor(const Tensor&)> call_;
  std::vector<Parameter*> parameters_;
  std::vector<StateTensor> statistics_;
};

}  // namespace ronde::trainer
