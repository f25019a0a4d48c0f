// SPDX-License-Identifier: Apache-2.0
// What each kind of task does in a training on servers.
#include "bindings/trainer/server/program/training.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <deque>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <ronde/ronde.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/trainer/loop/replica.h"
#include "bindings/trainer/server/coordinator/coordinator.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/tape.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer::server {

namespace {

[[noreturn]] void refuse_training(const std::string& text) {
  throw TrainerError(text, kExitConfiguration);
}

// What the chief sends for a step.
Value value_of(const Batch& batch, std::uint64_t epoch, double rate, std::uint64_t round) {
  const nlohmann::json rest{{"rate", rate},
                            {"round", round},
                            {"epoch", epoch},
                            {"shape", batch.shape},
                            {"labels", batch.labels},
                            {"targets", batch.targets},
                            {"samples", batch.samples},
                            {"repetitions", batch.repetitions}};
  return {rest.dump(), batch.inputs};
}

Batch batch_of(const nlohmann::json& rest, std::vector<float> inputs) {
  return {.shape = rest.at("shape").get<Shape>(),
          .inputs = std::move(inputs),
          .labels = rest.at("labels").get<std::vector<std::int32_t>>(),
          .targets = rest.at("targets").get<std::vector<float>>(),
          .samples = rest.at("samples").get<std::vector<std::uint32_t>>(),
          .repetitions = rest.at("repetitions").get<std::vector<std::uint32_t>>()};
}

// The batches of all epochs, one after the other, from where a training stands.
class Batches {
 public:
  Batches(Dataset data, std::uint64_t done)
      : data_(std::move(data)),
        epoch_(done / steps()),
        batches_(data_.epoch(epoch_, done % steps())) {}

  const StepBatch& next() {
    const StepBatch* found = batches_.next();
    if (found == nullptr) {
      batches_ = data_.epoch(++epoch_);
      found = batches_.next();
    }
    if (found == nullptr) refuse_training("there are no samples to train on: give some");
    return *found;
  }
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }

 private:
  [[nodiscard]] std::uint64_t steps() const {
    return std::max<std::uint64_t>(1, data_.steps().value_or(UINT64_MAX));
  }

  const Dataset data_;
  std::uint64_t epoch_;
  Epoch batches_;
};

std::string text_of_list(const std::vector<std::uint64_t>& numbers) {
  std::string text;
  for (const std::uint64_t one : numbers) text += (text.empty() ? "" : ",") + std::to_string(one);
  return text;
}

// A worker, the chief or the evaluator.
class Task {
 public:
  Task(const ServerSettings& settings, const ServerTraining& training, const Tasks& tasks,
       const ParameterServerOptions& options, std::optional<ServerData> data)
      : settings_(settings),
        training_(training),
        tasks_(tasks),
        options_(options),
        data_(std::move(data)),
        servers_(tasks, training.model.parameters(), options) {}

  void run() {
    if (servers_.is_chief()) std::printf("%s\n", servers_.table().c_str());
    const double start = steady_seconds();
    if (tasks_.role == Role::kEvaluator) {
      evaluate();
    } else if (tasks_.role == Role::kChief) {
      servers_.pull();  // creates the variables
      if (settings_.fed) feed();
    } else if (settings_.fed) {
      const auto leave = [this] { servers_.leave(); };
      run_steps(tasks_,
                {{"train", [this](const Value& value) { return step_of(value); }},
                 {"leave", [&](const Value&) { return leave(), Value{}; }}},
                in_sync() ? std::function<void()>() : leave, options_.deadline);
    } else {
      work();
    }
    double seconds = steady_seconds() - start;
    const auto bytes = static_cast<double>(servers_.bytes() + fed_bytes_);
    const ServerCounts counts = servers_.finish();
    // Workers with their own data are done only now.
    if (tasks_.role == Role::kChief && !settings_.fed) seconds = steady_seconds() - start;
    if (servers_.is_chief()) return print_result(counts, seconds, bytes);
    std::printf("pushed %ju times\n", std::uintmax_t{pushes_});
  }

 private:
  [[nodiscard]] bool in_sync() const { return options_.mode.mode == Mode::kSync; }

  Loss forward(const Batch& batch, const Pass& pass) {
    tape_.begin(pass);
    return training_.loss(training_.model(tape_.borrow(batch.shape, batch.inputs)), batch,
                          std::max<std::size_t>(1, batch.size()));
  }

  // Pushes the gradients of the mean loss of these samples, and returns that.
  double step(const Batch& batch, std::uint64_t epoch, double rate) {
    double mean = 0.0;
    for (Parameter* const one : training_.model.parameters()) one->begin_step();
    if (batch.size() != 0) {
      const Loss loss =
          forward(batch, {true, training_.seed, epoch, batch.samples, batch.repetitions});
      mean = loss.sum / static_cast<double>(batch.size());
      if (!std::isfinite(mean)) {
        refuse_training("the loss is not a finite number, first after " + tape_.first_not_finite() +
                        ": use a smaller learning rate");
      }
      tape_.backward(loss.value);
    }
    if (settings_.slow_ms > 0.0) {
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(settings_.slow_ms));
    }
    (void)servers_.push(static_cast<double>(batch.size()), rate);
    if (batch.size() != 0) ++pushes_;
    return mean;
  }

  // Between-graph: this worker reads its own share of each batch.
  void work() {
    servers_.pull();
    const std::size_t workers = tasks_.workers.size();
    Batches batches(data_->data.shard(tasks_.index, workers),
                    servers_.global_step() / (in_sync() ? 1 : workers));
    while (servers_.global_step() < data_->steps) {
      const Batch& batch = batches.next().parts.front();
      const std::uint64_t at = servers_.global_step();
      const double loss = step(batch, batches.epoch(), learning_rate(data_->schedule, at));
      if (is_due(at)) print_step(at, loss);
      servers_.save_if_due();
      servers_.pull();
    }
  }

  // In-graph: a step that the chief has sent.
  Value step_of(const Value& value) {
    const auto rest = nlohmann::json::parse(value.text);
    const std::uint64_t round = rest.at("round");
    servers_.pull();
    // A round is the parts of one batch. One that was away has parts of later rounds alone, and the
    // round that it takes part in again has none for it; or it is over without this part.
    while (in_sync() && servers_.global_step() < round) {
      (void)servers_.push(0.0, rest.at("rate"));
      servers_.pull();
    }
    if (in_sync() && servers_.global_step() > round) return {};
    return {"",
            {static_cast<float>(
                step(batch_of(rest, value.numbers), rest.at("epoch"), rest.at("rate")))}};
  }

  // In-graph, on the chief: parts of batches go to any worker that is free; in sync each worker
  // gets its own part of each.
  void feed() {
    Coordinator coordinator(tasks_, options_.deadline, options_.worker_timeout);
    const std::size_t workers = tasks_.workers.size();
    const std::uint64_t pushes = in_sync() ? workers : 1;  // of a step
    const std::uint64_t every = training_.print_every == 0 ? 100 : training_.print_every;
    std::deque<Scheduled> running;
    std::uint64_t done = 0;
    double loss = 0.0;
    const auto finish_one = [&] {
      const std::vector<float> found = coordinator.fetch(running.front()).numbers;
      if (!found.empty()) loss = found.front();
      running.pop_front();
      if (++done % (pushes * every) != 0) return;
      servers_.pull();
      if (training_.print_every != 0) print_step(servers_.global_step(), loss);
      servers_.save_if_due();
    };
    std::uint64_t at = servers_.global_step() * pushes;
    Batches batches(data_->data.shard(0, 1, workers), at / workers);
    while (at < data_->steps * pushes) {
      std::uint32_t worker = 0;
      for (const Batch& batch : batches.next().parts) {
        const std::optional<std::uint32_t> its = in_sync() ? std::optional(worker++) : std::nullopt;
        if (at == data_->steps * pushes || (batch.size() == 0 && !its)) continue;
        const std::uint64_t round = at++ / pushes;
        const double rate = learning_rate(data_->schedule, round);
        running.push_back(
            coordinator.schedule("train", value_of(batch, batches.epoch(), rate, round), its));
        if (running.size() > 4 * workers) finish_one();
      }
    }
    // Nobody waits for one that has had fewer parts, since it was away.
    std::vector<Scheduled> leaving;
    for (std::uint32_t i = 0; in_sync() && i < workers; ++i) {
      leaving.push_back(coordinator.schedule("leave", {}, i));
    }
    while (!running.empty()) finish_one();
    for (const Scheduled one : leaving) (void)coordinator.fetch(one);
    retried_ = coordinator.retried();
    fed_bytes_ = coordinator.bytes();
  }

  // Looks at the variables as they are, once a second, until the last step.
  void evaluate() {
    while (true) {
      servers_.pull();
      const Metrics found = score();
      print_step(servers_.global_step(), found.loss(),
                 classifies() ? ", accuracy: " + std::to_string(found.accuracy()) : "");
      if (servers_.global_step() >= data_->steps) return;
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  }

  Metrics score() {
    Metrics all;
    Epoch batches = data_->test.epoch(0);
    while (const StepBatch* const next = batches.next()) {
      for (const Batch& part : next->parts) {
        all.add(metrics_of(forward(part, {.training = false, .samples = part.samples})));
      }
    }
    return all;
  }

  [[nodiscard]] bool classifies() const { return data_->test.format().classes > 0; }

  [[nodiscard]] bool is_due(std::uint64_t step) {
    if (training_.print_every == 0 || step < next_print_) return false;
    next_print_ = step - step % training_.print_every + training_.print_every;
    return true;
  }

  // "weight: 2.0000, bias: 10.0000, ".
  [[nodiscard]] std::string watched(const char* is, const char* format, const char* end) const {
    std::string text;
    for (const auto& [name, number] : training_.watch) {
      text += name + is + formatted(format, static_cast<double>(*number)) + end;
    }
    return text;
  }

  static void print(const std::string& lines) {
    std::fputs(lines.c_str(), stdout);
    std::fflush(stdout);
  }

  void print_step(std::uint64_t step, double loss, const std::string& more = "") const {
    print("step " + std::to_string(step) + ", " + watched(": ", "%.4f", ", ") +
          formatted("loss: %.9g", loss) + more + '\n');
  }

  void print_result(const ServerCounts& counts, double seconds, double bytes) {
    const std::vector<std::uint64_t>& by_worker = counts.steps_by_worker;
    const std::uint64_t pushes = std::reduce(by_worker.begin(), by_worker.end());
    const std::size_t workers = tasks_.workers.size();
    // A chief that feeds takes part in every step, and another one, worker 0, in its own.
    const std::uint64_t steps = settings_.fed ? pushes : by_worker.at(0);
    const double samples =
        static_cast<double>(pushes * data_->data.global_batch()) / static_cast<double>(workers);
    print("staleness " + counts.staleness_text() + '\n');
    std::string line = formatted(
        "mode=%s workers=%zu servers=%zu global_step=%ju pushes=%s dropped=%s most_ahead=%ju "
        "retried=%ju seconds=%.3f samples_per_second=%.1f chief_bytes_per_step=%.0f %s",
        text_of(options_.mode).c_str(), workers, tasks_.servers.size(),
        std::uintmax_t{counts.global_step}, text_of_list(by_worker).c_str(),
        text_of_list(counts.dropped_by_worker).c_str(), std::uintmax_t{counts.most_ahead},
        std::uintmax_t{retried_}, seconds, samples / seconds,
        bytes / static_cast<double>(std::max<std::uint64_t>(1, steps)),
        watched("=", "%.6f", " ").c_str());
    if (classifies()) line += formatted("test_accuracy=%.4f ", score().accuracy());
    print(line + "param_hash=" + training_.model.parameter_hash() + '\n');
  }

  const ServerSettings& settings_;
  const ServerTraining& training_;
  const Tasks& tasks_;
  const ParameterServerOptions& options_;
  const std::optional<ServerData> data_;  // none: the chief sends it
  ParameterServer servers_;
  Tape tape_;
  std::uint64_t pushes_ = 0;  // of this task
  std::uint64_t retried_ = 0;
  std::uint64_t fed_bytes_ = 0;  // between this chief and the workers that it feeds
  std::uint64_t next_print_ = 0;
};

Tasks tasks_of_job(std::uint32_t servers) {
  Engine engine;  // for the addresses alone
  EngineReplica replica(engine);
  Tasks tasks = tasks_of_ranks(replica, servers);
  replica.barrier("server/tasks");
  return tasks;
}

void check_training(const ServerSettings& settings, const ServerTraining& training,
                    const Tasks& tasks) {
  const std::uint32_t backups = settings.options.mode.backup_workers;
  if (settings.fed && tasks.chief.empty()) {
    refuse_training(
        "--feed chief needs a task that is the chief and no worker: name it in --chief_hosts");
  }
  if (backups >= tasks.workers.size()) {
    refuse_training("--backup_workers is " + std::to_string(backups) + " of " +
                    std::to_string(tasks.workers.size()) +
                    " workers: one must be left to wait for");
  }
  if (!training.model.statistics().empty()) {
    refuse_training(
        "running statistics, as those of batch normalisation, are not kept on servers: use a "
        "model without them");
  }
}

}  // namespace

int train_on_servers(const ServerSettings& settings, const ServerTraining& training) {
  const Tasks tasks = settings.tasks ? *settings.tasks : tasks_of_job(settings.servers);
  check_training(settings, training, tasks);
  ParameterServerOptions options = settings.options;
  if (tasks.role == Role::kServer) return serve(tasks, options), 0;
  options.optimizer = training.optimizer;
  options.logdir = training.chief.logdir;
  options.save_steps = training.chief.save_steps;
  options.keep = training.chief.keep;
  options.restore = training.chief.restore;
  options.accept_changes = training.chief.accept_changes;
  options.alike = {{"--seed", std::to_string(training.seed)}};
  std::optional<ServerData> data;
  if (!settings.fed || tasks.role != Role::kWorker) {
    const std::size_t workers = tasks.workers.size();
    data = training.data(workers, options.mode.mode == Mode::kSync ? 1 : workers);
    options.flags = data->same;
    options.flags.emplace_back("steps", text_of(data->schedule));
    options.alike.emplace_back("--steps", std::to_string(data->steps));
    options.alike.emplace_back("--global-batch", std::to_string(data->data.global_batch()));
    options.batches_per_epoch = data->data.steps().value_or(0);
  }
  Task(settings, training, tasks, options, std::move(data)).run();
  return 0;
}

}  // namespace ronde::trainer::server
