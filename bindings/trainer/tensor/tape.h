// SPDX-License-Identifier: Apache-2.0
// Records the operations on tensors, and goes back over them for the gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/trainer/tensor/parameter.h"
#include "bindings/trainer/tensor/tensor.h"
#include "bindings/trainer/tensor/values.h"

namespace ronde::trainer {

class Kernels;
class Tape;

// What a forward pass depends on besides its inputs.
struct Pass {
  // Whether gradients are wanted, dropout drops and normalisation uses the batch's statistics.
  bool training = true;
  // What dropout is drawn from, with the layer: the same for every number of ranks. It needs an
  // epoch, so that it does not draw the same for ever.
  std::uint64_t seed = 0;
  std::optional<std::uint64_t> epoch{};
  std::span<const std::uint32_t> samples{};  // the number of each sample in the data set
  // The how manieth time each sample comes in this epoch, from 0; empty: the first for all.
  std::span<const std::uint32_t> repetitions{};
  // The samples of the step, all ranks and micro-batches together, which losses are divided by:
  // gradients are summed over ranks, never averaged, so that the maths does not depend on them.
  // 0: nobody says, and losses are sums.
  std::size_t global_batch = 0;
};

// What an operation's backward sees: the gradient by its output, and room for those by its inputs.
class Backward {
 public:
  Backward(Tape& tape, std::size_t node) : tape_(tape), node_(node) {}

  [[nodiscard]] Tape& tape() const noexcept { return tape_; }
  // The gradient of the loss by the output, in the layout that the output's consumer has left it
  // in.
  [[nodiscard]] const Values& gradient() const;
  // The same in row-major order.
  [[nodiscard]] Values plain_gradient() const;
  // Whether anybody wants the gradient by input number `input`.
  [[nodiscard]] bool wants(std::size_t input) const;
  // Row-major memory of the input's shape for its gradient, to be filled whole and given. For a
  // parameter it is where its gradient lives, so that nothing is copied; a second call of a pass
  // has other memory.
  [[nodiscard]] Values room(std::size_t input) const;
  // Adds this to the gradient by the input; it may be in any layout, and shared.
  void give(std::size_t input, Values gradient);
  // No gradient by this input comes from this operation any more: if no earlier operation uses the
  // parameter either, its gradient is final, and is announced now and not only when this operation
  // is done. What is computed next runs beside its transfer.
  void finish(std::size_t input);

 private:
  Tape& tape_;
  std::size_t node_;
};
using BackwardFunction = std::function<void(Backward&)>;

// Owns the memory and the kernels of the tensors on it, and keeps both from step to step: make one,
// and begin() it for each pass.
//
// Thread safety: belongs to one thread.
class Tape {
 public:
  // The kernels use `threads` threads, at least 1, whichever thread this is used on.
  explicit Tape(int threads = 1);
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  ~Tape();

  // Forgets all operations; the tensors of the pass before are refused from now on. Memory that two
  // passes have not used goes back to the system.
  void begin(const Pass& pass = {});
  [[nodiscard]] const Pass& pass() const noexcept { return pass_; }

  // A tensor that no gradient is wanted of, with a copy of these numbers (row-major).
  Tensor constant(Shape shape, std::span<const float> values);
  // The same without a copy: the memory must stay as it is until the next begin().
  Tensor borrow(Shape shape, std::span<const float> values);
  // A tensor whose gradient is wanted: see gradient().
  Tensor variable(Shape shape, std::span<const float> values);
  // The parameter as a tensor; the same one whenever it is used in a pass.
  Tensor use(Parameter& parameter);
  // Says that this pass uses these running statistics, as batch normalisation does.
  void use_statistics(const StateTensor& statistics);
  // What has been used since begin(), each once, in the order of first use: what a model must list.
  [[nodiscard]] std::vector<Parameter*> used_parameters() const;
  [[nodiscard]] std::vector<StateTensor> used_statistics() const { return statistics_; }

  // Goes back over the operations from a tensor of one element. Every parameter's gradient is
  // written, or added to what backward passes since Parameter::begin_step() have left (each pass's
  // gradient is computed whole first); `ready` is called once for each parameter of the pass, as
  // soon as its last use has been passed. Then zeros replace what this tape has left in gradients
  // of earlier steps. Once in a pass: begin() comes before the next. Throws TrainerError for a
  // parameter whose value has changed since it was used.
  void backward(const Tensor& loss, const GradientReady& ready = {});
  // After backward(): the gradient of a variable(), row-major; zeros where the loss does not
  // depend on it. Throws TrainerError for any other tensor, whose gradient is not kept.
  [[nodiscard]] std::vector<float> gradient(const Tensor& variable);

  // For operations: adds one with its result. `inputs` are numbered in this order in Backward.
  // Nothing is kept where no gradient is wanted of any input. `operation` is a literal.
  Tensor record(const char* operation, Values output, std::initializer_list<Tensor> inputs,
                BackwardFunction backward);
  Tensor record(const char* operation, Values output, std::span<const Tensor> inputs,
                BackwardFunction backward);
  [[nodiscard]] MemoryPool& pool() noexcept { return pool_; }
  [[nodiscard]] Kernels& kernels() noexcept { return *kernels_; }
  // Row-major: the same, or a copy of what is in another layout.
  [[nodiscard]] Values plain(const Values& values);
  // How often this layer has drawn in this pass before, so that its next drawing is another.
  [[nodiscard]] std::uint64_t drawn(std::uint64_t layer);

  // What a person calls this tensor: the parameter's name, or what made it; empty for a constant.
  [[nodiscard]] std::string name_of(const Tensor& tensor) const;
  // The first operation of this pass whose result is not finite, in words ("linear with
  // fc1/weight", "relu, operation 4"); empty: none.
  [[nodiscard]] std::string first_not_finite();

 private:
  friend class Backward;
  friend class Tensor;
  struct Node;
  // A parameter as this pass uses it.
  struct Used {
    Parameter* parameter;
    std::size_t node;
    std::uint64_t version;
  };
  // A gradient that has been written, in the step of its parameter.
  struct Written {
    std::weak_ptr<Parameter> parameter;
    std::uint64_t step;
  };
  // Numbers that somebody has read, in order; what they were is kept, so that its address is.
  struct Read {
    Values from;
    Values plain;
  };
  enum class Way : std::uint8_t { kForward, kBack, kDone };

  [[nodiscard]] std::string name_of_node(std::size_t index) const;
  Tensor add_leaf(Values values, Parameter* parameter);
  [[nodiscard]] std::span<const float> read(const Tensor& tensor);
  void require_backward(const Tensor& loss) const;
  void finish_gradient(Node& leaf);
  void forget_earlier_steps();

  Pass pass_;
  std::uint64_t pass_number_ = 0;
  Way way_ = Way::kForward;  // how far this pass is
  GradientReady ready_;      // while backward() runs
  MemoryPool pool_;
  std::unique_ptr<Kernels> kernels_;
  std::vector<Node> nodes_;
  std::vector<Used> used_;  // in this pass, as are the next two
  std::vector<StateTensor> statistics_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> drawn_;  // layers and how often
  std::vector<Written> written_;
  std::unordered_map<const float*, Read> read_;  // by where the numbers lie
};

}  // namespace ronde::trainer
