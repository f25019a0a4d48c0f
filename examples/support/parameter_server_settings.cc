// SPDX-License-Identifier: Apache-2.0
#include "examples/support/parameter_server_settings.h"

#include <charconv>

namespace ronde::examples {

namespace {

namespace server = trainer::server;

template <typename Number>
void take(std::vector<std::string>& arguments, const std::string& name, Number& number) {
  const auto text = server::take_flag(arguments, name);
  if (!text) return;
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, number);
  if (error == std::errc() && stop == end && number >= Number{}) return;
  throw trainer::TrainerError("--" + name + " is '" + *text + "': use a number from 0",
                              trainer::kExitConfiguration);
}

bool take_switch(std::vector<std::string>& arguments, const std::string& name) {
  const std::string text = server::take_flag(arguments, name).value_or("off");
  if (text == "on" || text == "off") return text == "on";
  throw trainer::TrainerError("--" + name + " is '" + text + "': use on or off",
                              trainer::kExitConfiguration);
}

}  // namespace

Settings settings_of(std::vector<std::string> arguments) {
  Settings settings;
  const auto text = [&arguments](const char* name, const std::string& otherwise) {
    return server::take_flag(arguments, name).value_or(otherwise);
  };
  settings.model = text("model", settings.model);
  if (settings.model == "fashion_mnist") {
    settings.steps = 1000;
    settings.steps_to_validate = 100;
    settings.batch = 64;
    settings.learning_rate = 0.05;
  }
  settings.feed = text("feed", settings.feed);
  settings.data = text("data_dir", settings.data);
  take(arguments, "steps", settings.steps);
  take(arguments, "steps_to_validate", settings.steps_to_validate);
  take(arguments, "batch", settings.batch);
  take(arguments, "seed", settings.seed);
  take(arguments, "servers", settings.servers);
  take(arguments, "learning_rate", settings.learning_rate);
  take(arguments, "slow_ms", settings.slow_ms);
  server::ParameterServerOptions& options = settings.options;
  options.mode = server::mode_of(text("mode", "async"));
  take(arguments, "backup_workers", options.mode.backup_workers);
  options.mode.scale_by_staleness = take_switch(arguments, "scale_by_staleness");
  options.partition = server::partition_of(text("partition", "whole"));
  options.standby = take_switch(arguments, "standby");
  options.logdir = text("logdir", "");
  options.restore = text("restore", options.restore);
  take(arguments, "save_steps", options.save_steps);
  take(arguments, "deadline", options.deadline);
  take(arguments, "worker_timeout", options.worker_timeout);
  take(arguments, "server_timeout", options.server_timeout);
  take(arguments, "momentum", options.optimizer.momentum);
  const std::string optimizer = text("optimizer", "sgd");
  if (optimizer == "adam") options.optimizer.kind = trainer::OptimizerOptions::Kind::kAdam;
  const bool known = (settings.model == "line" || settings.model == "fashion_mnist") &&
                     (settings.feed == "chief" || settings.feed == "shards") &&
                     (optimizer == "sgd" || optimizer == "adam");
  if (!known || settings.batch == 0 || settings.steps_to_validate == 0) {
    throw trainer::TrainerError(
        "use --model line or fashion_mnist, --feed chief or shards, --optimizer sgd or adam, and "
        "a --batch and --steps_to_validate from 1",
        trainer::kExitConfiguration);
  }
  if (!arguments.empty()) {
    throw trainer::TrainerError("there is no flag '" + arguments.front() + "' here",
                                trainer::kExitConfiguration);
  }
  return settings;
}

}  // namespace ronde::examples
