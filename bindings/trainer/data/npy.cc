// SPDX-License-Identifier: Apache-2.0
// The header of a .npy file, and its numbers.
#include "bindings/trainer/data/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie");

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::size_t kMostHeader = 1 << 16;

struct NpyHeader {
  std::string kind;  // "f4", "i8", "u1", "b1" ...
  Shape shape;
};

[[noreturn]] void refuse_npy(const std::string& file, const std::string& why) {
  throw DataError(file + ": " + why);
}

// What stands behind a key of the header, which is a Python dict of a fixed form.
std::string_view value_of(const std::string& file, std::string_view header, std::string_view key) {
  const std::size_t at = header.find(key);
  if (at == std::string_view::npos) {
    refuse_npy(file, "its header has no " + std::string(key) + ": write it with np.save()");
  }
  const std::string_view rest = header.substr(at + key.size());
  return rest.substr(std::min(rest.find_first_not_of(": "), rest.size()));
}

Shape shape_in(const std::string& file, std::string_view text) {
  Shape shape;
  for (std::size_t at = 1; at < text.size() && text[at] != ')';) {
    std::size_t side = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), side);
    if (error != std::errc{}) {
      refuse_npy(file, "its header has a shape that is none: write it with np.save()");
    }
    shape.push_back(side);
    at = static_cast<std::size_t>(end - text.data());
    while (at < text.size() && (text[at] == ',' || text[at] == ' ')) ++at;
  }
  return shape;
}

NpyHeader read_header(const std::string& file, std::istream& in) {
  std::array<char, 8> start{};
  in.read(start.data(), start.size());
  if (!in || !std::string_view(start.data(), start.size()).starts_with(kNpyMagic)) {
    refuse_npy(file, "is no .npy file: write it with np.save()");
  }
  std::array<unsigned char, 4> size{};
  in.read(reinterpret_cast<char*>(size.data()), start[6] == 1 ? 2 : 4);
  const std::size_t bytes = size[0] + (std::size_t{size[1]} << 8U) + (std::size_t{size[2]} << 16U) +
                            (std::size_t{size[3]} << 24U);
  if (!in || bytes > kMostHeader) {
    refuse_npy(file, "its header is damaged: write it with np.save()");
  }
  std::string header(bytes, ' ');
  in.read(header.data(), static_cast<std::streamsize>(bytes));
  if (!in) refuse_npy(file, "its header is cut off: write it again");
  const std::string_view type = value_of(file, header, "'descr'");
  if (!value_of(file, header, "'fortran_order'").starts_with("False")) {
    refuse_npy(file, "its columns come first: save np.ascontiguousarray(array)");
  }
  NpyHeader read{std::string(type.substr(0, 4)), shape_in(file, value_of(file, header, "'shape'"))};
  // '<f4' or '|u1': the order of bytes, and what they are.
  if (type.size() < 5 || type[0] != '\'' || type[4] != '\'' || (type[1] != '<' && type[1] != '|')) {
    refuse_npy(file, "has elements of another type (" + std::string(type.substr(0, 8)) +
                         "): save array.astype(\"float32\")");
  }
  read.kind = read.kind.substr(2);
  return read;
}

std::size_t elements_in(const std::string& file, const Shape& shape, std::size_t width) {
  std::size_t bytes = width;
  for (const std::size_t side : shape) {
    if (__builtin_mul_overflow(bytes, side, &bytes)) {
      refuse_npy(file, "has more elements than there is memory: " + text_of(shape));
    }
  }
  return bytes / width;
}

template <typename Element, typename Number>
void read_as(const std::string& file, std::istream& in, NpyArray<Number>& array) {
  constexpr std::size_t kAtOnce = 1 << 14;  // memory grows with the bytes that are there
  std::size_t left = elements_in(file, array.shape, sizeof(Element));
  std::vector<Element> some(std::min(left, kAtOnce));
  while (left > 0) {
    const std::size_t now = std::min(left, some.size());
    in.read(reinterpret_cast<char*>(some.data()),
            static_cast<std::streamsize>(now * sizeof(Element)));
    if (!in) {
      refuse_npy(file, "ends " + std::to_string(left) + " elements before its shape of " +
                           text_of(array.shape) + " does: write it again");
    }
    for (std::size_t i = 0; i < now; ++i) array.values.push_back(static_cast<Number>(some[i]));
    left -= now;
  }
  if (in.peek() != std::istream::traits_type::eof()) {
    refuse_npy(file,
               "has more bytes than its shape of " + text_of(array.shape) + ": write it again");
  }
}

template <typename Number>
NpyArray<Number> read_array(const std::string& file) {
  using Read = void (*)(const std::string&, std::istream&, NpyArray<Number>&);
  static const std::map<std::string, Read, std::less<>> kKinds{
      {"f4", read_as<float, Number>},         {"f8", read_as<double, Number>},
      {"b1", read_as<std::uint8_t, Number>},  {"u1", read_as<std::uint8_t, Number>},
      {"u2", read_as<std::uint16_t, Number>}, {"u4", read_as<std::uint32_t, Number>},
      {"u8", read_as<std::uint64_t, Number>}, {"i1", read_as<std::int8_t, Number>},
      {"i2", read_as<std::int16_t, Number>},  {"i4", read_as<std::int32_t, Number>},
      {"i8", read_as<std::int64_t, Number>}};
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    refuse_npy(file, std::string("cannot be opened (") + std::strerror(errno) +
                         "): check that it exists and may be read");
  }
  const NpyHeader header = read_header(file, in);
  const auto found = kKinds.find(header.kind);
  if (found == kKinds.end()) {
    refuse_npy(file, "has elements of type " + header.kind + ": save array.astype(\"float32\")");
  }
  if (std::is_integral_v<Number> && header.kind[0] == 'f') {
    refuse_npy(file,
               "has floating-point numbers, and labels are whole ones: save "
               "array.astype(\"int64\"), or give no classes to predict the numbers");
  }
  NpyArray<Number> array{header.shape, {}};
  found->second(file, in, array);
  return array;
}

}  // namespace

NpyArray<float> read_npy(const std::string& file) { return read_array<float>(file); }

NpyArray<std::int64_t> read_npy_integers(const std::string& file) {
  return read_array<std::int64_t>(file);
}

}  // namespace ronde::trainer
