// SPDX-License-Identifier: Apache-2.0
// Files of tensors: what is written comes back bit for bit, what others write is read, and damage
// is an error.
#include "bindings/trainer/keep/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "test/unit/trainer/keep/checkpoint_files.h"

namespace ronde::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string with_header(const std::string& header, const std::string& data = "") {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  return bytes + header + data;
}

std::string error_in_file(const std::string& bytes) {
  return error_of([&] { (void)from_safetensors(bytes, "x.safetensors"); });
}

std::string bytes_of(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

TEST(Safetensors, ComeBackBitForBit) {
  using Limits = std::numeric_limits<float>;
  std::vector<float> odd{0.0F,
                         -0.0F,
                         Limits::denorm_min(),
                         -Limits::denorm_min(),
                         Limits::infinity(),
                         Limits::quiet_NaN(),
                         -std::nanf("0x1234"),
                         Limits::max(),
                         1.0F / 3.0F};
  std::vector<float> one{7.0F};
  const std::vector<StateTensor> tensors{{"z/odd", {3, 3}, odd},
                                         {"a \"quoted\"\n\xc3\xa9", {}, one},
                                         {"empty", {0, 5}, {}},
                                         {"last", {1, 1}, one}};
  const std::string bytes = to_safetensors(tensors);
  const TensorsInBytes loaded = from_safetensors(bytes, "x");
  ASSERT_EQ(loaded.size(), tensors.size());
  for (const StateTensor& tensor : tensors) {
    EXPECT_EQ(loaded.at(tensor.name).shape, tensor.shape);
    EXPECT_EQ(loaded.at(tensor.name).bytes, bytes_of(tensor.values));
  }
}

TEST(Safetensors, KeepTheirOrderAndAreAligned) {
  std::vector<float> values(3, 1.0F);
  for (const char* name : {"b", "bb", "bbb", "bbbb", "bbbbb", "bbbbbb", "bbbbbbb", "bbbbbbbb"}) {
    const std::string bytes = to_safetensors(
        std::vector<StateTensor>{{name, {3}, values}, {"a", {3}, values}}, {{"by", "Ronde"}});
    const std::size_t header = static_cast<unsigned char>(bytes[0]);
    EXPECT_EQ(header % 8, 0U);
    EXPECT_EQ(bytes.size(), 8 + header + 6 * sizeof(float));
    EXPECT_THAT(bytes.substr(8),
                StartsWith(R"({"__metadata__":{"by":"Ronde"},")" + std::string(name) +
                           R"(":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},"a":{)"));
  }
}

TEST(Safetensors, NoTensors) {
  EXPECT_TRUE(from_safetensors(to_safetensors({}), "x").empty());
  EXPECT_TRUE(from_safetensors(to_safetensors({}, {{"a", "b"}}), "x").empty());
}

TEST(Safetensors, WhatCannotBeWritten) {
  std::vector<float> two(2);
  const auto error = [&](std::vector<StateTensor> tensors) {
    return error_of<TrainerError>([&] { (void)to_safetensors(tensors); });
  };
  EXPECT_THAT(error({{"a", {2}, two}, {"a", {2}, two}}), HasSubstr("tensor a: this name is taken"));
  EXPECT_THAT(error({{"__metadata__", {2}, two}}), HasSubstr("this name is taken"));
  EXPECT_THAT(error({{"a", {3}, two}}), AllOf(HasSubstr("2 elements"), HasSubstr("shape is 3")));
  EXPECT_THAT(error({{"\xff", {2}, two}}), HasSubstr("no text in UTF-8"));
}

// What safetensors for Python writes of {"fc/weight": [[1.5, -0.0], [2, 3]], "count": 7,
// "none": zeros of 0 x 3}, with the metadata {"format": "np"}.
TEST(Safetensors, ReadsWhatPythonHasWritten) {
  const std::string values(
      "\x00\x00\xe0\x40\x00\x00\xc0\x3f\x00\x00\x00\x80\x00\x00\x00\x40\x00\x00\x40\x40", 20);
  const std::string bytes = with_header(
      R"({"__metadata__":{"format":"np"},"count":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("fc/weight":{"dtype":"F32","shape":[2,2],"data_offsets":[4,20]},)"
      R"("none":{"dtype":"F32","shape":[0,3],"data_offsets":[20,20]}})"
      "    ",
      values);
  const TensorsInBytes loaded = from_safetensors(bytes, "x");
  ASSERT_EQ(loaded.size(), 3U);
  EXPECT_EQ(loaded.at("count").shape, Shape{});
  EXPECT_EQ(loaded.at("count").bytes, bytes_of(std::vector<float>{7.0F}));
  EXPECT_EQ(loaded.at("fc/weight").shape, (Shape{2, 2}));
  EXPECT_EQ(loaded.at("fc/weight").bytes, bytes_of(std::vector<float>{1.5F, -0.0F, 2.0F, 3.0F}));
  EXPECT_EQ(loaded.at("none").shape, (Shape{0, 3}));
}

TEST(Safetensors, HeadersThatDoNotFit) {
  EXPECT_THAT(error_in_file(""), StartsWith("x.safetensors: the file ends in its first 8 bytes"));
  EXPECT_THAT(error_in_file(std::string(8, '\xff')),
              HasSubstr("header has 18446744073709551615 bytes, the file 8: it is truncated"));
  constexpr std::size_t kHuge = 300'000'000;  // bytes that nobody touches
  const std::unique_ptr<char, void (*)(void*)> huge(static_cast<char*>(std::calloc(kHuge, 1)),
                                                    std::free);
  huge.get()[3] = 0x10;  // 256 MiB, more than a header may have
  EXPECT_THAT(error_of([&] { (void)from_safetensors(std::string_view(huge.get(), kHuge), "x"); }),
              HasSubstr("header has 268435456 bytes"));
  for (const char* header : {"", "[]", "{", "nil", "{\"a\":", "{\"\xff\":1}"}) {
    EXPECT_THAT(error_in_file(with_header(header)), HasSubstr("no JSON object")) << header;
  }
  // A text in a million levels would take gigabytes, and all of the stack to print.
  for (const std::string before : {"", R"({"a":{"dtype":)"}) {
    EXPECT_THAT(error_in_file(with_header(before + std::string(1'000'000, '['))),
                HasSubstr("nested too deeply"));
  }
}

TEST(Safetensors, TensorsThatDoNotFit) {
  const auto error = [](const std::string& tensors, std::size_t data = 8) {
    return error_in_file(with_header("{" + tensors + "}", std::string(data, 'x')));
  };
  const auto tensor = [](const std::string& shape, const std::string& offsets) {
    return R"({"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  EXPECT_THAT(error(R"("a":7)"), HasSubstr("tensor \"a\" is not described"));
  EXPECT_THAT(error(R"("a":{"dtype":"F16","shape":[4],"data_offsets":[0,8]})"),
              HasSubstr("has dtype \"F16\", only F32"));
  EXPECT_THAT(error(R"("a":{"dtype":[16],"shape":[4],"data_offsets":[0,8]})"),
              HasSubstr("has dtype of type array, only F32"));
  const std::string longest = error("\"" + std::string(100'000, 'a') + "\":7");
  EXPECT_LT(longest.size(), 200U);
  EXPECT_THAT(error(R"("a":{"shape":[2],"data_offsets":[0,8]})"), HasSubstr("dtype (none)"));
  for (const char* shape : {"2", "[2.0]", "[-2]", "[\"2\"]", "null", "[[2]]"}) {
    EXPECT_THAT(error("\"a\":" + tensor(shape, "[0,8]")), HasSubstr("no shape of whole numbers"));
    EXPECT_THAT(error("\"a\":" + tensor("[2]", shape)), HasSubstr("no data_offsets of whole"));
  }
  for (const char* offsets : {"[8,0]", "[0,9]", "[9,9]", "[0]", "[]", "[0,4,8]",
                              "[0,18446744073709551615]", "[18446744073709551615,3]"}) {
    EXPECT_THAT(error("\"a\":" + tensor("[2]", offsets)), HasSubstr("does not lie in the 8 bytes"))
        << offsets;
  }
  EXPECT_THAT(error("\"a\":" + tensor("[3]", "[0,8]")), HasSubstr("is 3, but has 8 bytes"));
  EXPECT_THAT(error("\"a\":" + tensor("[]", "[0,8]")), HasSubstr("is 1 element, but has 8 bytes"));
  // 2^61 x 2 x 2 elements are 2^65 bytes, which is 0 if nothing checks.
  EXPECT_THAT(error("\"a\":" + tensor("[2305843009213693952,2,2]", "[0,0]"), 0),
              HasSubstr("too large"));
  EXPECT_THAT(error("\"a\":" + tensor("[2]", "[0,8]"), 12), HasSubstr("but 12 follow the header"));
  EXPECT_THAT(error(""), HasSubstr("tensors have 0 bytes, but 8 follow"));
  const std::string first = "\"a\":" + tensor("[2]", "[0,8]");
  EXPECT_THAT(error(first + ",\"b\":" + tensor("[2]", "[4,12]"), 12), HasSubstr("overlap"));
  EXPECT_THAT(error(first + ",\"b\":" + tensor("[2]", "[0,8]")), HasSubstr("overlap"));
  EXPECT_THAT(error(first + ",\"b\":" + tensor("[1]", "[12,16]"), 16), HasSubstr("leave a gap"));
  EXPECT_THAT(error(first + ",\"b\":" + tensor("[0]", "[4,4]")), HasSubstr("overlap"));
}

// A flipped bit in a name or a value is for the checksum of a checkpoint; here nothing may crash,
// and nothing may have another size.
TEST(Safetensors, DamageIsAnErrorOrTheSameSize) {
  const std::string whole = bytes_of(model_of(3));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(error_in_file(whole.substr(0, size)), "no error") << size;
  }
  EXPECT_NE(error_in_file(whole + "x"), "no error");
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int flip : {1, 2, 4, 8, 16, 32, 64, 128, '"' ^ ',', '0' ^ '9', '[' ^ '-'}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      try {
        std::size_t bytes = 0;
        for (const auto& [name, tensor] : from_safetensors(damaged, "x")) {
          bytes += tensor.bytes.size();
          EXPECT_EQ(tensor.bytes.size(), sizeof(float) * elements_of(tensor.shape));
        }
        EXPECT_EQ(bytes, 8 * sizeof(float));
      } catch (const DataError&) {
        continue;
      }
    }
  }
}

}  // namespace
}  // namespace ronde::trainer
