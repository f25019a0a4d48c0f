// SPDX-License-Identifier: Apache-2.0
// Making the layers of a sequence: shapes, names and first weights.
#include "bindings/trainer/nn/sequence.h"

#include <map>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

constexpr const char* kInput = "input";
constexpr const char* kNorm = "norm";
constexpr const char* kPool = "pool";
constexpr const char* kRelu = "relu";

void require_sides(const LayerMaker::Place& place, const Shape& shape, std::size_t sides,
                   const std::string& remedy) {
  if (shape.size() == sides) return;
  throw TrainerError(place.name + " has samples of " + text_of(shape) + " in front: " + remedy,
                     kExitConfiguration);
}

// The side of an image that windows leave.
std::size_t windows(std::size_t side, const Window& window, std::size_t i) {
  const std::size_t padded = side + 2 * window.padding[i];
  return padded < window.side[i] ? 0 : (padded - window.side[i]) / window.stride[i] + 1;
}

void slide(Shape& shape, const LayerMaker::Place& place, const Window& window) {
  require_sides(place, shape, 3, "give {channels, height, width}");
  for (std::size_t i = 0; i < 2; ++i) shape[i + 1] = windows(shape[i + 1], window, i);
}

// What the weights of piece `at` begin as: by what is next to it, but for a normalisation.
Initialization initialization(const std::vector<LayerMaker::Piece>& pieces, std::size_t at) {
  const auto is = [&pieces](std::size_t i, const char* kind) {
    return i < pieces.size() && pieces[i].kind == kind;
  };
  const std::size_t next = is(at + 1, kNorm) ? at + 2 : at + 1;
  if (!is(next, kRelu)) return Initialization::kGlorot;
  return is(next + 1, kPool) ? Initialization::kLecun : Initialization::kHe;
}

std::vector<LayerMaker::Piece> pieces_of(const std::vector<LayerMaker>& layers) {
  std::vector<LayerMaker::Piece> all;
  for (const LayerMaker& one : layers) {
    all.insert(all.end(), one.pieces().begin(), one.pieces().end());
  }
  return all;
}

}  // namespace

LayerMaker::LayerMaker(Tensor (*operation)(const Tensor&))
    : LayerMaker(operation == relu ? kRelu : "operation",
                 [operation](Shape& shape, const Place& /*place*/) {
                   if (operation == flatten) shape = {elements_of(shape)};
                   return std::make_unique<Applied>(operation);
                 }) {}

LayerMaker LayerMaker::named(std::string name) const {
  LayerMaker copy = *this;
  copy.pieces_.front().name = std::move(name);
  return copy;
}

LayerMaker LayerMaker::then(const LayerMaker& next) const {
  LayerMaker both = *this;
  both.pieces_.insert(both.pieces_.end(), next.pieces_.begin(), next.pieces_.end());
  return both;
}

LayerMaker input(Shape sample) {
  return {kInput, [sample = std::move(sample)](Shape& shape, const LayerMaker::Place& /*place*/) {
            shape = sample;
            return std::unique_ptr<Layer>();
          }};
}

LayerMaker dense(std::size_t outputs) {
  return {"fc", [outputs](Shape& shape, const LayerMaker::Place& place) {
            require_sides(place, shape, 1, "put flatten between");
            const std::size_t inputs = std::exchange(shape[0], outputs);
            return std::make_unique<Linear>(place.name, inputs, outputs, place.initialization,
                                            place.seed);
          }};
}

LayerMaker dense(std::size_t outputs, const LayerMaker& activation) {
  return dense(outputs).then(activation);
}

LayerMaker convolution(std::size_t outputs, const Window& window) {
  return {"conv", [outputs, window](Shape& shape, const LayerMaker::Place& place) {
            slide(shape, place, window);
            const std::size_t channels = std::exchange(shape[0], outputs);
            return std::make_unique<Convolution>(place.name, channels, outputs, window,
                                                 place.initialization, place.seed);
          }};
}

LayerMaker max_pool(const Window& window) {
  return {kPool, [window](Shape& shape, const LayerMaker::Place& place) {
            slide(shape, place, window);
            return std::make_unique<MaxPool>(window);
          }};
}

LayerMaker batch_norm(SumOverRanks sum) {
  return {kNorm, [sum = std::move(sum)](const Shape& shape, const LayerMaker::Place& place) {
            return std::make_unique<BatchNorm>(place.name, shape.at(0), sum);
          }};
}

LayerMaker dropout(double rate) {
  return {"dropout", [rate](const Shape& /*shape*/, const LayerMaker::Place& place) {
            return std::make_unique<Dropout>(place.name, rate);
          }};
}

Shape input_of(const std::vector<LayerMaker>& layers) {
  Shape shape;
  const auto pieces = pieces_of(layers);
  if (!pieces.empty() && pieces[0].kind == kInput) (void)pieces[0].make(shape, {});
  return shape;
}

std::unique_ptr<Layers> make_layers(const std::vector<LayerMaker>& layers, Shape sample,
                                    std::uint64_t seed) {
  auto made = std::make_unique<Layers>();
  const auto pieces = pieces_of(layers);
  std::map<std::string, std::size_t> count;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto& [kind, name, make] = pieces[i];
    const std::string numbered = kind + std::to_string(++count[kind]);
    auto layer = make(sample, {name.empty() ? numbered : name, initialization(pieces, i), seed});
    if (layer) made->append(std::move(layer));
  }
  return made;
}

}  // namespace ronde::trainer
