// SPDX-License-Identifier: Apache-2.0
// What the workers of tests share: their "key=value" arguments, and the files that they leave.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>

namespace ronde::testing {

// Hands the value of each word, which is empty without a "=", to the reader of its key.
inline void read_words(
    int argc, char** argv,
    const std::map<std::string, std::function<void(const std::string& value)>>& readers) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string::size_type equals = word.find('=');
    const auto reader = readers.find(word.substr(0, equals));
    if (reader == readers.end()) throw std::invalid_argument("unknown word " + word);
    reader->second(equals == std::string::npos ? "" : word.substr(equals + 1));
  }
}

// The clock of Python's time.monotonic(), and of every process of the machine.
inline std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// Readers look for the name, so it appears with all of its content.
inline void write_file(const std::string& path, const std::string& content) {
  std::ofstream(path + ".tmp") << content;
  std::rename((path + ".tmp").c_str(), path.c_str());
}

}  // namespace ronde::testing
