// SPDX-License-Identifier: Apache-2.0
// Files of np.save(): good ones, bad ones, and the data sets of them.
#include "bindings/trainer/data/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "bindings/trainer/data/dataset.h"
#include "test/unit/trainer/data/data_files.h"
#include "test/unit/trainer/error_of.h"

namespace ronde::trainer {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

template <typename Number>
Bytes npy_bytes(const std::string& descr, const std::string& shape,
                const std::vector<Number>& numbers, const char* fortran = "False") {
  std::string header =
      "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
  header.resize((header.size() + 10 + 64) / 64 * 64 - 11, ' ');
  header += '\n';
  const std::string start = std::string("\x93NUMPY\x01") + '\0' +
                            static_cast<char>(header.size() % 256) +
                            static_cast<char>(header.size() / 256) + header;
  Bytes bytes(start.begin(), start.end());
  for (const Number number : numbers) {
    const auto raw = std::bit_cast<std::array<std::uint8_t, sizeof(Number)>>(number);
    bytes.insert(bytes.end(), raw.begin(), raw.end());
  }
  return bytes;
}

class Npy : public DataFiles {
 protected:
  std::string error_with(const Bytes& bytes) {
    const std::string path = write("bad.npy", bytes);
    return error_of([&] { (void)read_npy(path); });
  }
};

TEST_F(Npy, ReadsNumbersOfEveryWidth) {
  const auto floats =
      read_npy(write("f4.npy", npy_bytes<float>("<f4", "(2, 3)", {1, 2, 3, 4, 5, 6.5F})));
  EXPECT_THAT(floats.shape, ElementsAre(2, 3));
  EXPECT_THAT(floats.values, ElementsAre(1, 2, 3, 4, 5, 6.5F));
  EXPECT_THAT(read_npy(write("f8.npy", npy_bytes<double>("<f8", "(2,)", {0.5, -3}))).values,
              ElementsAre(0.5F, -3));
  EXPECT_THAT(read_npy(write("u1.npy", npy_bytes<std::uint8_t>("|u1", "(2,)", {0, 255}))).values,
              ElementsAre(0, 255));
  const auto whole = read_npy_integers(
      write("i8.npy", npy_bytes<std::int64_t>("<i8", "(2,)", {-7, std::int64_t{1} << 40})));
  EXPECT_THAT(whole.values, ElementsAre(-7, std::int64_t{1} << 40));
  EXPECT_TRUE(read_npy(write("one.npy", npy_bytes<float>("<f4", "()", {4}))).shape.empty());
}

TEST_F(Npy, RefusesWhatItWouldReadWrongly) {
  EXPECT_THAT(error_with({1, 2, 3}), AllOf(HasSubstr("bad.npy"), HasSubstr("is no .npy file")));
  EXPECT_THAT(error_with(npy_bytes<float>("<f4", "(2,)", {1})),
              HasSubstr("ends 2 elements before its shape of 2 does"));
  EXPECT_THAT(error_with(npy_bytes<float>("<f4", "(1,)", {1, 2})), HasSubstr("has more bytes"));
  EXPECT_THAT(error_with(npy_bytes<float>(">f4", "(1,)", {1})), HasSubstr("another type"));
  EXPECT_THAT(error_with(npy_bytes<double>("<c8", "(1,)", {1})), HasSubstr("type c8"));
  EXPECT_THAT(error_with(npy_bytes<float>("<f4", "(1, 1)", {1}, "True")),
              HasSubstr("np.ascontiguousarray"));
  EXPECT_THAT(error_with(npy_bytes<float>("<f4", "(99999999999, 99999999999)", {1})),
              HasSubstr("more elements than there is memory"));
  const std::string labels = write("f.npy", npy_bytes<float>("<f4", "(1,)", {1}));
  EXPECT_THAT(error_of([&] { (void)read_npy_integers(labels); }), HasSubstr("astype(\"int64\")"));
}

TEST_F(Npy, MakesDataSetsOfFilesAndOfMemory) {
  const std::vector<float> inputs{1, 2, 3, 4, 5, 6};
  const std::vector<std::int32_t> labels{2, 0, 1};
  const std::string file = write("x.npy", npy_bytes<float>("<f4", "(3, 2)", inputs));
  const std::string answers = write("y.npy", npy_bytes<std::int32_t>("<i4", "(3,)", labels));
  const std::string targets = write("t.npy", npy_bytes<float>("<f4", "(3, 2)", inputs));
  for (const Dataset& data :
       {Dataset::from_npy(file, answers, 3), Dataset::from_memory({2}, inputs, labels, 3)}) {
    Epoch epoch = data.batch(3).epoch(0);
    const StepBatch* const batch = epoch.next();
    ASSERT_NE(batch, nullptr);
    EXPECT_THAT(batch->parts.front().inputs, testing::ElementsAreArray(inputs));
    EXPECT_THAT(batch->parts.front().labels, testing::ElementsAreArray(labels));
  }
  for (const Dataset& data :
       {Dataset::from_npy(file, targets), Dataset::from_memory({2}, inputs, inputs, 2)}) {
    Epoch epoch = data.batch(2).epoch(0);
    const StepBatch* const batch = epoch.next();
    ASSERT_NE(batch, nullptr);
    EXPECT_THAT(batch->parts.front().targets, ElementsAre(1, 2, 3, 4));
  }
  const std::string few = write("few.npy", npy_bytes<std::int32_t>("<i4", "(2,)", {0, 1}));
  EXPECT_THAT(error_of([&] { (void)Dataset::from_npy(file, few, 3); }),
              AllOf(HasSubstr("has 2 labels"), HasSubstr("has 3 samples")));
}

}  // namespace
}  // namespace ronde::trainer
