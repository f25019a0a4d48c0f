// SPDX-License-Identifier: Apache-2.0
#include "launcher/line_tagger.h"

#include <cstddef>

namespace ronde::launcher {

namespace {

constexpr std::size_t kLongestLine = std::size_t{64} << 10U;

}  // namespace

std::string LineTagger::take(std::string_view bytes) {
  std::string lines;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    begun_ += bytes.substr(0, end);
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
    if (end == std::string_view::npos && begun_.size() < kLongestLine) break;
    lines += tag_ + begun_ + "\n";
    begun_.clear();
  }
  return lines;
}

std::string LineTagger::finish() { return begun_.empty() ? "" : take("\n"); }

}  // namespace ronde::launcher
