// SPDX-License-Identifier: Apache-2.0
// The fields of control messages, in bytes, for messages.cc and link_messages.cc. Numbers are
// little-endian and of fixed width; a text or a list is its length followed by its content.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "base/status.h"
#include "base/tensor.h"
#include "runtime/tensors/signature.h"

namespace ronde::runtime {

static_assert(std::endian::native == std::endian::little,
              "control messages are written in the machine's order, which must be little-endian");

// The bytes of a group member without a name and without dimensions: two lengths.
inline constexpr std::size_t kLeastMember = 2 * sizeof(std::uint32_t);

// Builds one message. Thread safety: none.
class Encoder {
 public:
  template <typename Kind>
  explicit Encoder(Kind kind) {
    bytes_.reserve(kUsual);
    number(kind);
  }

  template <typename T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
  void number(T value) {
    append(&value, sizeof(T));
  }
  void text(const std::string& value) {
    number(base::narrow<std::uint32_t>(value.size()));
    append(value.data(), value.size());
  }
  void list(const std::vector<std::int64_t>& values) {
    number(base::narrow<std::uint32_t>(values.size()));
    for (const std::int64_t value : values) number(value);
  }
  void signature(const Signature& value) {
    number(value.operation);
    number(value.dtype);
    number(value.op);
    number(value.root);
    number(value.device);
    number(value.priority);
    number(value.prescale);
    number(value.postscale);
    number(value.compression);
    number(static_cast<std::uint8_t>(value.on_board));
    list(value.shape);
    list(value.splits);
    number(base::narrow<std::uint32_t>(value.members.size()));
    for (const GroupMember& member : value.members) {
      text(member.name);
      list(member.shape);
    }
  }
  void tensor(const AgreedTensor& value) {
    signature(value.signature);
    list(value.first_dimensions);
  }
  // The last field of a message: it needs no length.
  void rest(std::span<const std::byte> bytes) { append(bytes.data(), bytes.size()); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  // A batch of a few planned entries: what a steady step sends.
  static constexpr std::size_t kUsual = 64;

  void append(const void* from, std::size_t size) {
    if (size == 0) return;
    bytes_.resize(bytes_.size() + size);
    std::memcpy(bytes_.data() + bytes_.size() - size, from, size);
  }

  std::vector<std::byte> bytes_;
};

// Nothing when a number is negative or the sum does not fit.
inline std::optional<std::int64_t> sum_of(const std::vector<std::int64_t>& values) {
  std::int64_t sum = 0;
  for (const std::int64_t value : values) {
    if (value < 0 || __builtin_add_overflow(sum, value, &sum)) return std::nullopt;
  }
  return sum;
}

// Reads one message, whose bytes must outlive it. Keeps the first error; from then on every read
// returns a default, so the caller need only check finish(). Thread safety: none.
class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  T number() {
    T value{};
    if (!take(sizeof(T))) return value;
    std::memcpy(&value, bytes_.data() + at_ - sizeof(T), sizeof(T));
    return value;
  }
  bool boolean() {
    const auto value = number<std::uint8_t>();
    if (value > 1) fail("a truth value that is neither 0 nor 1");
    return value == 1;
  }
  std::string text() {
    const std::size_t length = number<std::uint32_t>();
    if (!take(length)) return {};
    return {reinterpret_cast<const char*>(bytes_.data() + at_ - length), length};
  }
  std::vector<std::byte> rest() {
    const auto left = bytes_.subspan(at_);
    at_ = bytes_.size();
    return {left.begin(), left.end()};
  }
  // The code of an error, so kOk is not accepted.
  base::Code code() {
    const auto value = number<base::Code>();
    if (value <= base::Code::kOk || value > base::Code::kInternal) fail("an unknown error code");
    return value;
  }
  std::vector<std::int64_t> list() {
    const std::size_t length = number<std::uint32_t>();
    if (length > (bytes_.size() - at_) / sizeof(std::int64_t)) {
      fail("a list that is longer than the message");
      return {};
    }
    std::vector<std::int64_t> values(length);
    for (std::int64_t& value : values) value = number<std::int64_t>();
    return values;
  }
  Signature signature() {
    Signature value;
    value.operation = number<Operation>();
    if (static_cast<std::size_t>(value.operation) >= base::kOperations.size()) {
      fail("an unknown operation");
      value.operation = Operation{};
    }
    const auto dtype = base::dtype_from_value(number<std::uint8_t>());
    const auto op = base::reduce_op_from_value(number<std::uint8_t>());
    if (!dtype || !op) fail("an unknown dtype or reduce operation");
    value.dtype = dtype.value_or(base::DType::kF32);
    value.op = op.value_or(base::ReduceOp::kSum);
    value.root = number<std::int32_t>();
    value.device = number<std::int32_t>();
    value.priority = number<std::int32_t>();
    value.prescale = number<double>();
    value.postscale = number<double>();
    const auto compression = base::compression_from_value(number<std::uint8_t>());
    if (!compression) fail("an unknown compression");
    value.compression = compression.value_or(base::Compression::kNone);
    value.on_board = boolean();
    value.shape = shape(value.dtype);
    value.splits = list();
    value.members = members(value.dtype);
    check_parts(value);
    return value;
  }
  AgreedTensor tensor() {
    AgreedTensor value;
    value.signature = signature();
    value.first_dimensions = list();
    base::Shape whole = value.signature.shape;
    const auto rows = sum_of(value.first_dimensions);
    if (!rows) {
      fail("rows without a size");
      return value;
    }
    if (!whole.empty() && !value.first_dimensions.empty()) whole[0] = *rows;
    const auto elements = base::elements_of(whole);
    if (!elements.ok() || !base::bytes_of(*elements, value.signature.dtype).ok()) {
      fail("rows without a size");
    }
    return value;
  }

  // Checks that the parts of a signature fit each other, because its users rely on that.
  void check_parts(const Signature& value) {
    if (row(value.operation).has_rows() && value.shape.empty()) fail("rows without a dimension");
    if (!value.splits.empty()) {
      const std::int64_t rows = value.shape.empty() ? -1 : value.shape.front();
      if (sum_of(value.splits) != rows) fail("splits that do not add up to the rows");
    }
    if (value.members.empty() || failed()) return;
    std::vector<std::int64_t> elements;
    elements.reserve(value.members.size());
    for (const GroupMember& member : value.members) {
      elements.push_back(base::elements_of(member.shape).value().value());
    }
    if (value.shape.size() != 1 || sum_of(elements) != value.shape.front()) {
      fail("a group of another size than its members");
    }
  }
  base::Shape shape(base::DType dtype) {
    base::Shape value = list();
    const auto elements = base::elements_of(value);
    if (!elements.ok() || !base::bytes_of(*elements, dtype).ok()) fail("a shape without a size");
    return value;
  }
  std::vector<GroupMember> members(base::DType dtype) {
    const auto count = number<std::uint32_t>();
    if (count > (bytes_.size() - at_) / kLeastMember) {
      fail("a group that is longer than the message");
      return {};
    }
    std::vector<GroupMember> values;
    for (std::uint32_t i = 0; i < count && !failed(); ++i) {
      GroupMember member;
      member.name = text();
      member.shape = shape(dtype);
      values.push_back(std::move(member));
    }
    return values;
  }

  void fail(const std::string& what) {
    if (error_.empty()) error_ = what + " at byte " + std::to_string(at_);
  }
  [[nodiscard]] bool failed() const { return !error_.empty(); }

  base::Status finish() {
    if (at_ != bytes_.size()) fail("more bytes than the message needs");
    if (!failed()) return {};
    return base::Status::error(base::Code::kInternal, "control message of " +
                                                          std::to_string(bytes_.size()) +
                                                          " bytes is damaged: it has " + error_);
  }

 private:
  bool take(std::size_t count) {
    if (count > bytes_.size() - at_) {
      fail("an early end");
      return false;
    }
    at_ += count;
    return true;
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::string error_;
};

}  // namespace ronde::runtime
