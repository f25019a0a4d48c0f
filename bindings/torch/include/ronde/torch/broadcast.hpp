// SPDX-License-Identifier: Apache-2.0
// How all ranks start from the values of one. Included by ronde/torch.hpp.
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <locale>
#include <map>
#include <ronde/torch/tensors.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace ronde::torch {

// Copies the parameters and buffers of rank `root` into those of every rank, in place; tied weights
// are sent once. Every rank calls it. Throws Error: RONDE_MISMATCH on every rank where the modules
// differ, RONDE_UNSUPPORTED for a tensor that is not in host memory, and the codes of broadcasts.
//   ronde::torch::broadcast_parameters(engine, model);
inline void broadcast_parameters(Engine& engine, const ::torch::nn::Module& module, int root = 0) {
  const std::vector<detail::NamedTensor> tensors = detail::tensors_of(module, true);
  detail::require_the_same(engine, "broadcast_parameters", tensors);
  std::map<at::ScalarType, std::vector<detail::NamedTensor>> by_type;
  for (const detail::NamedTensor& one : tensors) {
    by_type[one.tensor.scalar_type()].push_back({one.name, one.tensor.detach()});
  }
  for (const auto& [type, group] : by_type) {
    detail::with_element(type, [&](auto element) {
      std::vector<NamedSpan<decltype(element)>> spans;
      std::vector<at::Tensor> sent;
      for (const detail::NamedTensor& one : group) {
        sent.push_back(detail::contiguous(one.tensor));
        spans.push_back(
            {"ronde.torch.parameter." + one.name, detail::span_of<decltype(element)>(sent.back())});
      }
      engine.grouped_broadcast_blocking(spans, root);
      for (std::size_t i = 0; engine.rank() != root && i < group.size(); ++i) {
        if (!sent[i].is_same(group[i].tensor)) group[i].tensor.copy_(sent[i]);
      }
    });
  }
}

namespace detail {

// LibTorch's own load() leaves the options (learning rate, ...) as they are: they are beside it.
inline std::string bytes_of(const ::torch::optim::Optimizer& optimizer) {
  ::torch::serialize::OutputArchive archive;
  ::torch::serialize::OutputArchive state(archive.compilation_unit());
  optimizer.save(state);
  archive.write("optimizer", state);
  std::size_t number = 0;
  for (const auto& group : optimizer.param_groups()) {
    ::torch::serialize::OutputArchive options(archive.compilation_unit());
    group.options().serialize(options);
    archive.write("options" + std::to_string(number++), options);
  }
  std::ostringstream stream;
  stream.imbue(std::locale::classic());
  archive.save_to(stream);
  return std::move(stream).str();
}

inline void load(::torch::optim::Optimizer& optimizer, const std::string& bytes) {
  std::istringstream stream(bytes);
  ::torch::serialize::InputArchive archive;
  archive.load_from(stream);
  ::torch::serialize::InputArchive state;
  archive.read("optimizer", state);
  optimizer.state().clear();
  optimizer.load(state);
  std::size_t number = 0;
  for (auto& group : optimizer.param_groups()) {
    ::torch::serialize::InputArchive options;
    archive.read("options" + std::to_string(number++), options);
    group.options().serialize(options);
  }
}

}  // namespace detail

// Gives the optimiser of every rank the state and the options (learning rate, ...) of rank
// `root`'s. Every rank calls it, with an optimiser of the same kind and as many groups. Throws
// Error: the codes of broadcasts; c10::Error for an optimiser that is not like the root's. Where
// the root's cannot be saved, it throws what save() did, and the others RONDE_INVALID_ARGUMENT.
inline void broadcast_optimizer(Engine& engine, ::torch::optim::Optimizer& optimizer,
                                int root = 0) {
  std::string bytes;
  std::exception_ptr failure;
  if (engine.rank() == root) {
    try {
      bytes = detail::bytes_of(optimizer);
    } catch (...) {
      failure = std::current_exception();  // thrown once the others know
    }
  }
  std::vector<std::int64_t> length{failure ? -1 : static_cast<std::int64_t>(bytes.size())};
  engine.broadcast_blocking("ronde.torch.optimizer.length", length, root);
  if (failure) std::rethrow_exception(failure);
  if (length.front() < 0) {
    throw Error(RONDE_INVALID_ARGUMENT,
                "broadcast_optimizer: rank " + std::to_string(root) +
                    " could not save its optimiser, and nothing was sent: the error there says why",
                "", root);
  }
  bytes.resize(static_cast<std::size_t>(length.front()));
  engine.broadcast_blocking("ronde.torch.optimizer", bytes, root);
  if (engine.rank() != root) detail::load(optimizer, bytes);
}

}  // namespace ronde::torch
