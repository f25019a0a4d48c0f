// SPDX-License-Identifier: Apache-2.0
// Workers as devices, which the chief gives work to by name ("run on worker 1"), each step with the
// samples that it learns from: in-graph. Without --chief_hosts each worker has a loop of its own:
// between-graph. Both learn y = 2 x + 10 on servers; the last line says what a step has taken.
//
//   hosts="--ps_hosts 127.0.0.1:2222 --worker_hosts 127.0.0.1:2223,127.0.0.1:2224"
//   hosts="$hosts --chief_hosts 127.0.0.1:2225"           (or not)
//   named_workers $hosts --job_name ps, worker --task_index 0, worker --task_index 1, and chief
#include <cstdio>
#include <optional>
#include <ronde/parameter_server.hpp>
#include <ronde/trainer.hpp>
#include <span>
#include <string>
#include <vector>

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

namespace {

constexpr std::size_t kBatch = 64;  // of a worker
constexpr double kRate = 0.05;

// The inputs of a worker's step, and then the targets.
std::vector<float> samples_of(std::uint64_t step) {
  std::vector<float> samples(2 * kBatch);
  Generator generator(1, step);
  for (std::size_t i = 0; i < kBatch; ++i) {
    samples[i] = generator.uniform(-1.7F, 1.7F);
    samples[kBatch + i] = 2.0F * samples[i] + 10.0F + generator.uniform(-0.5F, 0.5F);
  }
  return samples;
}

// A task's connection to the variables.
struct Line {
  explicit Line(const server::Tasks& tasks) : servers(tasks, model.parameters(), {}) {}

  Sequential model{input({1}), dense(1).named("line")};
  server::ParameterServer servers;
  Tape tape;

  // What a worker does in a step: returns the loss.
  float learn(std::span<const float> samples) {
    servers.pull();
    tape.begin({.global_batch = kBatch});
    for (Parameter* const one : model.parameters()) one->begin_step();
    const Tensor output = model(tape.constant({kBatch, 1}, samples.first(kBatch)));
    const Loss loss = mean_squared_error(output, samples.subspan(kBatch));
    tape.backward(loss.value);
    (void)servers.push(static_cast<double>(kBatch), kRate);
    return loss.value.item();
  }
};

// The chief's loop: each worker learns once in a step. Returns the bytes that it has sent and got.
std::uint64_t give_work(const server::Tasks& tasks, std::size_t steps) {
  server::Coordinator coordinator(tasks);
  const auto workers = static_cast<std::uint32_t>(tasks.workers.size());
  for (std::uint32_t worker = 0; worker < workers; ++worker) {
    const std::string who = coordinator.run_on(worker, "who").text;
    std::printf("worker %u says: %s\n", worker, who.c_str());
  }
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<server::Scheduled> running;
    for (std::uint32_t worker = 0; worker < workers; ++worker) {
      const auto samples = samples_of(step * workers + worker);
      running.push_back(coordinator.schedule("learn", {"", samples}, worker));
    }
    for (const server::Scheduled& one : running) (void)coordinator.fetch(one);
  }
  return coordinator.bytes();
}

int work(const server::Tasks& tasks, std::size_t steps) {
  Line line(tasks);
  const bool by_name = !tasks.chief.empty();
  const double start = steady_seconds();
  std::uint64_t bytes = 0;
  if (tasks.role == server::Role::kChief) {
    line.servers.pull();  // makes the variables
    bytes = give_work(tasks, steps);
  } else if (by_name) {
    const auto learn = [&](const server::Value& samples) {
      return server::Value{"", {line.learn(samples.numbers)}};
    };
    const auto who = [&](const server::Value&) {
      return server::Value{server::text_of(tasks.self()), {}};
    };
    server::run_steps(tasks, {{"learn", learn}, {"who", who}}, [&] { line.servers.leave(); });
  } else {
    const std::size_t workers = tasks.workers.size();
    for (std::size_t step = 0; step < steps; ++step) {
      (void)line.learn(samples_of(step * workers + tasks.index));
    }
  }
  const double seconds = steady_seconds() - start;
  bytes += line.servers.bytes();
  (void)line.servers.finish();
  if (!tasks.is_chief()) return 0;
  const auto number = [&line](std::size_t i) {
    return static_cast<double>(line.model.parameters()[i]->value()[0]);
  };
  std::printf("way=%s workers=%zu steps=%zu step_ms=%.3f chief_bytes_per_step=%.0f ",
              by_name ? "by_name" : "between", tasks.workers.size(), steps,
              seconds * 1e3 / static_cast<double>(steps),
              static_cast<double>(bytes) / static_cast<double>(steps));
  std::printf("weight=%.4f bias=%.4f param_hash=%s\n", number(0), number(1),
              line.model.parameter_hash().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  server::TaskFlags task;
  std::size_t steps = 500;
  FlagTable flags("named_workers", "Gives work to workers by name, or lets each have a loop.");
  server::add_task_flags(flags, task);
  flags.add({{"steps", whole(steps, 1, UINT32_MAX), "steps of each worker"}});
  return report_errors(flags.program(), [&] {
    if (!flags.parse(argc, argv)) return 0;
    const std::optional<server::Tasks> tasks = server::tasks_of(task);
    if (!tasks) throw UsageError("which task is this? Use --ps_hosts, --worker_hosts, --job_name");
    if (tasks->role == server::Role::kServer) return server::serve(*tasks, {}), 0;
    return work(*tasks, steps);
  });
}
