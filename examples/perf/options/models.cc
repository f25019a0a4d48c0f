// SPDX-License-Identifier: Apache-2.0
// The rules that generate the lists of gradients. Names and shapes are those of the
// models' published implementations, in the order in which they register their parameters.
#include "examples/perf/options/models.h"

#include <algorithm>
#include <array>

namespace ronde::perf {

namespace {

using Gradients = std::vector<Gradient>;

void add_pair(Gradients& list, const std::string& name, std::size_t weights, std::size_t biases) {
  list.push_back({name + ".weight", weights});
  list.push_back({name + ".bias", biases});
}

// Adds a layer norm or batch norm.
void add_norm(Gradients& list, const std::string& name, std::size_t width) {
  add_pair(list, name, width, width);
}

void add_dense(Gradients& list, const std::string& name, std::size_t in, std::size_t out) {
  add_pair(list, name, in * out, out);
}

void add_convolution(Gradients& list, const std::string& name, std::size_t in, std::size_t out,
                     std::size_t side) {
  list.push_back({name + ".weight", in * out * side * side});
}

Gradients resnet(const std::array<int, 4>& blocks) {
  Gradients list;
  add_convolution(list, "conv1", 3, 64, 7);
  add_norm(list, "bn1", 64);
  std::size_t in = 64;
  std::size_t width = 64;
  for (std::size_t stage = 0; stage < blocks.size(); ++stage, width *= 2) {
    for (int block = 0; block < blocks[stage]; ++block) {
      const std::string name =
          "layer" + std::to_string(stage + 1) + "." + std::to_string(block) + ".";
      add_convolution(list, name + "conv1", in, width, 1);
      add_norm(list, name + "bn1", width);
      add_convolution(list, name + "conv2", width, width, 3);
      add_norm(list, name + "bn2", width);
      add_convolution(list, name + "conv3", width, 4 * width, 1);
      add_norm(list, name + "bn3", 4 * width);
      if (block == 0) {
        add_convolution(list, name + "downsample.0", in, 4 * width, 1);
        add_norm(list, name + "downsample.1", 4 * width);
      }
      in = 4 * width;
    }
  }
  add_dense(list, "fc", 2048, 1000);
  return list;
}

Gradients vgg16() {
  constexpr std::array<std::size_t, 13> kWidths{64,  64,  128, 128, 256, 256, 256,
                                                512, 512, 512, 512, 512, 512};
  Gradients list;
  std::size_t in = 3;
  for (std::size_t layer = 0; layer < kWidths.size(); ++layer) {
    add_pair(list, "conv" + std::to_string(layer), in * kWidths[layer] * 9, kWidths[layer]);
    in = kWidths[layer];
  }
  add_dense(list, "classifier.0", 25088, 4096);
  add_dense(list, "classifier.3", 4096, 4096);
  add_dense(list, "classifier.6", 4096, 1000);
  return list;
}

Gradients bert(int layers, std::size_t hidden, std::size_t inner) {
  Gradients list{{"embeddings.word", 30522 * hidden},
                 {"embeddings.position", 512 * hidden},
                 {"embeddings.type", 2 * hidden}};
  add_norm(list, "embeddings.norm", hidden);
  for (int layer = 0; layer < layers; ++layer) {
    const std::string name = "layer." + std::to_string(layer) + ".";
    for (const char* part : {"query", "key", "value", "attention.output"}) {
      add_dense(list, name + part, hidden, hidden);
    }
    add_norm(list, name + "attention.norm", hidden);
    add_dense(list, name + "intermediate", hidden, inner);
    add_dense(list, name + "output", inner, hidden);
    add_norm(list, name + "norm", hidden);
  }
  add_dense(list, "pooler", hidden, hidden);
  return list;
}

// The head is tied to wte, so it has no gradient of its own.
Gradients gpt2() {
  constexpr std::size_t kWidth = 768;
  Gradients list{{"wte", 50257 * kWidth}, {"wpe", 1024 * kWidth}};
  for (int layer = 0; layer < 12; ++layer) {
    const std::string name = "h." + std::to_string(layer) + ".";
    add_norm(list, name + "ln_1", kWidth);
    add_dense(list, name + "attn.c_attn", kWidth, 3 * kWidth);
    add_dense(list, name + "attn.c_proj", kWidth, kWidth);
    add_norm(list, name + "ln_2", kWidth);
    add_dense(list, name + "mlp.c_fc", kWidth, 4 * kWidth);
    add_dense(list, name + "mlp.c_proj", 4 * kWidth, kWidth);
  }
  add_norm(list, "ln_f", kWidth);
  return list;
}

struct Model {
  std::string_view name;
  Gradients (*make)();
};

constexpr std::array<Model, 6> kModels{{
    {"resnet50", [] { return resnet({3, 4, 6, 3}); }},
    {"resnet101", [] { return resnet({3, 4, 23, 3}); }},
    {"vgg16", [] { return vgg16(); }},
    {"bert-base", [] { return bert(12, 768, 3072); }},
    {"bert-large", [] { return bert(24, 1024, 4096); }},
    {"gpt2", [] { return gpt2(); }},
}};

}  // namespace

bool model_exists(std::string_view name) {
  return std::any_of(kModels.begin(), kModels.end(),
                     [name](const Model& model) { return model.name == name; });
}

std::string model_names() {
  std::string names;
  for (const Model& model : kModels) {
    if (!names.empty()) names += ' ';
    names += model.name;
  }
  return names;
}

std::vector<Gradient> gradients_of(std::string_view name) {
  Gradients list;
  for (const Model& model : kModels) {
    if (model.name == name) list = model.make();
  }
  std::reverse(list.begin(), list.end());
  return list;
}

}  // namespace ronde::perf
