// SPDX-License-Identifier: Apache-2.0
// Boost.Program_options reads the flags; sizes take a suffix, as in 64K.
#include "test/bench/support/options.h"

#include <boost/program_options.hpp>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include "test/bench/support/floor_sum.h"

namespace ronde::bench {

namespace po = boost::program_options;

namespace {

constexpr const char* kDefaultSizes = "8,64,512,4K,16K,64K,256K,1M,4M,16M,64M,256M";
constexpr std::int64_t kLargest = std::int64_t{1} << 32;

std::int64_t size_of(const std::string& text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const std::string suffix(stop, end);
  const std::int64_t unit =
      suffix.empty() ? 1 : (suffix == "K" ? 1 << 10 : (suffix == "M" ? 1 << 20 : 0));
  if (error != std::errc() || unit == 0 || value <= 0 || value > kLargest / unit ||
      value * unit % 4 != 0) {
    throw std::invalid_argument("--sizes: '" + text +
                                "' is not valid: use bytes, a multiple of 4 up to 4096M, such as "
                                "8,64K,1M");
  }
  return value * unit;
}

std::vector<std::int64_t> sizes_of(const std::string& list) {
  std::vector<std::int64_t> sizes;
  std::istringstream in(list);
  for (std::string text; std::getline(in, text, ',');) sizes.push_back(size_of(text));
  if (sizes.empty()) throw std::invalid_argument("--sizes is empty: use for example 8,64K,1M");
  return sizes;
}

void require(bool valid, const std::string& text) {
  if (!valid) throw std::invalid_argument(text);
}

}  // namespace

Options read_options(int argc, char** argv, const std::string& summary, bool starts_ranks) {
  Options options;
  std::string sizes;
  po::options_description flags(summary);
  auto add = flags.add_options();
  add("sizes", po::value(&sizes)->default_value(kDefaultSizes), "what is measured, in bytes");
  add("repetitions", po::value(&options.repetitions)->default_value(5),
      "samples of each contender, in turns");
  add("quick", po::bool_switch(&options.quick), "few iterations: to see that it runs");
  add("json", po::bool_switch(&options.json), "every sample, as JSON, instead of the table");
  add("help", "print this text and stop");
  if (starts_ranks) {
    add("ranks", po::value(&options.ranks)->default_value(2), "how many processes");
  } else {
    add("floor", po::bool_switch(&options.floor),
        "the same memory traffic with no runtime around it, and memcpy, too");
    add("best", po::bool_switch(&options.best),
        "OpenMPI's segmented ring with segments of 256 KiB too");
    add("cold", po::bool_switch(&options.cold),
        "each call alone, after a memcpy of 1 MiB and a call of the next contender");
  }
  try {
    po::variables_map values;
    po::store(po::parse_command_line(argc, argv, flags), values);
    po::notify(values);
    if (values.count("help") != 0) {
      std::ostringstream text;
      text << flags;
      std::fputs(text.str().c_str(), stdout);
      std::exit(0);
    }
    options.sizes = sizes_of(sizes);
    require(options.repetitions >= 1 && options.repetitions <= 1000,
            "--repetitions " + std::to_string(options.repetitions) + ": use 1 to 1000");
    require(options.ranks >= 1 && options.ranks <= kMostFloorRanks,
            "--ranks " + std::to_string(options.ranks) + ": use 1 to " +
                std::to_string(kMostFloorRanks));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    std::exit(2);
  }
  return options;
}

}  // namespace ronde::bench
