// SPDX-License-Identifier: Apache-2.0
// Operations of a job with the expected result of each: every rank makes the inputs of all ranks
// from the same seed, and computes the results serially.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <ronde/ronde.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "collectives/kernels/reduce.h"
#include "test/property/random_magnitudes.h"
#include "test/support/twister.h"
#include "test/unit/collectives/ring_oracle.h"
#include "test/unit/collectives/rule_oracle.h"
#include "test/unit/collectives/shape_oracle.h"

namespace ronde::testing {

using base::DType;
using base::ReduceOp;
using collectives::Reduction;
using collectives::oracle::Bytes;
using Rows = std::vector<std::int64_t>;

// Calls body.operator()<T>() with the type of the facade.
template <typename Body>
auto with_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kU8:
      return body.template operator()<std::uint8_t>();
    case DType::kI8:
      return body.template operator()<std::int8_t>();
    case DType::kU16:
      return body.template operator()<std::uint16_t>();
    case DType::kI16:
      return body.template operator()<std::int16_t>();
    case DType::kU32:
      return body.template operator()<std::uint32_t>();
    case DType::kI32:
      return body.template operator()<std::int32_t>();
    case DType::kU64:
      return body.template operator()<std::uint64_t>();
    case DType::kI64:
      return body.template operator()<std::int64_t>();
    case DType::kF16:
      return body.template operator()<Float16>();
    case DType::kBf16:
      return body.template operator()<BFloat16>();
    case DType::kF32:
      return body.template operator()<float>();
    case DType::kF64:
      return body.template operator()<double>();
    case DType::kBool:
      return body.template operator()<bool>();
  }
  throw std::logic_error("no such dtype");
}

template <typename T>
std::span<T> span_of(Bytes& bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}
template <typename T>
std::span<const T> span_of(const Bytes& bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// Describes what is wrong with `got`; empty when nothing is.
inline std::string difference(DType dtype, const Bytes& got, const Bytes& expected) {
  if (got.size() != expected.size()) {
    return std::to_string(got.size()) + " bytes, expected " + std::to_string(expected.size());
  }
  const std::int64_t at = collectives::oracle::first_difference(dtype, got, expected);
  if (at < 0) return "";
  return "element " + std::to_string(at) + " has the bits " +
         std::to_string(collectives::oracle::load(dtype, got.data(), at)) + ", expected " +
         std::to_string(collectives::oracle::load(dtype, expected.data(), at));
}

inline Bytes joined(const std::vector<Bytes>& parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// The bytes of rows [first, first + rows).
inline Bytes part_of(const Bytes& all, DType dtype, std::int64_t first, std::int64_t rows) {
  const auto begin = all.begin() + first * base::size_of(dtype);
  return {begin, begin + rows * base::size_of(dtype)};
}

// Thread safety: none; one thread uses it.
class Case {
 public:
  Case(std::string name, DType dtype) : name_(std::move(name)), dtype_(dtype) {}
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;
  virtual ~Case() = default;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  // May be called again when the last work is done.
  virtual void prepare() = 0;
  virtual Work submit(Engine& engine) = 0;
  // Describes what is wrong with the result; empty when nothing is.
  [[nodiscard]] virtual std::string check(const Work& done) const = 0;
  // A hash of the results that check() has seen, in which a NaN counts as any other.
  [[nodiscard]] std::uint64_t bits() const { return bits_; }

 protected:
  // As difference(), and counts the bits.
  [[nodiscard]] std::string compare(const Bytes& got, const Bytes& expected) const {
    for (std::int64_t i = 0; i < std::ssize(got) / base::size_of(dtype_); ++i) {
      const std::uint64_t element = collectives::oracle::load(dtype_, got.data(), i);
      const bool is_nan =
          base::is_floating(dtype_) && std::isnan(collectives::oracle::decode(dtype_, element));
      bits_ = (bits_ ^ (is_nan ? ~std::uint64_t{0} : element)) * 0x100000001B3U;  // FNV's prime
    }
    return difference(dtype_, got, expected);
  }

 private:
  const std::string name_;
  const DType dtype_;
  mutable std::uint64_t bits_ = 0xCBF29CE484222325U;  // and FNV's first value
};
using CasePtr = std::unique_ptr<Case>;

// The state that all cases of a job share. Every rank adds the same cases, in the same order.
class JobOfCases {
 public:
  JobOfCases(const Engine& engine, collectives::oracle::Hosts hosts, std::uint64_t seed)
      : engine_(engine), hosts_(std::move(hosts)), random_(seed) {}

  [[nodiscard]] const Engine& engine() const { return engine_; }
  [[nodiscard]] int rank() const { return engine_.rank(); }
  [[nodiscard]] int size() const { return engine_.size(); }

  // Floating types get numbers whose sums differ in their bits with the order of summation.
  std::vector<Bytes> telling(DType dtype, const Rows& rows) {
    std::vector<Bytes> inputs;
    for (const std::int64_t elements : rows) {
      inputs.push_back(base::is_floating(dtype)
                           ? collectives::oracle::random_magnitudes(dtype, elements, random_)
                           : collectives::oracle::random_elements(dtype, elements, random_));
    }
    return inputs;
  }
  std::vector<Bytes> telling(DType dtype, std::int64_t elements) {
    return telling(dtype, Rows(static_cast<std::size_t>(size()), elements));
  }

  // The allreduce of a tensor by the order rule.
  [[nodiscard]] Bytes reduced(const Reduction& what, const std::vector<Bytes>& inputs) const {
    if (hosts_.size() > 1) return collectives::oracle::shaped_tensor(what, hosts_, inputs);
    if (what.compression == base::Compression::kNone) {
      return collectives::oracle::allreduce_of_host(what, inputs);
    }
    Reduction on_wire = what;
    on_wire.compression = base::Compression::kNone;
    on_wire.dtype = base::wire_dtype(what.dtype, what.compression);
    std::vector<Bytes> rounded;
    rounded.reserve(inputs.size());
    for (const Bytes& input : inputs) rounded.push_back(cast(what.dtype, on_wire.dtype, input));
    return cast(on_wire.dtype, what.dtype,
                collectives::oracle::allreduce_of_host(on_wire, rounded));
  }

  // This rank's result of a reduce-scatter: rows [first, first + rows) of all, by the order rule.
  [[nodiscard]] Bytes scattered(const Reduction& what, const std::vector<Bytes>& inputs,
                                std::int64_t first, std::int64_t rows) const {
    if (hosts_.size() == 1) return part_of(reduced(what, inputs), what.dtype, first, rows);
    std::vector<Bytes> parts;
    parts.reserve(inputs.size());
    for (const Bytes& input : inputs) parts.push_back(part_of(input, what.dtype, first, rows));
    return collectives::oracle::shaped_block(what, hosts_, parts, rank());
  }

  [[nodiscard]] std::string name(const std::string& text) const {
    return std::to_string(cases_.size()) + " " + text;
  }
  void add(CasePtr one) { cases_.push_back(std::move(one)); }
  std::vector<CasePtr> take() { return std::move(cases_); }

 private:
  static Bytes cast(DType from, DType to, const Bytes& bytes) {
    const std::int64_t elements = std::ssize(bytes) / base::size_of(from);
    Bytes result(static_cast<std::size_t>(elements * base::size_of(to)));
    for (std::int64_t i = 0; i < elements; ++i) {
      const double value =
          collectives::oracle::decode(from, collectives::oracle::load(from, bytes.data(), i));
      collectives::oracle::store(to, result.data(), i, collectives::oracle::encode(to, value));
    }
    return result;
  }

  const Engine& engine_;
  const collectives::oracle::Hosts hosts_;
  Twister random_;
  std::vector<CasePtr> cases_;
};

// A case whose input and output are the caller's.
class TwoBuffers : public Case {
 public:
  TwoBuffers(std::string name, DType dtype, Bytes input, Bytes expected)
      : Case(std::move(name), dtype),
        input_(std::move(input)),
        expected_(std::move(expected)),
        before_(input_) {}

 protected:
  static constexpr std::byte kMark{0x5A};

  Bytes input_;
  Bytes output_;
  const Bytes expected_;
  const Bytes before_;
};

inline std::string text_of(const Reduction& what) {
  return std::string(base::name_of(what.dtype)) + " " + std::string(base::name_of(what.op)) +
         (what.prescale == 1.0 ? "" : " prescaled") + (what.postscale == 1.0 ? "" : " postscaled") +
         (what.compression == base::Compression::kNone
              ? ""
              : " as " + std::string(base::name_of(what.compression)));
}

template <typename Options = AllreduceOptions>
Options options_of(const Reduction& what) {
  Options options;
  options.prescale = what.prescale;
  options.postscale = what.postscale;
  options.compression = static_cast<Compression>(what.compression);
  return options;
}

// Tensors of f32 in place, as one unit.
class GroupCase final : public Case {
 public:
  struct Tensor {
    Bytes input;
    Bytes expected;
  };
  GroupCase(const std::string& name, std::vector<Tensor> tensors, const Reduction& what)
      : Case(name, DType::kF32), tensors_(std::move(tensors)), what_(what), root_(-1) {}
  GroupCase(const std::string& name, std::vector<Tensor> tensors, int root)
      : Case(name, DType::kF32), tensors_(std::move(tensors)), root_(root) {}

  void prepare() override {
    data_.clear();
    for (const Tensor& tensor : tensors_) data_.push_back(tensor.input);
  }
  Work submit(Engine& engine) override {
    std::vector<NamedSpan<float>> named;
    for (std::size_t i = 0; i < data_.size(); ++i) {
      named.push_back({name() + ": " + std::to_string(i), span_of<float>(data_[i])});
    }
    if (root_ >= 0) return engine.grouped_broadcast(named, root_);
    return engine.grouped_allreduce(named, static_cast<Op>(what_.op), options_of(what_));
  }
  [[nodiscard]] std::string check(const Work& /*done*/) const override {
    for (std::size_t i = 0; i < data_.size(); ++i) {
      const std::string wrong = compare(data_[i], tensors_[i].expected);
      if (!wrong.empty()) return "tensor " + std::to_string(i) + ": " + wrong;
    }
    return "";
  }

 private:
  const std::vector<Tensor> tensors_;
  const Reduction what_;
  const int root_;
  std::vector<Bytes> data_;
};

}  // namespace ronde::testing
