// SPDX-License-Identifier: Apache-2.0
// The files of one checkpoint, and training.json. The last line of state.json is the checksum of
// everything before that line.
#include "bindings/trainer/keep/checkpoint.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <ronde/ronde.hpp>
#include <set>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kFormat = 1;
const char* const kTensorsFile = "/tensors.safetensors";
const char* const kStateFile = "/state.json";
const char* const kRecordFile = "/training.json";
const char* const kChecksum = "  \"checksum\": \"";

std::string sealed(const std::string& text) {
  return text + kChecksum + checksum_text(text) + "\"\n}\n";
}

// JSON has only finite numbers.
double require_finite(const std::string& name, double number) {
  if (!std::isfinite(number)) throw TrainerError("the number " + name + " is not finite");
  return number;
}

// The type that a value of a JSON object must have.
struct Kind {
  Json::value_t type;
  const char* name;
};
constexpr Kind kCount{Json::value_t::number_unsigned, "count"};
constexpr Kind kNumber{Json::value_t::number_float, "number"};
constexpr Kind kText{Json::value_t::string, "text"};
constexpr Kind kObject{Json::value_t::object, "object"};

// A folder gets its final name once both files are in it.
std::string read_part(FileSystem& files, const std::string& file) {
  try {
    return read_file(files, file);
  } catch (const FileError& error) {
    if (error.number() == ENOENT || error.number() == ENOTDIR) throw Damaged(error.what());
    throw;
  }
}

std::pair<CheckpointState, std::string> read_state(FileSystem& files, const std::string& folder) {
  return from_state_json(read_part(files, folder + kStateFile), folder + kStateFile);
}

}  // namespace

std::string checksum_text(std::string_view bytes) {
  // zlib's bytes are unsigned char.
  const auto* const first = reinterpret_cast<const unsigned char*>(bytes.data());
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "crc32:%08lx", crc32_z(0, first, bytes.size()));
  return text.data();
}

void write_checkpoint(FileSystem& files, const std::string& folder, const CheckpointState& state,
                      const std::string& tensors) {
  if (const int made = files.make_directory(folder); made < 0) throw FileError(folder, -made);
  write_file(files, folder + kTensorsFile, tensors);
  write_file(files, folder + kStateFile, to_state_json(state, checksum_text(tensors)));
  sync_directory(files, folder);
}

CheckpointState read_checkpoint_state(FileSystem& files, const std::string& folder) {
  return read_state(files, folder).first;
}

Checkpoint read_checkpoint(FileSystem& files, const std::string& folder) {
  const std::string file = folder + kTensorsFile;
  auto [state, expected] = read_state(files, folder);
  const auto bytes = std::make_shared<const std::string>(read_part(files, file));
  if (const std::string found = checksum_text(*bytes); found != expected) {
    throw Damaged(file + ": its checksum is " + found + ", state.json says " + expected +
                  ": it is truncated or damaged");
  }
  return {std::move(state), bytes, from_safetensors(*bytes, file)};
}

void copy_tensors(const TensorsInBytes& from, const std::vector<StateTensor>& to,
                  const std::string& where) {
  std::vector<std::string> differences;
  std::set<std::string> known;
  for (const StateTensor& tensor : to) {
    known.insert(tensor.name);
    const auto found = from.find(tensor.name);
    if (found == from.end()) {
      differences.push_back(tensor.name + " is missing there");
    } else if (found->second.shape != tensor.shape ||
               found->second.bytes.size() != tensor.values.size_bytes()) {
      differences.push_back(tensor.name + " is " + text_of(found->second.shape) + " there and " +
                            text_of(tensor.shape) + " here");
    }
  }
  for (const auto& [name, tensor] : from) {
    if (!known.contains(name)) differences.push_back(name + " is missing here");
  }
  if (!differences.empty()) {
    constexpr std::size_t kMostNamed = 4;
    std::string text = where + " is of another model: ";
    for (std::size_t i = 0; i < std::min(kMostNamed, differences.size()); ++i) {
      text += (i == 0 ? "" : "; ") + differences[i];
    }
    if (differences.size() > kMostNamed) {
      text += "; and " + std::to_string(differences.size() - kMostNamed) + " more";
    }
    throw TrainerError(text + kInsteadOfGoingOn, kExitConfiguration);
  }
  for (const StateTensor& tensor : to) {
    const std::string_view bytes = from.at(tensor.name).bytes;
    if (!bytes.empty()) std::memcpy(tensor.values.data(), bytes.data(), bytes.size());
  }
}

std::string to_state_json(const CheckpointState& state, const std::string& tensors_checksum) {
  const Metrics& sums = state.epoch_sums;
  Json json{{"format", kFormat},
            {"ronde_version", ronde_version()},
            {"step", state.global_step},
            {"optimizer_steps", state.optimizer_steps},
            {"epoch", state.epoch},
            {"step_in_epoch", state.step_in_epoch},
            {"epoch_sums",
             {{"loss_sum", require_finite("loss_sum", sums.loss_sum)},
              {"correct", require_finite("correct", sums.correct)},
              {"samples", require_finite("samples", sums.samples)}}},
            {"numbers", Json::object()},
            {"flags", Json::object()},
            {"training", state.training},
            {"moments", state.moments},
            {"tensors_checksum", tensors_checksum}};
  for (const auto& [name, number] : state.numbers) {
    json["numbers"][name] = require_finite(name, number);
  }
  for (const auto& [name, value] : state.flags) json["flags"][name] = value;
  try {
    std::string text = json.dump(2);
    text.resize(text.size() - 2);  // without the end, "\n}"
    return sealed(text + ",\n");
  } catch (const Json::exception& error) {
    throw TrainerError(std::string("a flag is no text in UTF-8: ") + error.what());
  }
}

std::pair<CheckpointState, std::string> from_state_json(const std::string& text,
                                                        const std::string& file) {
  // Ours has three levels; one of a million would take gigabytes.
  const auto not_too_deep = [](int depth, auto, const auto&) { return depth <= 8; };
  const Json json = Json::parse(text, not_too_deep, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    throw Damaged(file + ": it is no JSON object: it is truncated or damaged");
  }
  const auto get = [&](const Json& from, const std::string& name, const Kind& kind) -> const Json& {
    const auto found = from.find(name);
    if (found != from.end() && found->type() == kind.type) return *found;
    throw Damaged(file + ": it has no " + kind.name + " \"" + name + "\"");
  };
  if (const std::uint64_t format = get(json, "format", kCount); format != kFormat) {
    throw DataError(file + ": it has format " + std::to_string(format) + ", Ronde " +
                        ronde_version() + " reads format " + std::to_string(kFormat) +
                        ": use the version that wrote it",
                    kExitConfiguration);
  }
  if (text != sealed(text.substr(0, text.rfind(kChecksum)))) {
    throw Damaged(file +
                  ": it does not have the checksum that it should have: it was damaged or edited");
  }
  CheckpointState state;
  state.global_step = get(json, "step", kCount);
  state.optimizer_steps = get(json, "optimizer_steps", kCount);
  state.epoch = get(json, "epoch", kCount);
  state.step_in_epoch = get(json, "step_in_epoch", kCount);
  const Json& sums = get(json, "epoch_sums", kObject);
  state.epoch_sums = {get(sums, "loss_sum", kNumber), get(sums, "correct", kNumber),
                      get(sums, "samples", kNumber)};
  const Json& numbers = get(json, "numbers", kObject);
  for (const auto& [name, number] : numbers.items()) {
    state.numbers[name] = get(numbers, name, kNumber);
  }
  const Json& flags = get(json, "flags", kObject);
  for (const auto& [name, value] : flags.items()) {
    state.flags.emplace_back(name, get(flags, name, kText));
  }
  // The first version of the format had neither.
  if (json.contains("training")) state.training = get(json, "training", kText);
  for (const Json& name : json.value("moments", Json::array())) {
    if (!name.is_string()) throw Damaged(file + ": it has no texts in \"moments\"");
    state.moments.push_back(name);
  }
  return {state, get(json, "tensors_checksum", kText)};
}

std::string flags_that_differ(const CheckpointState& saved, const Flags& now) {
  // Nothing where it is missing.
  const auto value_in = [](const Flags& flags, const std::string& name) {
    const auto found = std::ranges::find(flags, name, &Flags::value_type::first);
    return found == flags.end() ? std::nullopt : std::optional(found->second);
  };
  const auto shown = [](const std::optional<std::string>& value) {
    return !value ? "nothing" : value->empty() ? "\"\"" : *value;
  };
  std::string text;
  Flags all = saved.flags;
  all.insert(all.end(), now.begin(), now.end());
  std::set<std::string> compared;
  for (const auto& [name, ignored] : all) {
    const auto was = value_in(saved.flags, name);
    const auto is = value_in(now, name);
    if (was == is || !compared.insert(name).second) continue;
    text += (text.empty() ? "" : "; ") + name + " was " + shown(was) + " and is now " + shown(is);
  }
  return text;
}

void write_training_record(FileSystem& files, const std::string& directory,
                           const TrainingRecord& record) {
  nlohmann::json json{{"training", record.training}, {"job", record.job}};
  if (record.finished_step) {
    json["finished"] = {
        {"step", *record.finished_step}, {"goal", record.goal}, {"result", record.result}};
  }
  replace_file(files, directory + kRecordFile,
               json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
}

TrainingRecord read_training_record(FileSystem& files, const std::string& directory) {
  const std::string path = directory + kRecordFile;
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
