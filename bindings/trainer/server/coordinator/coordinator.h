// SPDX-License-Identifier: Apache-2.0
// The chief hands out steps by name, and free workers run them: all tasks run the same program,
// which knows the steps by their names.
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

// The argument or result of a step: a text and numbers.
struct Value {
  std::string text;
  std::vector<float> numbers;
};

// Runs on a worker; it may keep a data set, a model or a ParameterServer from call to call. fetch()
// throws its exceptions on the chief.
using Step = std::function<Value(const Value& argument)>;
using Steps = std::map<std::string, Step>;

// On a worker: runs steps until the coordinator ends. Calls `idle` once in each second-long pause
// (ParameterServer::leave(), so that no other worker waits for this one). Throws TrainerError after
// `deadline` seconds without a message of the coordinator.
void run_steps(const Tasks& tasks, const Steps& steps, const std::function<void()>& idle = {},
               double deadline = 60.0, const PrintLine& say = {});

// The same, step by step, for a loop of the program's own.
class StepsToRun {
 public:
  StepsToRun(const Tasks& tasks, double deadline, const PrintLine& say);
  StepsToRun(const StepsToRun&) = delete;
  StepsToRun& operator=(const StepsToRun&) = delete;
  ~StepsToRun();

  // The name and argument of the next step; none once the coordinator has ended.
  std::optional<std::pair<std::string, Value>> next(const std::function<void()>& idle = {});
  // The result of the last step; or, with `failed`, its error.
  void answer(Value result, const std::string& failed = {});

 private:
  class Inside;
  std::unique_ptr<Inside> inside_;
};

// A step that was scheduled.
struct Scheduled {
  std::uint64_t number = 0;
};

// On the chief. A step runs on any free worker. If that worker is lost, it runs again on another
// one: at least once, so a step that pushes may push twice. Its result counts once.
//
//   ParameterServer server(tasks, parameters, options);  // creates the variables
//   Coordinator coordinator(tasks);
//   coordinator.per_worker("make_data", {});
//   for (...) losses.push_back(coordinator.schedule("train", {}));
//   coordinator.join();
//   for (auto& loss : losses) coordinator.fetch(loss);
//
// Thread safety: belongs to one thread. It sends and receives only inside its calls.
class Coordinator {
 public:
  // Its calls throw TrainerError after `deadline` seconds without a message of any worker.
  explicit Coordinator(const Tasks& tasks, double deadline = 60.0, double worker_timeout = 5.0);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;
  ~Coordinator();  // ends the workers' loops

  // Returns at once. The step runs on `worker`, if there is one and it is not lost.
  Scheduled schedule(const std::string& step, const Value& argument = {},
                     std::optional<std::uint32_t> worker = {});
  // Waits for all scheduled steps. Throws the error of the first step that has failed.
  void join();
  // Waits for a step, and returns its result, once. Throws the step's error.
  Value fetch(Scheduled scheduled);
  // Runs a step on every worker with the same argument (to make data sets, for example), and again
  // on a worker that is started again later, before all other steps. Returns the results by worker.
  std::vector<Value> per_worker(const std::string& step, const Value& argument = {});

  // Runs a step on this worker only, and returns its result.
  Value run_on(std::uint32_t worker, const std::string& step, const Value& argument = {}) {
    return fetch(schedule_on(step, argument, worker));
  }

  // How many steps were taken from lost workers.
  [[nodiscard]] std::uint64_t retried() const;
  // Bytes of all steps and results that were sent, repeated ones included.
  [[nodiscard]] std::uint64_t bytes() const;

 private:
  struct Inside;
  Scheduled schedule_on(const std::string& step, const Value& argument,
                        std::optional<std::uint32_t> worker, bool must = true);
  void progress(double seconds);
  void require_news(double since) const;
  Message result_of(Scheduled scheduled);

  std::unique_ptr<Inside> inside_;
};

}  // namespace ronde::trainer::server
