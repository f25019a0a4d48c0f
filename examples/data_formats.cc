// SPDX-License-Identifier: Apache-2.0
// The same small network on data as people have it: files in CIFAR's format, arrays of numpy, a
// folder of pictures of two classes, and the program's own memory. The files are made here, of some
// images of Fashion-MNIST.
#include <png.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <ronde/trainer.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>
using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

namespace {

constexpr Window kConvolution{.side = {3, 3}, .stride = {1, 1}, .padding = {1, 1}};
constexpr Window kHalf{.side = {2, 2}, .stride = {2, 2}, .padding = {0, 0}};

template <typename T>
void write(const std::string& file, const std::string& head, const std::vector<T>& values) {
  std::ofstream out(file, std::ios::binary);
  out << head;
  out.write(reinterpret_cast<const char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(T)));
}

// A label and 3 x 32 x 32 bytes for each image, which lies in the middle of them, in grey.
std::string cifar(const Images& images, const std::string& file) {
  std::vector<std::uint8_t> records(images.size() * 3073, 0);
  for (std::size_t i = 0; i < images.size(); ++i) {
    records[i * 3073] = images.labels[i];
    for (std::size_t at = 0; at < 3 * 784; ++at) {
      const std::size_t place = at / 784 * 1024 + (at % 784 / 28 + 2) * 32 + at % 28 + 2;
      records[i * 3073 + 1 + place] = images.pixels[i * 784 + at % 784];
    }
  }
  write(file, "", records);
  return file;
}

// As np.save() writes it.
template <typename T>
std::string npy(const std::string& shape, const std::vector<T>& values, const std::string& file) {
  std::string head = std::string("{'descr': '") + (sizeof(T) == 1 ? "|u1" : "<f4") +
                     "', 'fortran_order': False, 'shape': (" + shape + "), }";
  head.resize(117, ' ');
  write(file, std::string("\x93NUMPY\x01\0\x76\0", 10) + head + "\n", values);
  return file;
}

std::string pictures(const Images& images, const std::string& folder) {
  for (std::size_t i = 0; i < images.size(); ++i) {
    const std::string of_class = folder + (images.labels[i] == 0 ? "/shirt/" : "/trouser/");
    std::filesystem::create_directories(of_class);
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = image.height = 28;
    image.format = PNG_FORMAT_GRAY;
    png_image_write_to_file(&image, (of_class + std::to_string(i) + ".png").c_str(), 0,
                            &images.pixels[i * 784], 0, nullptr);
  }
  return folder;
}

// A folder of this process alone, until its end.
struct Folder {
  Folder() {
    if (none || mkdtemp(path.data()) == nullptr)
      throw DataError("no folder can be made in that of TMPDIR: set it to one that can be written");
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::error_code none;
  std::string path = (std::filesystem::temp_directory_path(none) / "formats-XXXXXX").string();
};

int work(Strategy& strategy, const std::string& format, std::size_t epochs, std::uint64_t seed) {
  const bool two = format == "pictures";
  Images images = on_all_processes(strategy, [] { return load_fashion_mnist(); }).train;
  images.mean = 0.0F;
  images.deviation = 1.0F;
  if (two) images = select_classes(images, {0, 1});
  images.labels.resize(two ? 400 : 3000);
  images.pixels.resize(images.size() * 784);
  std::vector<float> numbers(images.pixels.begin(), images.pixels.end());
  for (float& number : numbers) number /= 255.0F;
  std::vector<std::int32_t> labels(images.labels.begin(), images.labels.end());
  const Folder made;
  const std::string& folder = made.path;
  const Dataset data = [&] {
    const std::string count = std::to_string(images.size());
    if (format == "memory") return Dataset::from_memory({1, 28, 28}, numbers, labels, 10);
    if (format == "npy") {
      return Dataset::from_npy(npy(count + ", 1, 28, 28", numbers, folder + "/inputs.npy"),
                               npy(count + ",", images.labels, folder + "/labels.npy"), 10);
    }
    Images read = two ? read_pictures(pictures(images, folder), 1).images
                      : read_cifar({cifar(images, folder + "/data.bin")});
    labels.assign(read.labels.begin(), read.labels.end());
    return Dataset::from_images(std::move(read), ImageShape::kImage);
  }();
  Sequential model(
      {convolution(8, kConvolution).then(relu), max_pool(kHalf), flatten, dense(two ? 1 : 10)},
      seed);
  model.compile(adam(0.002), two ? two_classes_loss : classification_loss);
  const Dataset batches = data.shuffle(seed).batch(60);
  const double before = model.evaluate(data.batch(100)).loss();
  model.fit(batches, {.epochs = epochs});
  const Metrics after = model.evaluate(data.batch(100));
  const Predictions scores = model.predict(data.batch(100));
  if (!strategy.is_chief()) return 0;
  std::printf("format=%s replicas=%zu loss_before=%.4f loss=%.4f accuracy=%.4f", format.c_str(),
              strategy.num_replicas_in_sync(), before, after.loss(), after.accuracy());
  if (two) std::printf(" auc=%.4f", area_under_curve(scores.outputs, labels));
  std::printf(" param_hash=%s\n", model.parameter_hash().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string format = "cifar";
  std::size_t epochs = 3;
  std::uint64_t seed = 1;
  FlagTable flags("data_formats", "Trains a small network on data in one of several formats.");
  flags.add({{"format", one_of(format, {"cifar", "npy", "pictures", "memory"}), "what it reads"},
             {"epochs", whole(epochs, 1, 1000), "passes over the data"},
             {"seed", whole(seed, 0, UINT64_MAX), "seed of the first weights and of the order"}});
  return run_program(argc, argv, flags,
                     [&](auto& here) { return work(here, format, epochs, seed); });
}
