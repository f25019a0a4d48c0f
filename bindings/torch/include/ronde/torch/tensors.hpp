// SPDX-License-Identifier: Apache-2.0
// LibTorch's tensors as spans of the facade, and what the ranks say of theirs. Included by
// ronde/torch.hpp.
#pragma once

#include <torch/nn/module.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <locale>
#include <ronde/ronde.hpp>
#include <span>
#include <sstream>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace ronde::torch {
namespace detail {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// Throws Error (RONDE_UNSUPPORTED) for what no rank could send. On one rank alone that would leave
// the others waiting: see require_the_same.
inline void require_host(const NamedTensor& one) {
  const std::string subject = "tensor '" + one.name + "'";
  if (!one.tensor.device().is_cpu()) {
    throw Error(RONDE_UNSUPPORTED,
                subject + " is on " + one.tensor.device().str() +
                    ": ronde::torch takes tensors in host memory; move it with .to(torch::kCPU), "
                    "or give the engine a ronde::DeviceSpan",
                "", -1);
  }
  if (one.tensor.layout() != at::kStrided) {
    throw Error(RONDE_UNSUPPORTED, subject + " is sparse, and parameters are dense", "", -1);
  }
}

// Calls `visit` with a value of the facade's element type for a scalar type of LibTorch. Throws
// Error (RONDE_UNSUPPORTED) where there is none.
template <typename Visit>
auto with_element(at::ScalarType type, const Visit& visit) {
  switch (type) {
    case at::kFloat:
      return visit(float{});
    case at::kDouble:
      return visit(double{});
    case at::kHalf:
      return visit(Float16{});
    case at::kBFloat16:
      return visit(BFloat16{});
    case at::kByte:
      return visit(std::uint8_t{});
    case at::kChar:
      return visit(std::int8_t{});
    case at::kShort:
      return visit(std::int16_t{});
    case at::kInt:
      return visit(std::int32_t{});
    case at::kLong:
      return visit(std::int64_t{});
    case at::kBool:
      return visit(bool{});
    default:
      throw Error(RONDE_UNSUPPORTED,
                  std::string("tensors of type ") + at::toString(type) +
                      ": Ronde has u8 i8 i16 i32 i64 f16 bf16 f32 f64 bool",
                  "", -1);
  }
}

// The tensor itself if its memory says all of it, else a copy that is row-major, and neither
// conjugated, negated nor made zeros lazily. What reads a tensor's memory reads this one's.
inline at::Tensor contiguous(const at::Tensor& tensor) {
  if (tensor._is_zerotensor()) return at::zeros(tensor.sizes(), tensor.options());
  return tensor.resolve_conj().resolve_neg().contiguous();
}

// All elements, in the order in which they lie; the tensor is contiguous().
template <typename T>
std::span<T> span_of(const at::Tensor& tensor) {
  return {static_cast<T*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

// Parameters, and buffers if asked for, in the module's order; those that are tied, once.
inline std::vector<NamedTensor> tensors_of(const ::torch::nn::Module& module, bool buffers) {
  std::vector<NamedTensor> found;
  std::unordered_set<const c10::TensorImpl*> seen;
  const auto add = [&](const auto& items) {
    for (const auto& item : items) {
      if (!item.value().defined() || !seen.insert(item.value().unsafeGetTensorImpl()).second) {
        continue;
      }
      found.push_back({item.key(), item.value()});
    }
  };
  add(module.named_parameters());
  if (buffers) add(module.named_buffers());
  return found;
}

// The texts of all ranks, in rank order.
inline std::vector<std::string> gather_texts(Engine& engine, const std::string& name,
                                             const std::string& text) {
  const std::vector<std::int64_t> length{static_cast<std::int64_t>(text.size())};
  const std::vector<std::int64_t> lengths = engine.allgather_blocking(name + ".lengths", length);
  const std::vector<char> mine(text.begin(), text.end());
  const std::vector<char> all = engine.allgather_blocking(name, mine);
  std::vector<std::string> texts;
  auto begin = all.begin();
  for (const std::int64_t bytes : lengths) {
    texts.emplace_back(begin, begin + bytes);
    begin += bytes;
  }
  return texts;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// A line for the other ranks to compare. What is dense and in host memory is not said to be.
inline std::string description_of(const NamedTensor& one) {
  const at::Tensor& tensor = one.tensor;
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << "'" << one.name << "' " << at::toString(tensor.scalar_type()) << tensor.sizes();
  if (tensor.layout() == at::kStrided) {
    text << " with strides " << tensor.strides();
  } else {
    text << " of layout " << tensor.layout();  // a sparse one has no strides
  }
  if (!tensor.device().is_cpu())
    text << " on " << c10::DeviceTypeName(tensor.device().type(), true);
  return std::move(text).str() + "\n";
}

// Throws Error, the same code on every rank: RONDE_MISMATCH where the tensors of a rank are not
// those of rank 0, in their order (by name, type, shape, layout and kind of device), and then
// RONDE_UNSUPPORTED where they are not dense ones in host memory.
inline void require_the_same(Engine& engine, const std::string& what,
                             const std::vector<NamedTensor>& tensors) {
  std::string mine;
  for (const NamedTensor& one : tensors) mine += description_of(one);
  const std::vector<std::string> texts = gather_texts(engine, "ronde.torch." + what, mine);
  const auto other = std::find_if(texts.begin(), texts.end(),
                                  [&](const std::string& text) { return text != texts.front(); });
  if (other == texts.end()) {
    for (const NamedTensor& one : tensors) require_host(one);
    return;
  }
  std::vector<std::string> first = lines_of(texts.front());
  std::vector<std::string> second = lines_of(*other);
  const std::size_t longer = std::max(first.size(), second.size());
  first.resize(longer, "no more");
  second.resize(longer, "no more");
  const auto [here, there] = std::mismatch(first.begin(), first.end(), second.begin());
  const auto rank = static_cast<int>(other - texts.begin());
  throw Error(RONDE_MISMATCH,
              what + ": the ranks' modules differ: rank 0 has " + *here + ", and rank " +
                  std::to_string(rank) + " has " + *there + ": make the same module on every rank",
              "", rank);
}

}  // namespace detail
}  // namespace ronde::torch
