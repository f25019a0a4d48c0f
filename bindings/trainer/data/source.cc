// SPDX-License-Identifier: Apache-2.0
// Samples from images, arrays and generators.
#include "bindings/trainer/data/source.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "bindings/trainer/data/idx.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

constexpr std::size_t kMostClasses = std::numeric_limits<std::int32_t>::max();

void check_label(std::size_t index, std::int64_t label, std::size_t classes) {
  if (static_cast<std::size_t>(label) < classes) return;  // a negative one is too large
  throw DataError("sample " + std::to_string(index) + " has the label " + std::to_string(label) +
                  ", expected " + labels_text(classes) + ": correct it, or give more classes");
}

// What a sample's room holds until the generator has written it: a NaN that no arithmetic makes.
constexpr std::uint32_t kUnwritten = 0x7FD1CE55;
constexpr std::int32_t kNoLabel = std::numeric_limits<std::int32_t>::min();

void require_written(const char* what, std::span<const float> values, std::size_t index) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(values[i]) != kUnwritten) continue;
    throw DataError("the generator has not written number " + std::to_string(i) + " of the " +
                    what + " of sample " + std::to_string(index) + ": write all of each sample");
  }
}

class ImageSource final : public Source {
 public:
  ImageSource(std::shared_ptr<const Images> images, SampleFormat format)
      : Source(std::move(format), images->size()), images_(std::move(images)) {}

  bool write(std::uint64_t /*epoch*/, std::size_t index, const SampleRoom& room) const override {
    const std::uint8_t* const from = images_->pixels.data() + index * room.input.size();
    float* const to = room.input.data();
    const float scale = images_->scale();
    const float shift = images_->shift();
    for (std::size_t i = 0; i < room.input.size(); ++i) {
      to[i] = static_cast<float>(from[i]) * scale + shift;
    }
    if (room.label != nullptr) *room.label = images_->labels[index];
    return true;
  }

 private:
  std::shared_ptr<const Images> images_;
};

class ArraySource final : public Source {
 public:
  ArraySource(SampleFormat format, std::size_t samples, Arrays arrays)
      : Source(std::move(format), samples), arrays_(std::move(arrays)) {
    if (arrays_.inputs.size() != samples * features() ||
        arrays_.targets.size() != samples * this->format().targets) {
      throw DataError("there are " + std::to_string(arrays_.inputs.size()) + " input numbers and " +
                      std::to_string(samples) + " labels or targets, and a sample is " +
                      text_of(this->format().shape) + ": give as many samples of both");
    }
    for (std::size_t i = 0; i < arrays_.labels.size(); ++i) {
      check_label(i, arrays_.labels[i], this->format().classes);
    }
  }

  bool write(std::uint64_t /*epoch*/, std::size_t index, const SampleRoom& room) const override {
    const auto copy = [index](std::span<const float> from, std::span<float> to) {
      std::ranges::copy(from.subspan(index * to.size(), to.size()), to.begin());
    };
    copy(arrays_.inputs, room.input);
    if (room.label != nullptr) *room.label = arrays_.labels[index];
    copy(arrays_.targets, room.targets);
    return true;
  }

 private:
  Arrays arrays_;
};

class GeneratorSource final : public Source {
 public:
  GeneratorSource(SampleFormat format, SampleGenerator generator,
                  std::optional<std::size_t> samples)
      : Source(std::move(format), samples), generator_(std::move(generator)) {
    if (!generator_) throw TrainerError("the generator is empty: give a function");
  }

  bool write(std::uint64_t epoch, std::size_t index, const SampleRoom& room) const override {
    std::ranges::fill(room.input, std::bit_cast<float>(kUnwritten));
    std::ranges::fill(room.targets, std::bit_cast<float>(kUnwritten));
    if (room.label != nullptr) *room.label = kNoLabel;
    if (!generator_(epoch, index, room)) {
      if (!size()) return false;
      throw DataError("the generator has no sample " + std::to_string(index) + " of the " +
                      std::to_string(*size()) +
                      " that were announced: announce as many as it has, or none");
    }
    if (room.label != nullptr && *room.label == kNoLabel) {
      throw DataError("the generator has not written the label of sample " + std::to_string(index) +
                      ": write all of each sample, and labels below its classes");
    }
    if (room.label != nullptr) check_label(index, *room.label, format().classes);
    require_written("input", room.input, index);
    require_written("targets", room.targets, index);
    return true;
  }

 private:
  SampleGenerator generator_;
};

}  // namespace

Source::Source(SampleFormat format, std::optional<std::size_t> size)
    : format_(std::move(format)), features_(elements_of(format_.shape)), size_(size) {
  if (features_ == 0) {
    throw TrainerError("a sample of " + text_of(format_.shape) +
                       " has no elements: give it sides of at least 1");
  }
  if (format_.classes > kMostClasses) {
    throw TrainerError("there are " + std::to_string(format_.classes) + " classes: use at most " +
                       std::to_string(kMostClasses));
  }
  constexpr std::size_t kMostSamples = std::numeric_limits<std::uint32_t>::max();
  if (size_ && *size_ > kMostSamples) {
    throw TrainerError("the data set has " + std::to_string(*size_) + " samples: use at most " +
                       std::to_string(kMostSamples));
  }
}

std::shared_ptr<const Source> image_source(std::shared_ptr<const Images> images, ImageShape shape) {
  SampleFormat format;
  format.shape = shape == ImageShape::kFlat
                     ? Shape{images->features()}
                     : Shape{images->channels, images->height, images->width};
  format.classes = images->classes;
  if (images->pixels.size() != images->size() * images->features()) {
    throw DataError("there are " + std::to_string(images->pixels.size()) + " pixels for " +
                    std::to_string(images->size()) + " labels of images of " +
                    text_of(format.shape) + ": give as many images as labels");
  }
  for (std::size_t i = 0; i < images->size(); ++i) {
    check_label(i, images->labels[i], images->classes);
  }
  return std::make_shared<ImageSource>(std::move(images), std::move(format));
}

Arrays owned_arrays(std::vector<float> inputs, std::vector<std::int32_t> labels,
                    std::vector<float> targets) {
  struct Kept {
    std::vector<float> inputs;
    std::vector<std::int32_t> labels;
    std::vector<float> targets;
  };
  const auto kept =
      std::make_shared<const Kept>(Kept{std::move(inputs), std::move(labels), std::move(targets)});
  return {kept->inputs, kept->labels, kept->targets, kept};
}

std::shared_ptr<const Source> array_source(SampleFormat format, Arrays arrays) {
  const std::size_t samples =
      format.targets == 0 ? arrays.labels.size() : arrays.targets.size() / format.targets;
  return std::make_shared<ArraySource>(std::move(format), samples, std::move(arrays));
}

std::shared_ptr<const Source> generator_source(SampleFormat format, SampleGenerator generator,
                                               std::optional<std::size_t> samples) {
  return std::make_shared<GeneratorSource>(std::move(format), std::move(generator), samples);
}

}  // namespace ronde::trainer
