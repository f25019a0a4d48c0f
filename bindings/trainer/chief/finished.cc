// SPDX-License-Identifier: Apache-2.0
// The note that a training has ended.
#include "bindings/trainer/chief/finished.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

constexpr const char* kFile = "/finished.json";

}  // namespace

std::optional<Finished> read_finished(const std::string& directory) {
  std::ifstream file(directory + kFile);
  if (!file) return std::nullopt;
  try {
    const auto json = nlohmann::json::parse(file);
    return Finished{json.at("global_step"), json.at("goal"), json.at("result")};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

void forget_finished(const std::string& directory) {
  std::error_code ignored;
  std::filesystem::remove(directory + kFile, ignored);
}

// It need not survive a power cut, so it is renamed but not synced.
void write_finished(const std::string& directory, const Finished& finished) {
  const std::string path = directory + kFile;
  const nlohmann::json json{
      {"global_step", finished.global_step}, {"goal", finished.goal}, {"result", finished.result}};
  std::ofstream out(path + ".tmp");
  out << json.dump(2) << '\n';
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(path + ".tmp", path, error);
  if (!out || error) throw DataError(path + " cannot be written: is the disk full?");
}

}  // namespace ronde::trainer
