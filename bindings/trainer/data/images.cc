// SPDX-License-Identifier: Apache-2.0
// Images from files, and some of their classes.
#include "bindings/trainer/data/images.h"

#include <utility>

#include "bindings/trainer/data/idx.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

Images read_images(const std::string& images_file, const std::string& labels_file,
                   std::size_t classes) {
  IdxImages read = read_idx_images(images_file);
  Images images;
  images.labels = read_idx_labels(labels_file, classes);
  if (images.labels.size() != read.count) {
    throw DataError(labels_file + ": byte 4: " + std::to_string(images.labels.size()) +
                    " labels, expected " + std::to_string(read.count) + " as " + images_file +
                    " has images: take both files from one data set");
  }
  images.height = read.rows;
  images.width = read.columns;
  images.classes = classes;
  images.pixels = std::move(read.pixels);
  return images;
}

Images select_classes(const Images& images, const std::array<std::size_t, 2>& classes) {
  for (const std::size_t label : classes) {
    if (label >= images.classes) {
      throw TrainerError("the images have no class " + std::to_string(label) + ": use " +
                         labels_text(images.classes));
    }
  }
  if (classes[0] == classes[1]) {
    throw TrainerError("class " + std::to_string(classes[0]) +
                       " is given twice: choose two different classes");
  }
  Images chosen{.channels = images.channels,
                .height = images.height,
                .width = images.width,
                .classes = classes.size(),
                .pixels = {},
                .labels = {},
                .mean = images.mean,
                .deviation = images.deviation};
  for (std::size_t i = 0; i < images.size(); ++i) {
    const std::size_t label = images.labels[i];
    if (label != classes[0] && label != classes[1]) continue;
    const auto first = images.pixels.begin() + static_cast<std::ptrdiff_t>(i * images.features());
    chosen.pixels.insert(chosen.pixels.end(), first,
                         first + static_cast<std::ptrdiff_t>(images.features()));
    chosen.labels.push_back(label == classes[0] ? 0 : 1);
  }
  return chosen;
}

}  // namespace ronde::trainer
