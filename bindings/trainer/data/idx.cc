// SPDX-License-Identifier: Apache-2.0
// Reading through zlib, and the checks of the header and the elements.
#include "bindings/trainer/data/idx.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

constexpr std::uint32_t kImageMagic = 0x00000803;  // unsigned bytes, three dimensions
constexpr std::uint32_t kLabelMagic = 0x00000801;  // unsigned bytes, one dimension
constexpr std::size_t kMostElements = std::size_t{1} << 40;
// Memory grows with the bytes that are really there, whatever a damaged header promises.
constexpr std::size_t kReadBytes = std::size_t{1} << 18;
// Memory for so many times the bytes of the file is there at once: what grows is copied again and
// again.
constexpr std::size_t kExpected = 4;

std::string hex(std::uint32_t value) {
  char digits[11];
  std::snprintf(digits, sizeof digits, "0x%08x", value);
  return digits;
}

// A file that is read from its start to its end, through zlib, which passes plain files on as they
// are.
class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {
    errno = 0;
    file_.reset(gzopen(name.c_str(), "rb"));
    if (file_ == nullptr) {
      throw DataError(name_ + ": cannot be opened (" + std::strerror(errno) +
                      "): check that it exists and may be read");
    }
    gzbuffer(file_.get(), kReadBytes);
    // zlib decides by the first two bytes, and would call a damaged start "plain".
    const bool compressed = name_.ends_with(".gz");
    if (compressed && gzdirect(file_.get()) != 0) {
      fail("no gzip header, which a name ending in .gz promises: replace the file");
    }
  }

  // Fills as much of `bytes` as the file has; returns how much that is.
  std::size_t read(std::span<std::uint8_t> bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const std::size_t part = std::min(bytes.size() - done, kReadBytes);
      const int got = gzread(file_.get(), bytes.data() + done, static_cast<unsigned>(part));
      if (got < 0) fail_reading();
      done += static_cast<std::size_t>(got);
      offset_ += static_cast<std::size_t>(got);
      if (static_cast<std::size_t>(got) < part) {
        check_end();
        break;
      }
    }
    return done;
  }

  // How many elements are likely, of the `count` that the header promises.
  std::size_t likely(std::size_t count) const {
    std::error_code failed;
    const std::uintmax_t bytes = std::filesystem::file_size(name_, failed);
    if (failed) return 0;  // such as a pipe's
    return bytes < count / kExpected ? bytes * kExpected : count;
  }

  [[noreturn]] void fail_at(std::size_t offset, const std::string& message) const {
    throw DataError(name_ + ": byte " + std::to_string(offset) + ": " + message);
  }
  [[noreturn]] void fail(const std::string& message) const { fail_at(offset_, message); }

 private:
  struct Close {
    void operator()(gzFile_s* file) const { gzclose(file); }
  };

  // A short read is the end of the file, or of what could be decompressed.
  void check_end() {
    int code = Z_OK;
    gzerror(file_.get(), &code);
    if (code != Z_OK) fail_reading();
  }

  [[noreturn]] void fail_reading() {
    int code = Z_OK;
    std::string text = gzerror(file_.get(), &code);
    if (text.starts_with(name_ + ": ")) text.erase(0, name_.size() + 2);
    const std::string place =
        " at byte " + std::to_string(gzoffset(file_.get())) + " of the compressed file";
    if (code == Z_BUF_ERROR) {
      fail("the compressed data ends too early," + place +
           ", expected more: the file is truncated, replace it");
    }
    if (code == Z_ERRNO) {
      fail(std::string("cannot be read (") + std::strerror(errno) +
           "): expected a file that may be read");
    }
    fail("the data from here on is corrupt, found" + place + " (" + text +
         "), expected valid gzip data: replace the file");
  }

  std::string name_;
  std::unique_ptr<gzFile_s, Close> file_;
  std::size_t offset_ = 0;  // in the data, that is after decompression
};

// The next number of the header.
std::uint32_t read_number(Reader& reader, const char* what) {
  std::array<std::uint8_t, 4> bytes{};
  if (reader.read(bytes) < bytes.size()) {
    reader.fail(std::string("the file ends inside its header, where ") + what +
                " was expected: the file is truncated, replace it");
  }
  std::uint32_t value = 0;
  for (const std::uint8_t byte : bytes) value = (value << 8) | byte;
  return value;
}

void read_magic(Reader& reader, std::uint32_t expected) {
  const std::uint32_t found = read_number(reader, "the magic number");
  if (found == expected) return;
  const bool swapped = found == kImageMagic || found == kLabelMagic;
  const std::string wanted = expected == kImageMagic ? "images" : "labels";
  const std::string other = expected == kImageMagic ? "labels" : "images";
  const std::string end =
      "magic number " + hex(found) + ", expected " + hex(expected) + " (" + wanted + "): ";
  reader.fail_at(0, end + (swapped ? "this is a file of " + other +
                                         ", the files of images and labels seem to be swapped, "
                                         "swap them back"
                                   : "this is no IDX file of " + wanted + ", replace it"));
}

// A dimension, which begins at byte `offset`.
std::size_t read_dimension(Reader& reader, std::size_t offset, const char* what,
                           std::size_t largest) {
  const std::size_t value = read_number(reader, what);
  if (value == 0 || value > largest) {
    reader.fail_at(offset, std::string(what) + " is " + std::to_string(value) + ", expected 1 to " +
                               std::to_string(largest) +
                               ": the header is damaged, replace the file");
  }
  return value;
}

// The bytes after a header of `header` bytes: exactly `count` of them.
std::vector<std::uint8_t> read_elements(Reader& reader, std::size_t header, std::size_t count) {
  std::vector<std::uint8_t> elements;
  elements.reserve(reader.likely(count));
  while (elements.size() < count) {
    const std::size_t before = elements.size();
    const std::size_t part = std::min(count - before, kReadBytes);
    elements.resize(before + part);
    if (reader.read(std::span(elements).subspan(before)) < part) {
      reader.fail("the file ends here, expected " + std::to_string(header + count) +
                  " bytes as its header says: the file is truncated, replace it");
    }
  }
  // Also makes zlib compare the checksum at the end.
  std::array<std::uint8_t, 1> extra{};
  if (reader.read(extra) != 0) {
    reader.fail_at(header + count, "the data goes on, expected its end after " +
                                       std::to_string(header + count) +
                                       " bytes as its header says: replace the file");
  }
  return elements;
}

}  // namespace

std::string labels_text(std::size_t classes) {
  if (classes == 0) return "none, since there are 0 classes";
  return "0 to " + std::to_string(classes - 1);
}

IdxImages read_idx_images(const std::string& file) {
  constexpr std::size_t kHeader = 16;
  constexpr std::size_t kMostPixels = 1 << 14;
  Reader reader(file);
  read_magic(reader, kImageMagic);
  IdxImages images;
  images.count = read_dimension(reader, 4, "the number of images", UINT32_MAX);
  images.rows = read_dimension(reader, 8, "the height of the images", kMostPixels);
  images.columns = read_dimension(reader, 12, "the width of the images", kMostPixels);
  if (images.count > kMostElements / (images.rows * images.columns)) {
    reader.fail_at(4, "the header promises " + std::to_string(images.count) + " images of " +
                          std::to_string(images.rows) + " x " + std::to_string(images.columns) +
                          ", expected at most " + std::to_string(kMostElements) +
                          " pixels: the header is damaged, replace the file");
  }
  images.pixels = read_elements(reader, kHeader, images.count * images.rows * images.columns);
  return images;
}

std::vector<std::uint8_t> read_idx_labels(const std::string& file, std::size_t classes) {
  constexpr std::size_t kHeader = 8;
  Reader reader(file);
  read_magic(reader, kLabelMagic);
  const std::size_t count = read_dimension(reader, 4, "the number of labels", UINT32_MAX);
  std::vector<std::uint8_t> labels = read_elements(reader, kHeader, count);
  const auto wrong = std::find_if(labels.begin(), labels.end(),
                                  [classes](std::uint8_t label) { return label >= classes; });
  if (wrong != labels.end()) {
    reader.fail_at(kHeader + static_cast<std::size_t>(wrong - labels.begin()),
                   "label " + std::to_string(*wrong) + ", expected " + labels_text(classes) +
                       ": the file is damaged, replace it");
  }
  return labels;
}

}  // namespace ronde::trainer
