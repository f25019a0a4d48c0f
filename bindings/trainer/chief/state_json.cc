// SPDX-License-Identifier: Apache-2.0
// state.json. Its last line is the checksum of all that stands before that line.
#include <cmath>
#include <nlohmann/json.hpp>
#include <ronde/ronde.hpp>

#include "bindings/trainer/chief/checkpoint.h"
#include "bindings/trainer/chief/checksums.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kFormat = 1;
const char* const kChecksum = "  \"checksum\": \"";

std::string sealed(const std::string& text) {
  return text + kChecksum + checksum_text(text) + "\"\n}\n";
}

// JSON has no other numbers.
double require_finite(const std::string& name, double number) {
  if (!std::isfinite(number)) throw TrainerError("the number " + name + " is not finite");
  return number;
}

// Whatever is thrown begins with the file.
class Fields {
 public:
  Fields(const Json& json, const std::string& file) : json_(json), file_(file) {}

  [[noreturn]] void fail(const std::string& message) const {
    throw Damaged(file_ + ": " + message);
  }
  std::uint64_t count(const char* name) const {
    return field(name, &Json::is_number_unsigned, "count").get<std::uint64_t>();
  }
  std::string text(const char* name) const {
    return field(name, &Json::is_string, "text").get<std::string>();
  }
  double number(const char* name) const {
    return field(name, &Json::is_number, "number").get<double>();
  }
  Fields object(const char* name) const { return {field(name, &Json::is_object, "object"), file_}; }
  const Json& json() const { return json_; }

 private:
  const Json& field(const char* name, bool (Json::*is)() const noexcept, const char* kind) const {
    const auto found = json_.find(name);
    if (found == json_.end() || !((*found).*is)()) {
      fail(std::string("it has no ") + kind + " \"" + name + "\"");
    }
    return *found;
  }

  const Json& json_;
  std::string file_;
};

// Null where there is none.
const std::string* find_value(const Flags& flags, const std::string& name) {
  for (const auto& [other, value] : flags) {
    if (other == name) return &value;
  }
  return nullptr;
}

std::string shown(const std::string* value) {
  if (value == nullptr) return "nothing";
  return value->empty() ? "\"\"" : *value;
}

}  // namespace

std::string to_state_json(const CheckpointState& state, const std::string& tensors_checksum) {
  Json json{{"format", kFormat},
            {"ronde_version", ronde_version()},
            {"step", state.global_step},
            {"optimizer_steps", state.optimizer_steps},
            {"epoch", state.epoch},
            {"step_in_epoch", state.step_in_epoch},
            {"epoch_sums",
             {{"loss_sum", require_finite("loss_sum", state.epoch_sums.loss_sum)},
              {"correct", require_finite("correct", state.epoch_sums.correct)},
              {"samples", require_finite("samples", state.epoch_sums.samples)}}},
            {"numbers", Json::object()},
            {"flags", Json::object()},
            {"training", state.training},
            {"moments", state.moments},
            {"tensors_checksum", tensors_checksum}};
  for (const auto& [name, number] : state.numbers)
    json["numbers"][name] = require_finite(name, number);
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
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Fields fields(json, file);
  if (!json.is_object()) fields.fail("it is no JSON object: it is truncated or damaged");
  if (const std::uint64_t format = fields.count("format"); format != kFormat) {
    throw DataError(file + ": it has format " + std::to_string(format) + ", Ronde " +
                        ronde_version() + " reads format " + std::to_string(kFormat) +
                        ": use the version that wrote it",
                    kExitConfiguration);
  }
  if (text != sealed(text.substr(0, text.rfind(kChecksum)))) {
    fields.fail("it does not have the checksum that it should have: it was damaged or edited");
  }
  CheckpointState state;
  state.global_step = fields.count("step");
  state.optimizer_steps = fields.count("optimizer_steps");
  state.epoch = fields.count("epoch");
  state.step_in_epoch = fields.count("step_in_epoch");
  const Fields sums = fields.object("epoch_sums");
  state.epoch_sums = {sums.number("loss_sum"), sums.number("correct"), sums.number("samples")};
  const Fields numbers = fields.object("numbers");
  for (const auto& [name, number] : numbers.json().items()) {
    state.numbers[name] = numbers.number(name.c_str());
  }
  const Fields flags = fields.object("flags");
  for (const auto& [name, value] : flags.json().items()) {
    state.flags.emplace_back(name, flags.text(name.c_str()));
  }
  // The first checkpoints had neither.
  if (json.contains("training")) state.training = fields.text("training");
  for (const Json& name : json.value("moments", Json::array())) {
    if (!name.is_string()) fields.fail("it has no texts in \"moments\"");
    state.moments.push_back(name);
  }
  return {state, fields.text("tensors_checksum")};
}

std::string flags_that_differ(const CheckpointState& saved, const Flags& now) {
  std::string text;
  const auto compare = [&text](const std::string& name, const std::string* was,
                               const std::string* is) {
    if (was != nullptr && is != nullptr && *was == *is) return;
    text += (text.empty() ? "" : "; ") + name + " was " + shown(was) + " and is now " + shown(is);
  };
  for (const auto& [name, value] : saved.flags) compare(name, &value, find_value(now, name));
  for (const auto& [name, value] : now) {
    if (find_value(saved.flags, name) == nullptr) compare(name, nullptr, &value);
  }
  return text;
}

}  // namespace ronde::trainer
