// SPDX-License-Identifier: Apache-2.0
// A model whose variables live on servers: a worker pulls them, computes, and pushes gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bindings/trainer/chief/checkpoints.h"
#include "bindings/trainer/server/client.h"
#include "bindings/trainer/server/placement.h"
#include "bindings/trainer/server/protocol.h"
#include "bindings/trainer/server/tasks.h"

namespace ronde::trainer::server {

struct ParameterServerOptions {
  ModeOptions mode{};
  OptimizerOptions optimizer{};
  Partition partition{};
  std::vector<TableSpec> tables{};  // whole ones: row r lies on server r mod servers
  bool standby = false;
  std::string logdir{};                 // of the chief: its checkpoints; empty: none
  std::uint64_t save_steps = 0;         // of the global step; 0: at the end alone
  std::uint64_t batches_per_epoch = 0;  // of all workers, for a checkpoint's place; 0: no epochs
  std::size_t keep = 5;
  std::string restore = "auto";  // as SupervisorOptions
  Flags flags{};                 // what must be the same when a training goes on
  Flags alike{};                 // what tasks must have alike besides, where they say it
  bool accept_changes = false;
  double deadline = 60.0;       // seconds of silence of a server, or of all (a server ends)
  double worker_timeout = 5.0;  // seconds of silence after which nobody waits for a worker
  double server_timeout = 3.0;  // after which a standby takes over
  Say say{};

  // What must be the same on all tasks, as settings.
  [[nodiscard]] std::string job_of(const Tasks& tasks) const;
};

// Rows of a table that a step uses: their numbers in the whole table (one may come twice, and then
// gradients are summed), their values after a pull, and the gradients for a push.
struct Rows {
  std::size_t table = 0;
  std::vector<std::int64_t> ids;
  std::vector<float> values;
  std::vector<float> gradients;
};

// What the servers have counted.
struct ServerCounts {
  std::uint64_t global_step = 0;               // updates: of each push or, in sync, of each round
  std::vector<std::uint64_t> steps_by_worker;  // pushes that count, on the first server
  std::vector<std::uint64_t> dropped_by_worker;
  Histogram staleness{};
  std::uint32_t there = 0;     // workers that are at work
  std::uint32_t expected = 0;  // and that nobody has seen yet
  std::uint64_t most_ahead = 0;
  std::vector<std::string> lost{};  // workers that are gone without a word, or never came
  bool chief_is_heard = true;
  bool closed = false;
  bool created = false;  // it has variables

  // "0: 480, 1: 20".
  [[nodiscard]] std::string staleness_text() const;
};

// Serves as this task says, until the chief closes the job. Throws TrainerError where the port is
// taken, where nobody has said anything for options.deadline, and where another server has taken
// over.
void serve(const Tasks& tasks, const ParameterServerOptions& options);

// On a worker, the chief or an evaluator. The chief's first pull creates the variables, from the
// newest checkpoint or from its own parameters; the first pull of all others waits for that.
//
//   ParameterServer server(tasks, model.parameters(), options);
//   while (server.global_step() < steps) {
//     server.pull();
//     ... backward ...
//     server.push(samples, learning_rate);
//   }
//   server.finish();
//
// Gradients are means over the samples of the step. Each push and each pull copies a number once
// between a parameter and the memory that travels. In async and stale a step is not whole across
// servers: another worker's push may be between the parts of a pull.
//
// Thread safety: belongs to one thread.
class ParameterServer {
 public:
  // The parameters must outlive this object, and be the same on all tasks.
  ParameterServer(const Tasks& tasks, std::vector<Parameter*> parameters,
                  ParameterServerOptions options);
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;
  ~ParameterServer();

  // Writes the servers' values into the parameters, and those of rows into `rows`. Waits where the
  // mode says so. Throws TrainerError where a server refuses, or is silent until the deadline, and
  // for rows that no table has; with the exit code 0 where the chief has closed the job meanwhile,
  // which has not waited for this task as it was silent for long.
  void pull(std::span<Rows> rows = {});
  // Sends the gradients. False: it came too late for its round, and was dropped (backup workers).
  // Without samples it counts for nothing. Throws TrainerError for numbers that are not finite, a
  // number of samples below 0, and rows whose gradients are not `width` numbers for each id.
  bool push(double samples, double rate, std::span<const Rows> rows = {});

  // What the first server said at the last pull or push.
  [[nodiscard]] std::uint64_t global_step() const noexcept { return global_step_; }
  [[nodiscard]] bool is_chief() const noexcept { return chief_; }
  [[nodiscard]] ServerCounts counts();
  [[nodiscard]] static ServerCounts counts_of(const std::string& text);
  // Bytes of floats sent and received.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return client_.bytes(); }
  // Which variable is where, one line each.
  [[nodiscard]] const std::string& table() const noexcept { return table_; }
  [[nodiscard]] const Tasks& tasks() const noexcept { return tasks_; }

  // On the chief: writes a checkpoint in the format of a Supervisor's, with the moments, so that a
  // training may go on under another strategy. False where it cannot be written; a line says why.
  // Throws TrainerError where a value is not finite: it would take the place of a good one.
  bool save();
  // On the chief: where save_steps says so.
  void save_if_due();
  // Nobody waits for this worker's pushes any more; its next pull makes it a member again.
  void leave();
  // A worker is done. The chief waits until all others are done or gone, pulls the last values,
  // saves, closes the job and returns what the servers have counted; the others wait until it has,
  // and return nothing. Throws TrainerError where the chief is silent until the deadline, as then
  // nobody has kept the last state.
  ServerCounts finish();

 private:
  // Numbers of a group among this task's: `count` blocks of `size` floats, `step` apart.
  struct Stretch {
    float* first;
    std::size_t size;
    std::size_t step;
    std::size_t count;
  };

  [[nodiscard]] ClientOptions client_options();
  [[nodiscard]] std::string training() const;
  [[nodiscard]] VariableSpecs specs_of(std::uint32_t group) const;
  [[nodiscard]] std::vector<Stretch> state_of(std::uint32_t group);
  void wait_for_the_end();
  void compare_servers();
  [[nodiscard]] Message create(std::uint32_t group);
  void restore();
  void take_values(std::uint32_t group, const Message& values, std::span<Rows> rows);
  void check_rows(std::span<const Rows> rows, bool with_gradients) const;
  void check_push(double samples, double rate, std::span<const Rows> rows) const;
  [[nodiscard]] std::vector<std::int64_t> ids_of(std::uint32_t group,
                                                 std::span<const Rows> rows) const;
  void say(const std::string& line) const;
  // After a push: the gradients may be written again. One that is still being sent, once more or to
  // a server that does not answer, stays as it is, and the next gradients lie elsewhere.
  void end_loan();

  const Tasks tasks_;
  const std::vector<Parameter*> parameters_;
  const ParameterServerOptions options_;
  const std::uint32_t servers_;
  const bool chief_;
  const std::vector<Piece> pieces_;
  const std::string table_;
  // On the chief: all that a checkpoint holds.
  std::vector<std::unique_ptr<Parameter>> tables_;
  std::unique_ptr<Optimizer> mirror_;
  std::vector<StateTensor> tensors_;
  std::unique_ptr<Checkpoints> checkpoints_;
  bool restored_ = false;
  std::uint64_t first_step_ = 0;
  std::uint64_t saved_step_ = 0;
  std::vector<std::uint64_t> versions_;  // by group, as pulled
  bool has_compared_ = false;            // what the servers have
  std::vector<bool> dropped_;            // by group, since the last pull: a push
  std::uint64_t global_step_ = 0;
  Loan loan_;      // of gradients
  Client client_;  // its calls of create() come from this thread
};

}  // namespace ronde::trainer::server
