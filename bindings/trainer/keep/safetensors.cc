// SPDX-License-Identifier: Apache-2.0
// The header as JSON, and the validation of an untrusted header.
#include "bindings/trainer/keep/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

static_assert(std::endian::native == std::endian::little, "values are written as they lie");

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
constexpr std::size_t kHeaderAlignment = 8;
constexpr std::size_t kMostHeader = 100'000'000;  // as in the Python library
const char* const kMetadata = "__metadata__";

// Where a tensor lies in the data of a file, which begins behind the header.
struct Place {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::string name;
  Shape shape;
};

// Untrusted text: it is truncated, and made printable.
std::string quoted(const std::string& text) {
  constexpr std::size_t kMost = 40;
  using OnBadUtf8 = nlohmann::json::error_handler_t;
  const std::string shown = text.size() <= kMost ? text : text.substr(0, kMost) + "...";
  return nlohmann::json(shown).dump(-1, ' ', false, OnBadUtf8::replace);
}

std::string header_of(std::span<const StateTensor> tensors,
                      const std::map<std::string, std::string>& metadata) {
  auto header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::size_t begin = 0;
  for (const StateTensor& tensor : tensors) {
    if (elements_of(tensor.shape) != tensor.values.size()) {
      throw TrainerError("tensor " + tensor.name + " has " + std::to_string(tensor.values.size()) +
                         " elements, but its shape is " + text_of(tensor.shape));
    }
    auto& entry = header[tensor.name];
    if (!entry.is_null() || tensor.name == kMetadata) {
      throw TrainerError("tensor " + tensor.name + ": this name is taken: choose another");
    }
    const std::size_t end = begin + tensor.values.size_bytes();
    entry = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  return text;
}

// Every error begins with the file.
class TensorsReader {
 public:
  TensorsReader(std::string_view bytes, const std::string& file) : file_(file) {
    if (bytes.size() < kLengthBytes) fail("the file ends in its first 8 bytes: it is truncated");
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), kLengthBytes);
    if (length > std::min(bytes.size() - kLengthBytes, kMostHeader)) {
      fail("the header has " + std::to_string(length) + " bytes, the file " +
           std::to_string(bytes.size()) + ": it is truncated, or no safetensors file");
    }
    header_ = bytes.substr(kLengthBytes, length);
    data_ = bytes.substr(kLengthBytes + length);
  }

  // Together they cover the data.
  TensorsInBytes read() const {
    // A header has three levels. One of a million would take gigabytes, so parsing stops there.
    const auto refuse_depth = [this](int depth, auto, const auto&) {
      constexpr int kMostLevels = 8;
      if (depth > kMostLevels) fail("the header is nested too deeply: the file is damaged");
      return true;
    };
    const auto header = nlohmann::json::parse(header_, refuse_depth, /*allow_exceptions=*/false);
    if (!header.is_object()) fail("the header is no JSON object: the file is damaged");
    TensorsInBytes tensors;
    std::vector<Place> places;
    for (const auto& [name, entry] : header.items()) {
      if (name == kMetadata) continue;
      Place place = place_of(name, entry);
      tensors[name] = {std::move(place.shape), data_.substr(place.begin, place.end - place.begin)};
      places.push_back(std::move(place));
    }
    std::ranges::sort(places, {}, [](const Place& one) { return std::tie(one.begin, one.end); });
    std::size_t end = 0;
    for (const Place& place : places) {
      if (place.begin != end) {
        fail("tensor " + quoted(place.name) + " begins at byte " + std::to_string(place.begin) +
             " of the data, expected " + std::to_string(end) +
             ": tensors overlap, or leave a gap: the file is damaged");
      }
      end = place.end;
    }
    if (end != data_.size()) {
      fail("the tensors have " + std::to_string(end) + " bytes, but " +
           std::to_string(data_.size()) + " follow the header: the file is damaged");
    }
    return tensors;
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw Damaged(file_ + ": " + message);
  }

  Place place_of(const std::string& name, const nlohmann::json& entry) const {
    const std::string tensor = "tensor " + quoted(name);
    if (!entry.is_object()) fail(tensor + " is not described by an object");
    const auto dtype = entry.find("dtype");
    if (dtype == entry.end() || *dtype != "F32") {
      fail(tensor + " has dtype " +
           (dtype == entry.end() ? "(none)"
            : dtype->is_string() ? quoted(dtype->get<std::string>())
                                 : std::string("of type ") + dtype->type_name()) +
           ", only F32 can be read");
    }
    const auto offsets = counts_of(tensor, entry, "data_offsets");
    Place place{0, 0, name, counts_of(tensor, entry, "shape")};
    if (offsets.size() == 2) std::tie(place.begin, place.end) = std::tie(offsets[0], offsets[1]);
    if (offsets.size() != 2 || place.begin > place.end || place.end > data_.size()) {
      fail(tensor + " does not lie in the " + std::to_string(data_.size()) +
           " bytes that follow the header: the file is truncated or damaged");
    }
    std::size_t bytes = sizeof(float);
    for (const std::size_t side : place.shape) {
      if (__builtin_mul_overflow(bytes, side, &bytes)) fail(tensor + " is too large: damaged");
    }
    if (bytes != place.end - place.begin) {
      fail(tensor + " is " + text_of(place.shape) + ", but has " +
           std::to_string(place.end - place.begin) + " bytes: the file is damaged");
    }
    return place;
  }

  std::vector<std::size_t> counts_of(const std::string& tensor, const nlohmann::json& entry,
                                     const char* key) const {
    const auto found = entry.find(key);
    const auto is_count = [](const nlohmann::json& count) { return count.is_number_unsigned(); };
    if (found == entry.end() || !found->is_array() ||
        !std::all_of(found->begin(), found->end(), is_count)) {
      fail(tensor + " has no " + key + " of whole numbers: the file is damaged");
    }
    return found->get<std::vector<std::size_t>>();
  }

  std::string file_;
  std::string_view header_;
  std::string_view data_;
};

}  // namespace

std::string to_safetensors(std::span<const StateTensor> tensors,
                           const std::map<std::string, std::string>& metadata, std::string memory) {
  std::string header;
  try {
    header = header_of(tensors, metadata);
  } catch (const nlohmann::json::exception& error) {
    throw TrainerError(std::string("a name of a tensor is no text in UTF-8: ") + error.what());
  }
  std::size_t size = kLengthBytes + header.size();
  for (const StateTensor& tensor : tensors) size += tensor.values.size_bytes();
  std::string bytes = std::move(memory);
  bytes.clear();
  bytes.reserve(size);
  const std::uint64_t length = header.size();
  bytes.append(reinterpret_cast<const char*>(&length), kLengthBytes).append(header);
  for (const StateTensor& tensor : tensors) {
    bytes.append(reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size_bytes());
  }
  return bytes;
}

TensorsInBytes from_safetensors(std::string_view bytes, const std::string& file) {
  return TensorsReader(bytes, file).read();
}

}  // namespace ronde::trainer
