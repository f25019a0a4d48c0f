// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/chief/training_record.h"

#include <cerrno>
#include <nlohmann/json.hpp>

#include "bindings/trainer/chief/safetensors.h"

namespace ronde::trainer {

namespace {

constexpr const char* kRecord = "/training.json";

}  // namespace

void write_training_record(FileSystem& files, const std::string& directory,
                           const TrainingRecord& record) {
  nlohmann::json json{{"training", record.training}, {"job", record.job}};
  if (record.finished_step) {
    json["finished"] = {
        {"step", *record.finished_step}, {"goal", record.goal}, {"result", record.result}};
  }
  replace_file(files, directory + kRecord,
               json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
}

TrainingRecord read_training_record(FileSystem& files, const std::string& directory) {
  const std::string path = directory + kRecord;
  TrainingRecord record;
  try {
    const auto json = nlohmann::json::parse(read_file(files, path));
    record.training = json.at("training");
    record.job = json.at("job");
    if (json.contains("finished")) {
      record.finished_step = json.at("finished").at("step");
      record.goal = json.at("finished").at("goal");
      record.result = json.at("finished").at("result");
    }
  } catch (const FileError& error) {
    if (error.number() != ENOENT) throw;
  } catch (const nlohmann::json::exception& error) {
    throw Damaged(path + " is damaged (" + error.what() +
                      "): put back a copy, or remove it if no training was begun anew here",
                  kExitConfiguration);
  }
  return record;
}

}  // namespace ronde::trainer
