// SPDX-License-Identifier: Apache-2.0
// The bytes of messages. A message says its fields once, for writing and for reading, in a function
// beside it that argument-dependent lookup finds:
//
//   void fields(auto& f, base::Is<Hello> auto& hello) { f(hello.version, hello.host, hello.name); }
//
// Numbers are little-endian and of fixed width; a text or a list is its length followed by its
// content; a truth value is a byte. What else a message needs, Encoder and Decoder have under the
// same names.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/numbers.h"
#include "base/status.h"

namespace ronde::base {

static_assert(std::endian::native == std::endian::little,
              "messages are written in the machine's order, which must be little-endian");

// A T to read, or a const T to write.
template <typename Message, typename T>
concept Is = std::same_as<std::remove_const_t<Message>, T>;

namespace detail {

template <typename T>
concept Plain = (std::is_arithmetic_v<T> && !std::same_as<T, bool>) || std::same_as<T, std::byte>;
// A value that keeps everything in one number.
template <typename T>
concept Word = requires(const T& value) {
  { T::of_word(value.word()) } -> std::same_as<T>;
};
template <typename T>
inline constexpr bool kIsArray = false;
template <Plain T, std::size_t kSize>
inline constexpr bool kIsArray<std::array<T, kSize>> = true;
template <typename T>
concept List = requires(T& list, std::size_t size) {
  list.resize(size);
  list.push_back(*list.begin());
};

}  // namespace detail

// Writes one message. Thread safety: none.
class Encoder {
 public:
  static constexpr bool kReads = false;

  Encoder() { bytes_.reserve(kUsual); }

  // The next fields.
  template <typename... Ts>
  void operator()(const Ts&... values) {
    (put(values), ...);
  }
  // One of the enumerators from `first` to `last`; `unknown`: what any other is called.
  template <typename T>
  void among(T value, T /*first*/, T /*last*/, const char* /*unknown*/) {
    put(static_cast<std::underlying_type_t<T>>(value));
  }
  // Which of several messages this is, the first of them being `first`, and that message.
  template <typename... Ts>
  void one_of(const std::variant<Ts...>& value, std::uint8_t first, const char* /*unknown*/) {
    put(static_cast<std::uint8_t>(first + value.index()));
    std::visit([this](const auto& message) { (*this)(message); }, value);
  }
  // Always the same characters.
  void magic(std::string_view text) { append(text.data(), text.size()); }
  // The last field of a message: it needs no length.
  void rest(std::span<const std::byte> bytes) { append(bytes.data(), bytes.size()); }
  // A reader calls `trouble`: it returns what is wrong with the fields so far, or nullptr.
  template <typename Trouble>
  void check(const Trouble& /*trouble*/) {}

  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  // A batch of a few planned entries: what a steady step sends.
  static constexpr std::size_t kUsual = 64;

  template <typename T>
  void put(const T& value) {
    if constexpr (std::same_as<T, bool>) {
      put(static_cast<std::uint8_t>(value));
    } else if constexpr (detail::Plain<T> || detail::kIsArray<T>) {
      append(&value, sizeof value);
    } else if constexpr (detail::Word<T>) {
      put(value.word());
    } else if constexpr (detail::List<T>) {
      put(narrow<std::uint32_t>(value.size()));
      if constexpr (detail::Plain<typename T::value_type>) {
        append(value.data(), value.size() * sizeof(typename T::value_type));
      } else {
        for (const auto& each : value) put(each);
      }
    } else {
      fields(*this, value);
    }
  }
  template <typename T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  void append(const void* from, std::size_t size) {
    const auto* const begin = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }

  std::vector<std::byte> bytes_;
};

// Reads one message, whose bytes must outlive it, and takes no more memory than those need. Keeps
// the first error; from then on every field keeps what it had, so the caller need only check
// finish(). Thread safety: none.
class Decoder {
 public:
  static constexpr bool kReads = true;

  explicit Decoder(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename... Ts>
  void operator()(Ts&... values) {
    (get(values), ...);
  }
  template <typename T>
  void among(T& value, T first, T last, const char* unknown) {
    auto number = static_cast<std::underlying_type_t<T>>(value);
    get(number);
    if (number < static_cast<decltype(number)>(first) ||
        number > static_cast<decltype(number)>(last)) {
      return fail(unknown);
    }
    value = static_cast<T>(number);
  }
  template <typename... Ts>
  void one_of(std::variant<Ts...>& value, std::uint8_t first, const char* unknown) {
    std::uint8_t kind = 0;
    get(kind);
    std::size_t index = 0;
    const bool known =
        ((kind == first + index++ && (get(value.template emplace<Ts>()), true)) || ...);
    if (!known) fail(unknown);
  }
  void magic(std::string_view text) {
    const auto* from = take(text.size());
    if (from != nullptr && std::string_view(from, text.size()) != text) fail("another beginning");
  }
  void rest(std::vector<std::byte>& bytes) {
    const auto left = bytes_.subspan(std::exchange(at_, bytes_.size()));
    bytes.assign(left.begin(), left.end());
  }
  template <typename Trouble>
  void check(const Trouble& trouble) {
    if (!error_.empty()) return;
    if (const char* const what = trouble()) fail(what);
  }

  void fail(const char* what) {
    if (error_.empty()) error_ = what + (" at byte " + std::to_string(at_));
  }
  Status finish() {
    if (at_ != bytes_.size()) fail("more bytes than the message needs");
    if (error_.empty()) return {};
    return Status::error(Code::kInternal, "control message of " + std::to_string(bytes_.size()) +
                                              " bytes is damaged: it has " + error_);
  }

 private:
  template <typename T>
  void get(T& value) {
    if constexpr (std::same_as<T, bool>) {
      std::uint8_t byte = 0;
      get(byte);
      if (byte > 1) fail("a truth value that is neither 0 nor 1");
      value = byte == 1;
    } else if constexpr (detail::Plain<T> || detail::kIsArray<T>) {
      if (const auto* from = take(sizeof value)) std::memcpy(&value, from, sizeof value);
    } else if constexpr (detail::Word<T>) {
      auto word = value.word();
      get(word);
      value = T::of_word(word);
    } else if constexpr (detail::List<T>) {
      get_list(value);
    } else {
      fields(*this, value);
    }
  }
  template <typename T>
  void get(std::optional<T>& value) {
    bool there = false;
    get(there);
    if (there) get(value.emplace());
  }
  template <typename T>
  void get_list(T& values) {
    using Each = typename T::value_type;
    std::uint32_t length = 0;
    get(length);
    if constexpr (detail::Plain<Each> && sizeof(Each) == 1) {
      if (const auto* from = take(length)) {
        values.resize(length);
        if (length > 0) std::memcpy(values.data(), from, length);
      }
    } else if constexpr (detail::Plain<Each>) {
      if (length > left() / sizeof(Each)) return fail("a list that is longer than the message");
      values.resize(length);
      const auto* from = take(length * sizeof(Each));
      if (length > 0) std::memcpy(values.data(), from, length * sizeof(Each));
    } else {
      if (length > left()) return fail("a group that is longer than the message");
      while (length-- > 0 && error_.empty()) get(values.emplace_back());
    }
  }

  [[nodiscard]] std::size_t left() const { return bytes_.size() - at_; }
  // Where the next bytes are; nullptr if there are not so many.
  const char* take(std::size_t count) {
    if (count > left()) {
      fail("an early end");
      return nullptr;
    }
    return reinterpret_cast<const char*>(bytes_.data()) + std::exchange(at_, at_ + count);
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::string error_;
};

// The fields of this library's own enumerations. The code is that of an error: kOk is none.
void fields(auto& f, Is<Code> auto& code) {
  f.among(code, Code::kInvalidArgument, Code::kInternal, "an unknown error code");
}
void fields(auto& f, Is<DType> auto& dtype) {
  f.among(dtype, DType::kU8, DType::kBool, "an unknown dtype");
}
void fields(auto& f, Is<ReduceOp> auto& op) {
  f.among(op, ReduceOp::kAverage, ReduceOp::kBitXor, "an unknown reduce operation");
}
void fields(auto& f, Is<Compression> auto& compression) {
  f.among(compression, Compression::kNone, Compression::kF16, "an unknown compression");
}

template <typename Message>
[[nodiscard]] std::vector<std::byte> encoded(const Message& message) {
  Encoder out;
  out(message);
  return out.take();
}

// Accepts exactly what encoded() makes; the error (kInternal) of anything else names the byte.
template <typename Message>
[[nodiscard]] Result<Message> decoded(std::span<const std::byte> bytes) {
  Decoder in(bytes);
  Message message;
  in(message);
  RONDE_RETURN_IF_ERROR(in.finish());
  return message;
}

}  // namespace ronde::base
