// SPDX-License-Identifier: Apache-2.0
// The gradient path of a task: what a training loop asks, as pulls, pushes and words on servers.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "bindings/trainer/optim/gradient_path.h"
#include "bindings/trainer/server/coordinator/coordinator.h"
#include "bindings/trainer/server/parameter_server.h"

namespace ronde::trainer {

struct ServedOptions {
  server::ParameterServerOptions servers{};
  bool fed = false;      // the chief, which is no worker, reads the data, and sends the batches
  double slow_ms = 0.0;  // test aid: how much longer each step of this task takes
  int threads = 1;       // of the task's kernels
};

namespace server {

// A task of a job. The connection outlives the model, since the end of the job needs it.
struct ServedJob {
  Tasks tasks;
  ServedOptions options;
  std::unique_ptr<ParameterServer> servers{};  // once variables are needed

  [[nodiscard]] bool in_sync() const { return options.servers.mode.mode == Mode::kSync; }
  [[nodiscard]] bool is_worker() const { return tasks.role == Role::kWorker; }
};

class Served final : public GradientPath {
 public:
  // All must outlive this object.
  Served(std::shared_ptr<ServedJob> job, std::vector<Parameter*> parameters,
         std::vector<StateTensor> statistics, const RuleOptions& how, UpdateRule& optimizer,
         double clip);
  ~Served() override;

  [[nodiscard]] bool is_served() const override { return true; }
  void pull() override;
  void push(double samples, double rate) override;
  void fetch() override;
  [[nodiscard]] std::uint64_t global_step() const override;
  [[nodiscard]] std::uint64_t steps_per_batch() const override;
  [[nodiscard]] bool in_rounds() const override { return job_->in_sync(); }
  [[nodiscard]] bool reads_data() const override;
  [[nodiscard]] bool is_sent_data() const override;
  bool await_batch(StepBatch& batch, std::uint64_t& epoch) override;
  void answer(const Sums& sums) override;
  [[nodiscard]] bool sends_data() const override;
  Sums send_batch(const StepBatch& batch, std::uint64_t epoch, double rate) override;
  Sums finish_sent() override;
  void alike(const std::string& name, const std::string& value) override {
    options_.alike.emplace_back(name + "-" + std::to_string(options_.alike.size()), value);
  }
  void restored(std::uint64_t step) override { restored_ = step; }
  void saved(std::function<std::string()> path) override;
  void begin() override;
  void end() override;
  void stop(Stop why) override;
  [[nodiscard]] Stop stopped() const override;
  [[nodiscard]] std::string words() override;
  [[nodiscard]] double waited_seconds() const override { return waited_; }

 private:
  [[nodiscard]] ParameterServer& servers();
  template <typename Call>
  void timed(const Call& call);
  void say(const std::string& line) const;
  void look();
  void drain();
  void finish_part();

  const std::shared_ptr<ServedJob> job_;
  const std::vector<Parameter*> parameters_;
  ParameterServerOptions options_;
  std::optional<std::uint64_t> restored_;
  std::function<std::string()> saved_;
  bool open_ = false;           // between begin() and end()
  std::uint64_t training_ = 0;  // which one it is: see End
  mutable Stop stop_ = Stop::kNo;
  std::uint64_t pushes_ = 0;
  double waited_ = 0.0;
  ServerCounts counts_;  // at the end
  // A worker that is sent its batches uses these; the chief that sends them, those from
  // coordinator_ on.
  std::unique_ptr<StepsToRun> parts_;
  bool parts_are_over_ = false;
  bool has_part_ = false;  // which is not answered yet
  double sent_rate_ = 0.0;
  std::unique_ptr<Coordinator> coordinator_;
  std::deque<Scheduled> running_;
  std::uint64_t sent_ = 0;  // steps
  std::uint64_t sent_bytes_ = 0;
  std::uint64_t retried_ = 0;
  double looked_ = 0.0;  // when a chief that is no worker has last pulled
  Sums answered_{};
};

}  // namespace server

}  // namespace ronde::trainer
