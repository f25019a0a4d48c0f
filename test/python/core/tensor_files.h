// SPDX-License-Identifier: Apache-2.0
// The tensors that core_runner gets and gives, by name, in files of the safetensors format.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/trainer/keep/safetensors.h"
#include "bindings/trainer/tensor/shape.h"

namespace ronde::trainer {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

// Thread safety: belongs to one thread.
class Files {
 public:
  explicit Files(std::string path) : bytes_(read_file(path)), in_(from_safetensors(bytes_, path)) {}

  [[nodiscard]] const Shape& shape(const std::string& name) const { return in_.at(name).shape; }
  [[nodiscard]] std::vector<float> values(const std::string& name) const {
    const std::string_view bytes = in_.at(name).bytes;  // at any address
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  [[nodiscard]] std::vector<std::uint8_t> labels(const std::string& name) const {
    std::vector<std::uint8_t> labels;
    for (const float value : values(name)) labels.push_back(static_cast<std::uint8_t>(value));
    return labels;
  }
  void give(const std::string& name, Shape shape, std::span<const float> values) {
    out_.emplace_back(name, std::move(shape), std::vector<float>(values.begin(), values.end()));
  }
  void say(const std::string& name, const std::string& text) { metadata_[name] = text; }
  void write(const std::string& path) {
    std::vector<StateTensor> tensors;
    for (auto& [name, shape, values] : out_) tensors.push_back({name, shape, values});
    const std::string bytes = to_safetensors(tensors, metadata_);
    std::ofstream file(path, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) throw std::runtime_error(path + " cannot be written");
  }

 private:
  struct Out {
    std::string name;
    Shape shape;
    std::vector<float> values;
  };

  std::string bytes_;
  TensorsInBytes in_;
  std::vector<Out> out_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace ronde::trainer
