// SPDX-License-Identifier: Apache-2.0
// The "key=value" arguments of the workers of tests.
#pragma once

#include <string>

namespace ronde::testing {

struct KeyAndValue {
  std::string key;
  std::string value;  // empty without a "="
};

inline KeyAndValue key_and_value(const std::string& word) {
  const std::string::size_type equals = word.find('=');
  if (equals == std::string::npos) return {word, ""};
  return {word.substr(0, equals), word.substr(equals + 1)};
}

}  // namespace ronde::testing
