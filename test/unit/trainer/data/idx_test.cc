// SPDX-License-Identifier: Apache-2.0
// The IDX reader: good files, and what it says about each kind of bad one.
#include "bindings/trainer/data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/random.h"
#include "test/unit/trainer/data/data_files.h"

namespace ronde::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <typename Read>
std::string error_of_read(Read&& read) {
  try {
    read();
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

class Idx : public DataFiles {
 protected:
  std::string image_error(const std::string& name, const Bytes& bytes) {
    const std::string path = write(name, bytes);
    return error_of_read([&] { read_idx_images(path); });
  }
  std::string label_error(const std::string& name, const Bytes& bytes) {
    const std::string path = write(name, bytes);
    return error_of_read([&] { read_idx_labels(path, 10); });
  }
};

TEST_F(Idx, ReadsPlainAndCompressedFiles) {
  for (const char* name : {"images", "images.gz"}) {
    const IdxImages images = read_idx_images(write(name, image_bytes(3, 4, 5)));
    EXPECT_EQ(images.count, 3U);
    EXPECT_EQ(images.rows, 4U);
    EXPECT_EQ(images.columns, 5U);
    ASSERT_EQ(images.pixels.size(), 60U);
    EXPECT_EQ(images.pixels[59], static_cast<std::uint8_t>(59 * 7));
  }
  for (const char* name : {"labels", "labels.gz"}) {
    EXPECT_THAT(read_idx_labels(write(name, label_bytes(3)), 10), testing::ElementsAre(0, 1, 2));
  }
}

TEST_F(Idx, ReadsFilesLargerThanItsSteps) {
  const IdxImages images = read_idx_images(write("large.gz", image_bytes(700, 28, 28)));
  ASSERT_EQ(images.pixels.size(), 548800U);
  EXPECT_EQ(images.pixels.back(), static_cast<std::uint8_t>(548799 * 7));
}

TEST_F(Idx, MissingFile) {
  EXPECT_THAT(error_of_read([&] { read_idx_images(folder_ + "/none.gz"); }),
              AllOf(HasSubstr("none.gz: cannot be opened"), HasSubstr("check that it exists")));
}

TEST_F(Idx, DirectoryInPlaceOfAFile) {
  EXPECT_THAT(error_of_read([&] { read_idx_images(folder_); }), HasSubstr("cannot be read"));
}

TEST_F(Idx, SwappedFiles) {
  EXPECT_THAT(image_error("images.gz", label_bytes(3)),
              AllOf(HasSubstr("images.gz: byte 0:"), HasSubstr("0x00000801, expected 0x00000803"),
                    HasSubstr("swapped")));
  EXPECT_THAT(label_error("labels.gz", image_bytes(1, 2, 2)),
              AllOf(HasSubstr("labels.gz: byte 0:"), HasSubstr("swapped")));
}

TEST_F(Idx, AnotherKindOfFile) {
  EXPECT_THAT(image_error("images", big_endian({0x12345678, 1, 1, 1})),
              AllOf(HasSubstr("byte 0:"), HasSubstr("0x12345678"), HasSubstr("no IDX file")));
  const std::string path = folder_ + "/images.gz";
  write_raw(path, image_bytes(1, 2, 2));
  EXPECT_THAT(error_of_read([&] { read_idx_images(path); }),
              AllOf(HasSubstr("byte 0:"), HasSubstr("no gzip header")));
}

TEST_F(Idx, EveryTruncationOfAPlainFile) {
  const Bytes whole = image_bytes(2, 3, 3);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const std::string error = image_error("images", part);
    EXPECT_THAT(error, HasSubstr("truncated, replace it")) << size;
    if (size >= 16) {
      EXPECT_THAT(error, AllOf(HasSubstr("byte " + std::to_string(size) + ":"),
                               HasSubstr("expected 34 bytes")));
    }
  }
}

TEST_F(Idx, EveryTruncationOfACompressedFile) {
  const std::string path = write("images.gz", image_bytes(2, 3, 3));
  const Bytes whole = read_raw(path);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_raw(path, Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
    const std::string error = error_of_read([&] { read_idx_images(path); });
    EXPECT_THAT(error, AllOf(HasSubstr("images.gz: byte "), HasSubstr("replace"))) << size;
  }
}

TEST_F(Idx, AFlippedBitNeverChangesWhatIsRead) {
  Bytes noise = image_bytes(2, 8, 8);
  Generator generator(3);
  for (std::size_t i = 16; i < noise.size(); ++i) {
    noise[i] = static_cast<std::uint8_t>(generator.next());
  }
  const std::string path = write("images.gz", noise);
  const Bytes whole = read_raw(path);
  constexpr std::size_t kGzipHeader = 10;  // it holds a time and a system, which nobody checks
  for (std::size_t i = kGzipHeader; i < whole.size(); ++i) {
    Bytes damaged = whole;
    damaged[i] = static_cast<std::uint8_t>(damaged[i] ^ 0x10U);
    write_raw(path, damaged);
    // A few bits of gzip are padding: without an error, the data must be what it was.
    Bytes pixels;
    const std::string error = error_of_read([&] { pixels = read_idx_images(path).pixels; });
    if (!pixels.empty()) {
      EXPECT_TRUE(std::equal(pixels.begin(), pixels.end(), noise.begin() + 16)) << i;
    } else {
      EXPECT_THAT(error, HasSubstr("images.gz: byte ")) << i;
    }
  }
}

TEST_F(Idx, CorruptDataNamesBothPlaces) {
  const std::string path = write("images.gz", image_bytes(2, 3, 3));
  Bytes damaged = read_raw(path);
  damaged[damaged.size() - 6] ^= 1U;  // the checksum
  write_raw(path, damaged);
  EXPECT_THAT(error_of_read([&] { read_idx_images(path); }),
              AllOf(HasSubstr("images.gz: byte 0: the data from here on is corrupt"),
                    HasSubstr("of the compressed file (incorrect data check)"),
                    HasSubstr("expected valid gzip data: replace the file")));
}

TEST_F(Idx, DataAfterTheEnd) {
  Bytes longer = image_bytes(2, 3, 3);
  longer.push_back(0);
  EXPECT_THAT(image_error("images", longer),
              AllOf(HasSubstr("byte 34: the data goes on"), HasSubstr("expected")));
}

TEST_F(Idx, DimensionsOutOfRange) {
  EXPECT_THAT(image_error("images", big_endian({0x803, 0, 2, 2})),
              HasSubstr("byte 4: the number of images is 0, expected 1 to"));
  EXPECT_THAT(image_error("images", big_endian({0x803, 1, 4000000000U, 2})),
              HasSubstr("byte 8: the height of the images is 4000000000, expected 1 to"));
  EXPECT_THAT(image_error("images", big_endian({0x803, 1, 2, 0})),
              HasSubstr("byte 12: the width of the images is 0"));
  EXPECT_THAT(image_error("images", big_endian({0x803, UINT32_MAX, 16384, 16384})),
              HasSubstr("byte 4: the header promises"));
  // Promises a terabyte and has nothing: no attempt to allocate it.
  EXPECT_THAT(image_error("images", big_endian({0x803, 4096, 16384, 16384})),
              HasSubstr("byte 16: the file ends here"));
}

TEST_F(Idx, LabelOutOfRange) {
  Bytes labels = label_bytes(5);
  labels[8 + 3] = 10;
  EXPECT_THAT(label_error("labels.gz", labels),
              HasSubstr("labels.gz: byte 11: label 10, expected 0 to 9"));
}

}  // namespace
}  // namespace ronde::trainer
