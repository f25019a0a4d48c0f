// SPDX-License-Identifier: Apache-2.0
// Training with parameter servers, started by hand in as many shells as there are tasks:
//
//   hosts="--ps_hosts 127.0.0.1:2222 --worker_hosts 127.0.0.1:2223,127.0.0.1:2224"
//   parameter_server $hosts --job_name ps
//   parameter_server $hosts --job_name worker --task_index 0
//   parameter_server $hosts --job_name worker --task_index 1
//
// or with mpirun and --servers 1, whose last rank serves; --strategy ring has no servers, but ranks
// that average their gradients. --model line learns y = 2 x + 10, and
// --model fashion_mnist a perceptron; --mode is sync, async or stale=2; --feed chief has the chief
// send the batches.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <ronde/parameter_server.hpp>
#include <ronde/trainer.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bindings/trainer/tensor/random.h"
#include "examples/support/parameter_server_settings.h"

namespace {

namespace trainer = ronde::trainer;
namespace server = ronde::trainer::server;
using ronde::examples::Settings;

// The model, its data and its loss.
class Job {
 public:
  explicit Job(const Settings& settings) : settings_(settings) {
    if (settings.model == "line") {
      line_ = std::make_unique<trainer::Linear>("line", 1, 1, trainer::Initialization::kGlorot,
                                                settings.seed);
      model_.emplace(*line_);
    } else {
      perceptron_ = trainer::make_mlp(784, 128, 10, settings.seed);
      model_.emplace(*perceptron_);
    }
  }

  [[nodiscard]] const trainer::Model& model() const { return *model_; }

  // What `worker` of `workers` trains on: its share of every epoch's batches.
  [[nodiscard]] trainer::Dataset data(std::size_t worker, std::size_t workers) {
    const std::size_t batch = settings_.batch * workers;
    if (perceptron_ != nullptr) {
      load();
      return trainer::Dataset::from_images(images_->train, trainer::ImageShape::kFlat)
          .shuffle(settings_.seed)
          .batch(batch)
          .shard(worker, workers);
    }
    const std::size_t samples = batch * 1000;
    const auto draw = [seed = settings_.seed, samples](std::uint64_t epoch, std::size_t index,
                                                       const trainer::SampleRoom& room) {
      trainer::Generator generator(seed, epoch * samples + index);
      const float x = generator.uniform(-1.7F, 1.7F);  // of deviation 1
      room.input[0] = x;
      room.targets[0] = 2.0F * x + 10.0F + generator.uniform(-0.3F, 0.3F);
      return true;
    };
    return trainer::Dataset::from_generator({.shape = {1}, .classes = 0, .targets = 1}, draw,
                                            samples)
        .batch(batch)
        .shard(worker, workers);
  }

  // Gradients of the mean loss of these samples; returns that. `ring`: they are of `global_batch`
  // samples over all ranks, and summed over them.
  double backward(const trainer::Batch& batch, trainer::DistributedOptimizer* ring = nullptr,
                  std::size_t global_batch = 0) {
    if (ring == nullptr) {
      for (trainer::Parameter* const one : model_->parameters()) one->begin_step();
      if (batch.size() == 0) return 0.0;
    }
    const std::size_t divisor = ring == nullptr ? batch.size() : global_batch;
    tape_.begin({.epoch = 0, .samples = batch.samples, .repetitions = batch.repetitions});
    const trainer::Tensor outputs = (*model_)(tape_.borrow(batch.shape, batch.inputs));
    const trainer::Loss loss = line_
                                   ? trainer::mean_squared_error(outputs, batch.targets, divisor)
                                   : trainer::softmax_cross_entropy(outputs, batch.labels, divisor);
    if (ring != nullptr) {
      ring->backward(tape_, loss);
    } else {
      tape_.backward(loss.value);
    }
    if (settings_.slow_ms > 0.0) {
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(settings_.slow_ms));
    }
    return loss.sum / static_cast<double>(std::max<std::size_t>(1, batch.size()));
  }

  // The share of test images that are classified correctly.
  double accuracy() {
    if (line_) return 0.0;
    load();
    trainer::Metrics all;
    trainer::Epoch epoch = trainer::Dataset::from_images(images_->test, trainer::ImageShape::kFlat)
                               .batch(500)
                               .epoch(0);
    while (const trainer::StepBatch* const step = epoch.next()) {
      const trainer::Batch& batch = step->parts.front();
      tape_.begin({.training = false, .samples = batch.samples});
      const trainer::Tensor outputs = (*model_)(tape_.borrow(batch.shape, batch.inputs));
      const auto loss = trainer::softmax_cross_entropy(outputs, batch.labels, batch.size());
      all.add(loss.sum, loss.correct, loss.samples);
    }
    return all.accuracy();
  }

 private:
  void load() {
    if (!images_) images_ = trainer::load_fashion_mnist(settings_.data);
  }

  const Settings& settings_;
  std::unique_ptr<trainer::Linear> line_;
  std::unique_ptr<trainer::Sequential> perceptron_;
  std::optional<trainer::Model> model_;
  std::optional<trainer::FashionMnist> images_;
  trainer::Tape tape_;
};

void print_step(const Settings& settings, const Job& job, std::uint64_t step, double loss) {
  if (settings.model == "line") {
    const auto& parameters = job.model().parameters();
    std::printf("step %ju, weight: %.4f, bias: %.4f, loss: %.6g\n", std::uintmax_t{step},
                parameters[0]->value()[0], parameters[1]->value()[0], loss);
  } else {
    std::printf("step %ju, loss: %.6g\n", std::uintmax_t{step}, loss);
  }
  std::fflush(stdout);
}

// Between-graph: each worker reads its own share and asks the servers.
// Returns how often it has pushed.
std::uint64_t work_on_shards(const Settings& settings, Job& job, server::ParameterServer& servers) {
  const server::Tasks& tasks = servers.tasks();
  const trainer::Dataset data = job.data(tasks.index, tasks.workers.size());
  std::uint64_t next_print = 0;
  std::uint64_t pushes = 0;
  for (std::uint64_t epoch = 0; servers.global_step() < settings.steps; ++epoch) {
    trainer::Epoch batches = data.epoch(epoch);
    while (const trainer::StepBatch* const step = batches.next()) {
      servers.pull();
      const std::uint64_t at = servers.global_step();
      if (at >= settings.steps) break;
      const trainer::Batch& batch = step->parts.front();
      const double loss = job.backward(batch);
      (void)servers.push(static_cast<double>(batch.size()), settings.learning_rate);
      ++pushes;
      if (servers.is_chief() && at >= next_print) {
        next_print = at - at % settings.steps_to_validate + settings.steps_to_validate;
        print_step(settings, job, at, loss);
      }
      servers.save_if_due();
    }
  }
  return pushes;
}

// Looks at the variables as they are, once a second, until the last step. The chief waits for it.
void evaluate(const Settings& settings, Job& job, server::ParameterServer& servers) {
  const trainer::Dataset data = job.data(0, 1);
  while (true) {
    servers.pull();
    trainer::Epoch batches = data.epoch(std::uint64_t{1} << 32U);  // that nobody trains on
    const double loss = job.backward(batches.next()->parts.front());
    const std::uint64_t step = servers.global_step();
    print_step(settings, job, step, loss);
    if (settings.model != "line")
      std::printf("accuracy at step %ju: %.4f\n", std::uintmax_t{step}, job.accuracy());
    if (step >= settings.steps) return;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

// In-graph: the chief reads all data, and sends each worker a batch for each step.
server::Steps steps_of(const Settings& settings, Job& job, server::ParameterServer& servers) {
  return {{"train", [&](const server::Value& value) -> server::Value {
             trainer::Batch batch;
             const std::size_t samples = std::stoul(value.text);
             const std::size_t each = value.numbers.size() / samples;
             const bool is_line = settings.model == "line";
             for (std::size_t i = 0; i < samples; ++i) {
               const float* const from = value.numbers.data() + i * each;
               batch.inputs.insert(batch.inputs.end(), from, from + each - 1);
               if (is_line) batch.targets.push_back(from[each - 1]);
               if (!is_line) batch.labels.push_back(static_cast<std::int32_t>(from[each - 1]));
               batch.samples.push_back(static_cast<std::uint32_t>(i));
             }
             batch.repetitions.resize(samples);
             batch.shape = {samples, each - 1};
             servers.pull();
             const auto loss = static_cast<float>(job.backward(batch));
             (void)servers.push(static_cast<double>(samples), settings.learning_rate);
             return {"", {loss}};
           }}};
}

std::uint64_t feed(const Settings& settings, Job& job, server::ParameterServer& servers) {
  server::Coordinator coordinator(servers.tasks(), settings.options.deadline,
                                  settings.options.worker_timeout);
  const std::size_t workers = servers.tasks().workers.size();
  const trainer::Dataset data = job.data(0, 1);  // batches of one worker
  std::uint64_t done = 0;
  const bool is_sync = settings.options.mode.mode == server::Mode::kSync;
  const std::uint64_t all = settings.steps * (is_sync ? workers : 1);
  for (std::uint64_t epoch = 0; done < all; ++epoch) {
    trainer::Epoch batches = data.epoch(epoch);
    std::vector<server::Scheduled> losses;
    while (const trainer::StepBatch* const step = batches.next()) {
      if (done + losses.size() >= all) break;
      const trainer::Batch& batch = step->parts.front();
      const std::size_t each = batch.inputs.size() / batch.size();
      server::Value value{std::to_string(batch.size()), {}};
      for (std::size_t i = 0; i < batch.size(); ++i) {
        const auto from = batch.inputs.begin() + static_cast<std::ptrdiff_t>(i * each);
        value.numbers.insert(value.numbers.end(), from, from + static_cast<std::ptrdiff_t>(each));
        value.numbers.push_back(batch.targets.empty() ? static_cast<float>(batch.labels[i])
                                                      : batch.targets[i]);
      }
      losses.push_back(coordinator.schedule("train", value));
      if (losses.size() < settings.steps_to_validate) continue;
      const float loss = coordinator.fetch(losses.back()).numbers.at(0);
      for (std::size_t i = 0; i + 1 < losses.size(); ++i) (void)coordinator.fetch(losses[i]);
      done += losses.size();
      losses.clear();
      servers.pull();
      print_step(settings, job, servers.global_step(), loss);
      servers.save_if_due();
    }
    for (const auto& one : losses) (void)coordinator.fetch(one);
    done += losses.size();
  }
  return coordinator.retried();
}

// The same job without servers: each rank is a worker, and gradients are averaged over the ranks.
void train_by_ring(const Settings& settings) {
  Job job(settings);  // outlives the engine, which reads its gradients
  ronde::Engine engine;
  trainer::EngineReplica replica(engine);
  const trainer::Model& model = job.model();
  const auto optimizer = trainer::make_optimizer(settings.options.optimizer, model.parameters());
  trainer::DistributedOptimizer ring(engine, model.parameters(), {}, *optimizer,
                                     {.schedule = {.learning_rate = settings.learning_rate}});
  trainer::SupervisorOptions options;
  options.logdir = settings.options.logdir;
  options.restore = settings.options.restore;
  trainer::Supervisor supervisor(replica, model, *optimizer, options);
  const auto ranks = static_cast<std::size_t>(replica.size());
  const double start = trainer::steady_seconds();
  supervisor.managed_session([&] {
    ring.broadcast_state();
    const trainer::Dataset data = job.data(static_cast<std::size_t>(replica.rank()), ranks);
    for (std::uint64_t epoch = 0; supervisor.global_step() < settings.steps; ++epoch) {
      trainer::Epoch batches = data.epoch(epoch);
      while (const trainer::StepBatch* const step = batches.next()) {
        const std::uint64_t at = supervisor.global_step();
        if (at >= settings.steps || supervisor.should_stop()) return;
        const double loss = job.backward(step->parts.front(), &ring, step->global_size);
        if (replica.is_chief() && at % settings.steps_to_validate == 0) {
          print_step(settings, job, at, loss);
        }
        ring.step();
        supervisor.step_done();
      }
    }
  });
  const double seconds = trainer::steady_seconds() - start;
  if (!replica.is_chief()) return;
  const auto samples = static_cast<double>(supervisor.global_step() * settings.batch * ranks);
  std::size_t numbers = 0;
  for (const trainer::Parameter* const one : model.parameters()) numbers += one->size();
  std::printf(
      "mode=ring ranks=%zu global_step=%ju seconds=%.3f samples_per_second=%.1f "
      "chief_bytes_per_step=%zu accuracy=%.4f param_hash=%s\n",
      ranks, std::uintmax_t{supervisor.global_step()}, seconds, samples / seconds,
      2 * numbers * sizeof(float) * (ranks - 1) / ranks, job.accuracy(),
      model.parameter_hash().c_str());
}

void check(const Settings& settings, const server::Tasks& tasks) {
  if (settings.feed == "chief" && tasks.chief.empty()) {
    throw trainer::TrainerError(
        "--feed chief needs a task that is the chief and no worker: name it in --chief_hosts",
        trainer::kExitConfiguration);
  }
  if (settings.options.mode.backup_workers >= tasks.workers.size()) {
    throw trainer::TrainerError(
        "--backup_workers is " + std::to_string(settings.options.mode.backup_workers) + " of " +
            std::to_string(tasks.workers.size()) + " workers: one must be left to wait for",
        trainer::kExitConfiguration);
  }
}

void train(const Settings& settings, const server::Tasks& tasks) {
  check(settings, tasks);
  if (tasks.role == server::Role::kServer) return serve(tasks, settings.options);
  Job job(settings);
  server::ParameterServer servers(tasks, job.model().parameters(), settings.options);
  if (servers.is_chief()) std::printf("%s\n", servers.table().c_str());
  const double start = trainer::steady_seconds();
  std::uint64_t retried = 0;
  std::uint64_t pushes_here = 0;
  if (settings.feed == "chief" && tasks.role == server::Role::kWorker) {
    const server::Steps steps = steps_of(settings, job, servers);
    run_steps(tasks, steps, [&servers] { servers.leave(); }, settings.options.deadline);
  } else if (settings.feed == "chief" && tasks.role == server::Role::kChief) {
    servers.pull();  // creates the variables
    retried = feed(settings, job, servers);
  } else if (tasks.role == server::Role::kWorker) {
    pushes_here = work_on_shards(settings, job, servers);
  } else if (tasks.role == server::Role::kEvaluator) {
    evaluate(settings, job, servers);
  } else if (servers.is_chief()) {
    servers.pull();
  }
  const double seconds = trainer::steady_seconds() - start;
  const double bytes = static_cast<double>(servers.bytes());
  const server::ServerCounts counts = servers.finish();
  if (!servers.is_chief())
    return (void)std::printf("pushed %ju times\n", std::uintmax_t{pushes_here});
  const auto list = [](const std::vector<std::uint64_t>& numbers) {
    std::string text;
    for (const std::uint64_t one : numbers) text += (text.empty() ? "" : ",") + std::to_string(one);
    return text;
  };
  std::printf("staleness %s\n", counts.staleness_text().c_str());
  const std::uint64_t pushes =
      std::reduce(counts.steps_by_worker.begin(), counts.steps_by_worker.end());
  std::printf(
      "mode=%s workers=%zu servers=%zu global_step=%ju pushes=%s dropped=%s most_ahead=%ju "
      "retried=%ju seconds=%.3f samples_per_second=%.1f chief_bytes_per_step=%.0f",
      server::text_of(settings.options.mode).c_str(), tasks.workers.size(), tasks.servers.size(),
      std::uintmax_t{counts.global_step}, list(counts.steps_by_worker).c_str(),
      list(counts.dropped_by_worker).c_str(), std::uintmax_t{counts.most_ahead},
      std::uintmax_t{retried}, seconds, static_cast<double>(pushes * settings.batch) / seconds,
      bytes / static_cast<double>(std::max<std::uint64_t>(1, counts.steps_by_worker[0])));
  const auto& parameters = job.model().parameters();
  if (settings.model == "line") {
    std::printf(" weight=%.6f bias=%.6f", parameters[0]->value()[0], parameters[1]->value()[0]);
  } else {
    std::printf(" accuracy=%.4f", job.accuracy());
  }
  std::printf(" param_hash=%s\n", job.model().parameter_hash().c_str());
  std::fflush(stdout);
}

void run(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  std::optional<server::Tasks> tasks = server::tasks_of(arguments);
  const bool is_ring = server::take_flag(arguments, "strategy").value_or("server") == "ring";
  const Settings settings = ronde::examples::settings_of(std::move(arguments));
  if (is_ring) return train_by_ring(settings);
  if (!tasks && settings.servers > 0) {
    ronde::Engine engine;  // for the addresses alone
    trainer::EngineReplica replica(engine);
    tasks = server::tasks_of_ranks(replica, static_cast<std::uint32_t>(settings.servers));
    replica.barrier("server/tasks");
  }
  if (!tasks) {
    throw trainer::TrainerError(
        "which task is this? Use --ps_hosts, --worker_hosts, --job_name and --task_index, or "
        "TF_CONFIG, or mpirun and --servers 1",
        trainer::kExitConfiguration);
  }
  train(settings, *tasks);
}

}  // namespace

int main(int argc, char** argv) try { run(argc, argv); } catch (const std::exception& error) {
  std::fprintf(stderr, "parameter_server: %s\n", error.what());
  return trainer::exit_code_of(error);
}
