// SPDX-License-Identifier: Apache-2.0
// Sizes take a suffix, as in 64K.
#include "test/bench/support/options.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "base/flags/parse.h"
#include "test/bench/support/floor_sum.h"

namespace ronde::bench {

namespace {

using base::flags::FlagTable;
using base::flags::FlagValue;
using base::flags::on_where_named;
using base::flags::whole;

constexpr std::int64_t kLargest = std::int64_t{1} << 32;

bool read_size(std::string text, std::int64_t& size) {
  const char suffix = text.empty() ? ' ' : text.back();
  const std::int64_t unit = suffix == 'K' ? 1 << 10 : (suffix == 'M' ? 1 << 20 : 1);
  if (unit != 1) text.pop_back();
  const auto read = base::flags::number_reader<std::int64_t>(size, [unit](std::int64_t number) {
    return number > 0 && number <= kLargest / unit && number * unit % 4 == 0;
  });
  if (!read(text)) return false;
  size *= unit;
  return true;
}

FlagValue sizes(std::vector<std::int64_t>& target) {
  const auto read = [&target](const std::string& given) {
    target.clear();
    std::istringstream in(given);
    for (std::string text; std::getline(in, text, ',');) {
      if (!read_size(text, target.emplace_back())) return false;
    }
    return !target.empty();
  };
  return {"8,64,512,4K,16K,64K,256K,1M,4M,16M,64M,256M", read,
          "bytes, multiples of 4 up to 4096M, such as 8,64K,1M"};
}

}  // namespace

Options read_options(int argc, char** argv, const std::string& summary, bool starts_ranks) {
  Options options;
  FlagTable flags(argv[0], summary);
  flags.add(
      {{"sizes", sizes(options.sizes), "what is measured, in bytes"},
       {"repetitions", whole(options.repetitions, 1, 1000), "samples of each contender, in turns"},
       {"quick", on_where_named(options.quick), "few iterations: to see that it runs"},
       {"json", on_where_named(options.json), "every sample, as JSON, instead of the table"}});
  if (starts_ranks) {
    flags.add({{"ranks", whole(options.ranks, 1, kMostFloorRanks), "how many processes"}});
  } else {
    flags.add({{"floor", on_where_named(options.floor),
                "the same memory traffic with no runtime around it, and memcpy, too"},
               {"best", on_where_named(options.best),
                "OpenMPI's segmented ring with segments of 256 KiB too"},
               {"cold", on_where_named(options.cold),
                "each call alone, after a memcpy of 1 MiB and a call of the next contender"}});
  }
  try {
    const auto asked = base::flags::parse(flags, argc, argv);
    if (asked == base::flags::Asked::kNothing) return options;
    const bool help = asked == base::flags::Asked::kHelp;
    std::fputs(help ? base::flags::help_text(flags).c_str() : RONDE_VERSION_TEXT "\n", stdout);
    std::exit(0);
  } catch (const base::flags::UsageError& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    std::exit(2);
  }
}

}  // namespace ronde::bench
