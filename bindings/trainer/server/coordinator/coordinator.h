// SPDX-License-Identifier: Apache-2.0
// One task, the chief, hands out steps; workers run whatever comes. C++ ships no code: all tasks
// run one program, which names its steps.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/server/parameter_server.h"

namespace ronde::trainer::server {

// What a step gets and returns: a text and numbers.
struct Value {
  std::string text;
  std::vector<float> numbers;
};

// Called on a worker, which may keep what it needs (a data set, a model, its ParameterServer) from
// one call to the next. What it throws is thrown by fetch().
using Step = std::function<Value(const Value& argument)>;
using Steps = std::map<std::string, Step>;

// On a worker: runs steps until the coordinator ends. `idle` is called once where nothing came for
// a second (ParameterServer::leave(), so that a round of sync is not held up). Throws TrainerError
// where the coordinator has been silent for `deadline` seconds.
void run_steps(const Tasks& tasks, const Steps& steps, const std::function<void()>& idle = {},
               double deadline = 60.0, const Say& say = {});

// The same for a loop of the program's own, which takes the steps one by one.
class StepsToRun {
 public:
  StepsToRun(const Tasks& tasks, double deadline, const Say& say);
  StepsToRun(const StepsToRun&) = delete;
  StepsToRun& operator=(const StepsToRun&) = delete;
  ~StepsToRun();

  // The next one: its name and argument. None, and none any more, where the coordinator has ended.
  std::optional<std::pair<std::string, Value>> next(const std::function<void()>& idle = {});
  // What the last one returns; or, with `failed`, why it has failed.
  void answer(Value result, const std::string& failed = {});

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

// A step that was scheduled.
struct Scheduled {
  std::uint64_t number = 0;
};

// On the chief. A step runs on any free worker. One whose worker is lost runs again on another one:
// at least once, so that a step that pushes may push twice. Its result counts once.
//
//   ParameterServer server(tasks, parameters, options);  // creates the variables
//   Coordinator coordinator(tasks);
//   coordinator.per_worker("make_data", {});
//   for (...) losses.push_back(coordinator.schedule("train", {}));
//   coordinator.join();
//   for (auto& loss : losses) coordinator.fetch(loss);
//
// Thread safety: belongs to one thread. Progress is made inside its calls.
class Coordinator {
 public:
  // Waits at most `deadline` seconds for a first, or any, worker.
  explicit Coordinator(const Tasks& tasks, double deadline = 60.0, double worker_timeout = 5.0);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;
  ~Coordinator();  // lets the workers end

  // Returns at once. With a `worker` that one runs it, unless it is lost.
  Scheduled schedule(const std::string& step, const Value& argument = {},
                     std::optional<std::uint32_t> worker = {});
  // Until all that was scheduled is done. Throws what the first failed step has thrown.
  void join();
  // The result of a step, once it is there. Throws what the step has thrown. Once for each.
  Value fetch(Scheduled scheduled);
  // Runs a step on every worker with the same argument, and once more on one that is started again
  // later, before anything else: data sets, say. Returns the results by worker.
  std::vector<Value> per_worker(const std::string& step, const Value& argument = {});

  // On this worker and no other.
  class OnWorker {
   public:
    [[nodiscard]] Value run(const std::string& step, const Value& argument = {}) const {
      return coordinator_.fetch(coordinator_.schedule_on(step, argument, worker_));
    }

   private:
    friend class Coordinator;
    OnWorker(Coordinator& coordinator, std::uint32_t worker)
        : coordinator_(coordinator), worker_(worker) {}
    Coordinator& coordinator_;
    std::uint32_t worker_;
  };
  [[nodiscard]] OnWorker on(std::uint32_t worker) { return {*this, worker}; }

  // How often a step was taken from a lost worker.
  [[nodiscard]] std::uint64_t retried() const;
  // Bytes of the texts and numbers of steps, each time that they are sent, and of their results.
  [[nodiscard]] std::uint64_t bytes() const;

 private:
  struct Inside;
  Scheduled schedule_on(const std::string& step, const Value& argument,
                        std::optional<std::uint32_t> worker, bool must = true);
  void progress(double seconds);

  std::unique_ptr<Inside> inside_;
};

}  // namespace ronde::trainer::server
