// SPDX-License-Identifier: Apache-2.0
// A trace of a job in a file of the test's, and what is in it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/timeline/timeline.h"
#include "test/support/engines.h"

namespace ronde::runtime {

using nlohmann::json;
using std::chrono::milliseconds;
using testing::allreduce_of;

class Timelines : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "/timeline_test." + std::to_string(::getpid()) + ".json";
    remove();
  }
  void TearDown() override { remove(); }
  void remove() {
    for (int host = 0; host < 4; ++host) std::filesystem::remove(Timeline::path_on(path_, host));
  }
  // The events of the file of a host.
  [[nodiscard]] std::vector<json> events(int host = 0) const {
    std::ifstream file(Timeline::path_on(path_, host));
    return json::parse(file).get<std::vector<json>>();
  }

  std::string path_;
};

// Reduces a vector of each name; `rank_late` comes 50 ms later than the others. `submitted` runs
// once the rank has come.
inline void step(int rank, Engine& engine, int rank_late = -1, int tensors = 3,
                 const std::function<void()>& submitted = {}) {
  if (rank == rank_late) std::this_thread::sleep_for(milliseconds(50));
  std::vector<std::vector<float>> data(static_cast<std::size_t>(tensors),
                                       std::vector<float>(40'000, 1.0F));
  std::vector<Engine::WorkPtr> works;
  for (std::size_t i = 0; i < data.size(); ++i) {
    auto work = engine.submit(allreduce_of("layer" + std::to_string(i), data[i]));
    ASSERT_TRUE(work.ok()) << work.status().message();
    works.push_back(std::move(*work));
  }
  if (submitted) submitted();
  for (const Engine::WorkPtr& work : works) EXPECT_TRUE(engine.wait(*work).ok());
}

inline std::int64_t nanoseconds(const json& event, const char* key) {
  return static_cast<std::int64_t>(event.at(key).get<double>() * 1000.0 + 0.5);
}

// The slices of each row, in the order of their beginnings.
inline std::map<std::pair<int, int>, std::vector<json>> slices_of(const std::vector<json>& events) {
  std::map<std::pair<int, int>, std::vector<json>> rows;
  for (const json& event : events) {
    if (event.at("ph") == "X") rows[{event.at("pid"), event.at("tid")}].push_back(event);
  }
  for (auto& [row, slices] : rows) {
    std::stable_sort(slices.begin(), slices.end(), [](const json& a, const json& b) {
      return a.at("ts").get<double>() < b.at("ts").get<double>();
    });
  }
  return rows;
}

// Neither overlaps with the next one in its row; but between comparisons of clocks times may move
// by as much as the file says that it does not know.
inline void expect_in_order(const std::vector<json>& events) {
  std::int64_t unknown = 0;
  for (const json& event : events) {
    if (!event.contains("args") || !event.at("args").contains("error_ns")) continue;
    unknown = std::max(unknown, 2 * event.at("args").at("error_ns").get<std::int64_t>());
  }
  for (const auto& [row, slices] : slices_of(events)) {
    for (std::size_t i = 1; i < slices.size(); ++i) {
      // A double of microseconds since the boot of a machine does not have every nanosecond.
      EXPECT_LE(nanoseconds(slices[i - 1], "ts") + nanoseconds(slices[i - 1], "dur"),
                nanoseconds(slices[i], "ts") + 500 + unknown)
          << slices[i - 1] << "\n"
          << slices[i];
    }
  }
}

inline std::string row_name(const std::vector<json>& events, const json& of) {
  for (const json& event : events) {
    if (event.at("name") == "thread_name" && event.at("pid") == of.at("pid") &&
        event.at("tid") == of.at("tid")) {
      return event.at("args").at("name");
    }
  }
  return "";
}

inline std::vector<json> with(const std::vector<json>& events, const char* key,
                              const std::string& value) {
  std::vector<json> found;
  for (const json& event : events) {
    if (event.contains(key) && event.at(key) == value) found.push_back(event);
  }
  return found;
}

}  // namespace ronde::runtime
