// SPDX-License-Identifier: Apache-2.0
// PNG files through libpng's simplified interface, and records of CIFAR.
#include "bindings/trainer/data/pictures.h"

#include <png.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <span>
#include <system_error>
#include <utility>

#include "bindings/trainer/data/idx.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

namespace fs = std::filesystem;

// A picture's row may not be longer: a header of a few bytes can promise any size.
constexpr std::size_t kMostSide = 1 << 14;
constexpr std::size_t kCifarSide = 32;
constexpr std::size_t kCifarImage = 3 * kCifarSide * kCifarSide;

// Names in their order, so that every rank has the same labels.
std::vector<fs::path> entries_of(const fs::path& folder, bool folders) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const fs::path& path = at->path();
    if (path.filename().string().starts_with('.')) continue;
    std::error_code ignored;
    const bool wanted = folders ? fs::is_directory(path, ignored)
                                : path.extension() == ".png" || path.extension() == ".PNG";
    if (wanted) found.push_back(path);
  }
  if (error) {
    throw DataError(folder.string() + ": cannot be read (" + error.message() +
                    "): give a folder that has a folder of pictures for each class");
  }
  std::ranges::sort(found);
  return found;
}

// libpng's bytes go image by image, pixel by pixel; ours channel by channel.
void append_planes(std::span<const std::uint8_t> pixels, std::size_t channels, Images& images) {
  for (std::size_t channel = 0; channel < channels; ++channel) {
    for (std::size_t i = channel; i < pixels.size(); i += channels) {
      images.pixels.push_back(pixels[i]);
    }
  }
}

class Png {
 public:
  explicit Png(std::string file) : file_(std::move(file)) {
    image_.version = PNG_IMAGE_VERSION;
    if (png_image_begin_read_from_file(&image_, file_.c_str()) == 0) fail();
  }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;
  ~Png() { png_image_free(&image_); }

  [[nodiscard]] std::size_t height() const { return image_.height; }
  [[nodiscard]] std::size_t width() const { return image_.width; }

  std::vector<std::uint8_t> read(std::size_t channels) {
    image_.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    std::vector<std::uint8_t> pixels(height() * width() * channels);
    const png_color black{};  // behind what is transparent
    if (png_image_finish_read(&image_, &black, pixels.data(), 0, nullptr) == 0) fail();
    return pixels;
  }

 private:
  [[noreturn]] void fail() const {
    throw DataError(file_ + ": cannot be read as PNG (" + image_.message + "): replace the file");
  }

  std::string file_;
  png_image image_{};
};

void append_picture(const fs::path& file, std::size_t channels, Images& images) {
  Png picture(file.string());
  const auto size = std::to_string(picture.height()) + " x " + std::to_string(picture.width());
  if (std::max(picture.height(), picture.width()) > kMostSide) {
    throw DataError(file.string() + ": is " + size + " pixels, at most " +
                    std::to_string(kMostSide) + " a side are read: scale it down");
  }
  if (images.height == 0) {
    images.height = picture.height();
    images.width = picture.width();
  }
  if (picture.height() != images.height || picture.width() != images.width) {
    throw DataError(file.string() + ": is " + size + " pixels, and those before it are " +
                    std::to_string(images.height) + " x " + std::to_string(images.width) +
                    ": scale all pictures to one size");
  }
  append_planes(picture.read(channels), channels, images);
}

}  // namespace

Pictures read_pictures(const std::string& folder, std::size_t channels) {
  if (channels != 1 && channels != 3) {
    throw TrainerError("pictures have " + std::to_string(channels) + " channels: use 1 or 3");
  }
  const std::vector<fs::path> classes = entries_of(folder, true);
  if (classes.empty() || classes.size() > std::numeric_limits<std::uint8_t>::max()) {
    throw DataError(folder + ": has " + std::to_string(classes.size()) +
                    " folders, expected 1 to 255: make one for each class");
  }
  Pictures read;
  read.images.channels = channels;
  read.images.classes = classes.size();
  for (const fs::path& one : classes) {
    const std::vector<fs::path> files = entries_of(one, false);
    if (files.empty()) {
      throw DataError(one.string() + ": has no .png files: remove the folder, or fill it");
    }
    for (const fs::path& file : files) {
      append_picture(file, channels, read.images);
      read.images.labels.push_back(static_cast<std::uint8_t>(read.classes.size()));
    }
    read.classes.push_back(one.filename().string());
  }
  return read;
}

Images read_cifar(const std::vector<std::string>& files, std::size_t classes) {
  Images images;
  images.channels = 3;
  images.height = images.width = kCifarSide;
  images.classes = classes;
  for (const std::string& file : files) {
    std::ifstream in(file, std::ios::binary);
    if (!in) throw DataError(file + ": cannot be opened: check that it exists and may be read");
    if (in.peek() == std::ifstream::traits_type::eof()) {
      throw DataError(file + ": has no images: take the binary version");
    }
    std::vector<std::uint8_t> record(1 + kCifarImage);
    while (in.peek() != std::ifstream::traits_type::eof()) {
      const std::size_t number = images.size();
      in.read(reinterpret_cast<char*>(record.data()), static_cast<std::streamsize>(record.size()));
      if (!in) {
        throw DataError(file + ": ends within image " + std::to_string(number) + ": a record has " +
                        std::to_string(record.size()) + " bytes, take the binary version");
      }
      if (record.front() >= classes) {
        throw DataError(file + ": image " + std::to_string(number) + " has the label " +
                        std::to_string(record.front()) + ", expected " + labels_text(classes) +
                        ": take the binary version, or give more classes");
      }
      images.labels.push_back(record.front());
      images.pixels.insert(images.pixels.end(), record.begin() + 1, record.end());
    }
  }
  return images;
}

}  // namespace ronde::trainer
