// SPDX-License-Identifier: Apache-2.0
// A task of a training whose variables live on servers: a worker pulls them, computes, and pushes
// gradients; and the server itself.
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
  double clip = 0.0;  // in sync: the largest norm of a round; 0: no limit
  Partition partition{};
  // Row r lies on server r mod servers. Tables that grow are in no checkpoint: a standby keeps
  // them.
  std::vector<TableSpec> tables{};
  RowRules rules{};  // by which tables may be updated
  bool standby = false;
  // Running statistics, which travel beside the parameters: see VariableSpec::statistic.
  std::vector<StateTensor> statistics{};
  // On the chief: an optimiser of the parameters, into which state() copies the servers' moments.
  // It must outlive the ParameterServer. Null: the ParameterServer makes one.
  UpdateRule* mirror = nullptr;
  Flags alike{};                // more settings that tasks must have alike, if they have them
  double deadline = 60.0;       // seconds of silence until a task, or a server, ends
  double worker_timeout = 5.0;  // seconds of silence after which a worker is gone
  double server_timeout = 3.0;  // seconds of silence after which a standby takes over
  PrintLine say{};

  // The settings that must be the same on all tasks.
  [[nodiscard]] std::string job_of(const Tasks& tasks) const;
};

// Rows of a table that a step uses: their numbers in the table (a number may come twice; its
// gradients are summed), their values after a pull, and the gradients for a push.
struct Rows {
  std::size_t table = 0;
  std::vector<std::int64_t> ids;
  std::vector<float> values;
  std::vector<float> gradients;
};

// The callback, or one that prints on standard output if it is empty.
[[nodiscard]] PrintLine or_stdout(PrintLine say);

// Runs a server until the chief closes the job. Throws TrainerError if the address is taken, if no
// message has come for options.deadline, if another server has taken over, and if the chief has
// ended with an error.
void serve(const Tasks& tasks, const ParameterServerOptions& options);

// For a worker, the chief or an evaluator. The chief's first pull creates the variables, from the
// newest checkpoint or from its own parameters; the first pull of other tasks waits for that.
//
//   ParameterServer server(tasks, model.parameters(), options);
//   while (server.global_step() < steps) {
//     server.pull();
//     ... backward ...
//     server.push(samples, learning_rate);
//   }
//   server.finish();
//
// Gradients are means over the samples of the step. In async and stale a step is not atomic over
// several servers: another worker's push may come between the parts of a pull.
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

  // Writes the servers' values into the parameters, and those of rows into `rows`. In sync and
  // stale it waits for other workers. Throws TrainerError if a server refuses, or is silent until
  // the deadline, and for rows that no table has; with the exit code 0 if the chief has closed the
  // job without this task, which was silent for long.
  void pull(std::span<Rows> rows = {});
  // Sends the gradients. Returns false if they came too late for their round, and were dropped. A
  // push without samples changes nothing. Throws TrainerError for numbers that are not finite, a
  // number of samples below 0, and rows whose gradients are not `width` numbers for each id.
  bool push(double samples, double rate, std::span<const Rows> rows = {});

  // As of the last pull or push.
  [[nodiscard]] std::uint64_t global_step() const noexcept { return global_step_; }
  [[nodiscard]] bool is_chief() const noexcept { return chief_; }
  [[nodiscard]] ServerCounts counts();
  // Bytes of floats sent and received.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return client_.bytes(); }
  // A line for each variable: its server.
  [[nodiscard]] const std::string& table() const noexcept { return table_; }

  // On the chief, before its first pull: the parameters and the mirror were restored to this step.
  void restored(std::uint64_t step);
  // On the chief: a group whose server was started again goes on from the checkpoint whose path
  // this function returns; null: from the chief's values.
  void set_saved(std::function<std::string()> path) { saved_ = std::move(path); }
  // On the chief: fetches all values and moments, as of global_step(). Throws TrainerError if a
  // number is not finite.
  void state();
  // Tells all tasks how the training ends: a number that only grows (see End), of which each pull
  // and push returns the largest.
  void say_end(std::uint64_t end);
  [[nodiscard]] std::uint64_t end() const noexcept { return end_; }
  // From here on no round waits for this worker, and it may still pull, until its next push, or
  // join() before a pull.
  void leave();
  void join() noexcept { left_ = false; }
  // On the chief: waits until no other task is at work. Returns the servers' counts.
  ServerCounts wait_for_workers();
  // On the chief: ends the servers, and the tasks that wait for that.
  void close();
  // This task ends with an error. The chief tells all tasks, which end with it; the evaluator
  // leaves. A worker sends nothing: it is gone after worker_timeout.
  void fail(const std::string& error, int exit_code);
  // On another task: waits for close(), or for an end() of at least `end`. Throws TrainerError if
  // the chief is silent until the deadline, since then the last state may be lost.
  void wait_for(std::uint64_t end);
  // The end of a job: leave(), then on the chief wait_for_workers(), a last pull and close(), on
  // other tasks wait_for(). Returns the servers' counts on the chief.
  ServerCounts finish();

 private:
  // A piece's values in this task's memory, and its numbers in a push.
  [[nodiscard]] std::span<float> value_of(const Piece& piece) const;
  [[nodiscard]] Floats::Part pushed(const Piece& piece, const std::shared_ptr<const void>& owner);
  // Numbers of a group in this task's memory: `count` blocks of `size` floats, `step` apart.
  struct Blocks {
    float* first;
    std::size_t size;
    std::size_t step;
    std::size_t count;
  };

  [[nodiscard]] ClientOptions client_options();
  [[nodiscard]] std::string training() const;
  [[nodiscard]] VariableSpecs specs_of(std::uint32_t group) const;
  // Those of the group in these, which are as `tensors_`.
  [[nodiscard]] std::vector<Blocks> state_of(std::uint32_t group,
                                             const std::vector<StateTensor>& tensors) const;
  [[nodiscard]] static std::vector<float> numbers_of(const std::vector<Blocks>& blocks);
  [[nodiscard]] std::vector<float> saved_state_of(std::uint32_t group, VariableSpecs& specs);
  void require_rows(std::uint32_t group) const;
  void compare_servers();
  [[nodiscard]] Message create(std::uint32_t group);
  [[nodiscard]] double norm_of_round();
  void take_values(std::uint32_t group, const Message& values, std::span<Rows> rows);
  void check_rows(std::span<const Rows> rows, bool with_gradients) const;
  void check_push(double samples, double rate, std::span<const Rows> rows) const;
  [[nodiscard]] std::vector<std::int64_t> ids_of(std::uint32_t group,
                                                 std::span<const Rows> rows) const;
  void ask_each(Message message);
  // After a push: makes the gradients writable. While a push is still being sent (again, or to a
  // server that does not answer), its numbers stay, and the next gradients lie elsewhere.
  void end_loan();

  const Tasks tasks_;
  const std::vector<Parameter*> parameters_;
  const ParameterServerOptions options_;
  const std::uint32_t servers_;
  const bool chief_;
  const std::vector<Piece> pieces_;
  const std::string table_;
  // On the chief: the tensors of a checkpoint.
  std::vector<std::unique_ptr<Parameter>> tables_;
  std::unique_ptr<UpdateRule> own_mirror_;
  UpdateRule* mirror_ = nullptr;
  std::vector<StateTensor> tensors_;
  bool restored_ = false;
  std::uint64_t first_step_ = 0;
  std::function<std::string()> saved_;
  std::vector<std::uint64_t> versions_;  // by group, as pulled
  bool has_compared_ = false;            // whether all servers have variables
  std::vector<bool> dropped_;            // by group: the push since the last pull
  std::uint64_t global_step_ = 0;
  std::uint64_t end_ = 0;
  bool left_ = false;
  bool is_closed_ = false;
  bool has_pushed_ = false;  // since the last pull
  Loan loan_;                // of gradients
  Client client_;            // calls create() on this thread
};

}  // namespace ronde::trainer::server
