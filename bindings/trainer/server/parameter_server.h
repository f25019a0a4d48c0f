// SPDX-License-Identifier: Apache-2.0
// A model whose variables live on servers: a worker pulls them, computes, and pushes gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bindings/trainer/fit/agreement.h"
#include "bindings/trainer/optim/update_rule.h"
#include "bindings/trainer/server/client.h"
#include "bindings/trainer/server/placement.h"
#include "bindings/trainer/server/protocol.h"
#include "bindings/trainer/server/tasks.h"

namespace ronde::trainer::server {

struct ParameterServerOptions {
  ModeOptions mode{};
  RuleOptions optimizer{};
  double clip = 0.0;  // in sync: the largest norm of a round; 0: whatever it is
  Partition partition{};
  std::vector<TableSpec> tables{};  // whole ones: row r lies on server r mod servers
  bool standby = false;
  // Numbers that travel beside the parameters: see VariableSpec::statistic.
  std::vector<StateTensor> statistics{};
  // On the chief: the optimiser of the parameters that state() fills with what the servers' own has
  // kept. It must outlive the ParameterServer. Null: the ParameterServer makes one.
  UpdateRule* mirror = nullptr;
  Flags alike{};                // what tasks must have alike besides, where they say it
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
  std::uint64_t end = 0;  // see ParameterServer::say_end()
  bool created = false;   // it has variables

  // "0:480,1:20".
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

  // On the chief, before its first pull: the parameters and what the mirror has kept are of this
  // step.
  void restored(std::uint64_t step);
  // On the chief: a group whose server begins anew goes on from the checkpoint at the path that
  // this returns; null: from what the chief has.
  void set_saved(std::function<std::string()> path) { saved_ = std::move(path); }
  // On the chief: all values, and what the servers' optimisers have kept, as of global_step().
  // Throws TrainerError where a number is not finite.
  void state();
  // What tasks say to each other of the end of a training, a number that only grows; the largest
  // comes with each pull and push.
  void say_end(std::uint64_t end);
  [[nodiscard]] std::uint64_t end() const noexcept { return end_; }
  // Nobody waits for this worker's pushes any more, and its pulls are those of one that looks on,
  // until its next push, or join() before a pull.
  void leave();
  void join() noexcept { left_ = false; }
  // On the chief: until no other is at work, whatever it does meanwhile. Returns what the servers
  // have counted.
  ServerCounts wait_for_workers();
  // On the chief: the servers end, and the tasks that wait for that.
  void close();
  // Another task waits for that, or for an end() of at least so much. Throws TrainerError where the
  // chief is silent until the deadline, as then nobody has kept the last state.
  void wait_for(std::uint64_t end);
  // All of the above in their order, and a last pull on the chief.
  ServerCounts finish();

 private:
  // Where a piece is in this task's memory, and where what is pushed for it.
  [[nodiscard]] std::span<float> value_of(const Piece& piece) const;
  [[nodiscard]] Floats::Part pushed(const Piece& piece, const std::shared_ptr<const void>& owner);
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
  void compare_servers();
  [[nodiscard]] Message create(std::uint32_t group);
  [[nodiscard]] double norm_of_round();
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
  std::unique_ptr<UpdateRule> own_mirror_;
  UpdateRule* mirror_ = nullptr;
  std::vector<StateTensor> tensors_;
  bool restored_ = false;
  std::uint64_t first_step_ = 0;
  std::function<std::string()> saved_;
  std::vector<std::uint64_t> versions_;  // by group, as pulled
  bool has_compared_ = false;            // what the servers have
  std::vector<bool> dropped_;            // by group, since the last pull: a push
  std::uint64_t global_step_ = 0;
  std::uint64_t end_ = 0;
  bool left_ = false;
  bool has_pushed_ = false;  // since the last pull
  Loan loan_;                // of gradients
  Client client_;            // its calls of create() come from this thread
};

}  // namespace ronde::trainer::server
