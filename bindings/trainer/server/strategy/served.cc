// SPDX-License-Identifier: Apache-2.0
// The gradient path of a task: makes pulls and pushes of a training loop's calls.
#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "bindings/trainer/fit/replica.h"
#include "bindings/trainer/fit/strategy/part_bytes.h"
#include "bindings/trainer/optim/gradient_path.h"
#include "bindings/trainer/server/coordinator/coordinator.h"
#include "bindings/trainer/server/strategy/strategy.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer::server {

namespace {

// Steps of the chief's Coordinator: learn from a part of a batch; take part in no more rounds.
constexpr const char* kTrainStep = "train";
constexpr const char* kLeaveStep = "leave";

std::string text_of_list(const std::vector<std::uint64_t>& numbers) {
  std::string text;
  for (const std::uint64_t one : numbers) text += (text.empty() ? "" : ",") + std::to_string(one);
  return text;
}

class Served final : public GradientPath {
 public:
  Served(std::shared_ptr<ServedJob> job, std::vector<Parameter*> parameters,
         std::vector<StateTensor> statistics, UpdateRule& optimizer,
         const OptimizerOptions& options)
      : job_(std::move(job)), parameters_(std::move(parameters)), options_(job_->options.servers) {
    options_.statistics = std::move(statistics);
    options_.optimizer = options.rule;
    options_.mirror = &optimizer;
    options_.clip = job_->in_sync() ? options.clip_norm : 0.0;
    options_.say = or_stdout(options_.say);
  }

  // Answers a part that has failed, so that no other worker gets it.
  ~Served() override {
    if (!has_part_) return;
    try {
      parts_->answer({}, text_of(job_->tasks.self()) + " has failed: see its output");
    } catch (const std::exception&) {
      return;  // another worker gets it once this one is lost
    }
  }

  void saved(const std::function<std::string()>& path) override {
    saved_ = path;
    if (job_->servers != nullptr) job_->servers->set_saved(saved_);
  }

  void pull() override {
    drain();
    timed([this] { servers().pull(); });
    sent_ = std::max(sent_, job_->servers->global_step());
  }

  void push(double samples, double rate) override {
    if (!open_) begin_by_hand();
    const double slow = job_->options.slow_ms;
    if (slow > 0.0) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(slow));
    timed([&] { (void)servers().push(samples, parts_ == nullptr ? rate : sent_rate_); });
    pushes_ += samples == 0.0 ? 0 : 1;
  }

  void fetch() override {
    drain();
    servers().state();
  }

  [[nodiscard]] std::uint64_t global_step() const override {
    if (sends_data()) return sent_;
    return job_->servers == nullptr ? 0 : job_->servers->global_step();
  }

  [[nodiscard]] std::uint64_t steps_per_batch() const override {
    return job_->in_sync() ? 1 : job_->tasks.workers.size();
  }

  [[nodiscard]] bool reads_data() const override {
    return job_->options.fed ? sends_data() : job_->is_worker();
  }

  [[nodiscard]] bool is_sent_data() const override {
    return job_->options.fed && job_->is_worker();
  }

  [[nodiscard]] bool sends_data() const override {
    return job_->options.fed && job_->tasks.role == Role::kChief;
  }

  void begin() override {
    const std::uint64_t end = servers().counts().end;
    training_ = end / kEnds + (end % kEnds == kSaysAllDone ? 1 : 0);
    stop_ = Stop::kNo;
    open_ = true;
    servers().join();
    wait_for_others();
    const double deadline = options_.deadline;
    if (sends_data()) {
      coordinator_ = std::make_unique<Coordinator>(job_->tasks, deadline, options_.worker_timeout);
    } else if (is_sent_data()) {
      parts_ = std::make_unique<StepsToRun>(job_->tasks, deadline, options_.say);
      parts_are_over_ = false;
    }
  }

  [[nodiscard]] Stop stopped() const override {
    if (parts_ != nullptr && !parts_are_over_) return Stop::kNo;  // the chief waits for its parts
    const std::uint64_t end = job_->servers == nullptr ? 0 : job_->servers->end();
    const std::uint64_t mine = kEnds * training_;
    if (end == mine + kSaysStopped) stop_ = Stop::kStopped;
    if (end > mine && stop_ == Stop::kNo) stop_ = Stop::kEnded;
    return stop_;
  }

  void stop(Stop why) override {
    const std::uint64_t says =
        kEnds * training_ + (why == Stop::kStopped ? kSaysStopped : kSaysEnded);
    if (servers().end() < says) servers().say_end(says);
  }

  void end() override {
    if (!std::exchange(open_, false)) return;
    ParameterServer& all = servers();
    const std::uint64_t done = kEnds * training_ + kSaysAllDone;
    if (coordinator_ != nullptr) {
      // A worker that was away has had fewer parts: no round must wait for it.
      for (std::uint32_t i = 0; i < job_->tasks.workers.size(); ++i) {
        running_.push_back(coordinator_->schedule(kLeaveStep, {}, i));
      }
      drain();
      sent_bytes_ += coordinator_->bytes();
      retried_ += coordinator_->retried();
      coordinator_.reset();
      sent_ = all.counts().global_step;  // after a stop some parts are not learned
    }
    if (all.is_chief()) stop(Stop::kEnded);
    (void)stopped();
    all.leave();
    parts_.reset();
    if (!all.is_chief()) return all.wait_for(done);
    counts_ = all.wait_for_workers();
    for (const std::string& one : counts_.lost) {
      options_.say(one + " was lost before it was done: its remaining samples are not learned");
    }
    all.say_end(done);
  }

  bool await_batch(StepBatch& batch, std::uint64_t& epoch) override {
    if (parts_ == nullptr) {  // this task takes no steps
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      look();
      const ServerCounts now = servers().counts();
      if (servers().is_chief() && now.there == 0 && now.expected == 0 && stop_ == Stop::kNo) {
        // If no worker has come to the end, the training is not over.
        const bool alone = now.lost.size() == job_->tasks.workers.size();
        stop_ = alone ? Stop::kStopped : Stop::kEnded;
        if (alone)
          options_.say("all workers are gone without a goodbye: start all tasks again to go on");
      }
      return false;
    }
    // In sync a round waits for this worker's part. In other modes a worker without parts must
    // leave, so that no other one waits for it.
    const auto leave = [this] { servers().leave(); };
    const auto part = parts_->next(in_rounds() ? std::function<void()>() : leave);
    if (!part) {
      parts_are_over_ = true;
      stop_ = std::max(stop_, Stop::kEnded);
      return false;
    }
    if (part->first == kLeaveStep) return leave(), parts_->answer({}), false;
    const std::string& text = part->second.text;
    std::span<const char> bytes(text.data(), text.size());
    std::vector<std::uint64_t> head;
    std::vector<double> rate;
    take_bytes(bytes, head, 2);
    take_bytes(bytes, rate, 1);
    sent_rate_ = rate.front();
    const std::uint64_t round = head[1];
    epoch = head[0];
    timed([&] {
      servers().pull();
      // A round is the parts of one batch. A worker that was away has only parts of later rounds:
      // until then it pushes nothing. Or the round of this part is over already.
      const auto ends = [this] { return servers().end() > kEnds * training_; };
      while (in_rounds() && servers().global_step() < round && !ends()) {
        (void)servers().push(0.0, sent_rate_);
        servers().pull();
      }
    });
    if (in_rounds() && servers().global_step() != round) return parts_->answer({}), false;
    batch.parts.resize(1);
    take_part(bytes, batch.parts.front());
    batch.parts.front().inputs = part->second.numbers;
    batch.global_size = std::max<std::size_t>(1, batch.parts.front().size());
    return has_part_ = true;
  }

  void answer(const Sums& sums) override {
    std::vector<float> numbers;
    for (const double one : sums) numbers.push_back(static_cast<float>(one));
    parts_->answer({"", std::move(numbers)});
    has_part_ = false;
  }

  Sums send_batch(const StepBatch& batch, std::uint64_t epoch, double rate) override {
    const std::size_t workers = job_->tasks.workers.size();
    std::uint32_t worker = 0;
    for (const Batch& part : batch.parts) {
      const auto its = in_rounds() ? std::optional(worker++) : std::nullopt;
      if (part.size() == 0 && !its) continue;
      std::vector<char> bytes;
      append_bytes<std::uint64_t>(bytes, std::array{epoch, sent_});
      append_bytes<double>(bytes, std::array{rate});
      Batch rest = part;
      Value value{"", std::exchange(rest.inputs, {})};  // which travel as numbers
      append_part(bytes, rest);
      value.text.assign(bytes.begin(), bytes.end());
      running_.push_back(coordinator_->schedule(kTrainStep, value, its));
      sent_ += in_rounds() ? 0U : 1U;
    }
    sent_ += in_rounds() ? 1U : 0U;
    while (running_.size() > 4 * workers) finish_part();
    look();
    return std::exchange(answered_, {});
  }

  Sums finish_sent() override {
    drain();
    return std::exchange(answered_, {});
  }

  [[nodiscard]] std::string words() override {
    if (!servers().is_chief()) return "pushed " + std::to_string(pushes_) + " times";
    const std::vector<std::uint64_t>& by_worker = counts_.steps_by_worker;
    const std::uint64_t all = std::reduce(by_worker.begin(), by_worker.end());
    // A chief that sends batches takes part in every step; worker 0 as the chief in its own steps.
    const std::uint64_t steps = sends_data() ? all : by_worker.empty() ? 0 : by_worker.front();
    const std::uint64_t bytes = servers().bytes() + sent_bytes_;
    return formatted(
        "mode=%s workers=%zu servers=%zu global_step=%ju pushes=%s dropped=%s most_ahead=%ju "
        "staleness=%s retried=%ju chief_bytes_per_step=%.0f",
        server::text_of(job_->options.servers.mode).c_str(), job_->tasks.workers.size(),
        job_->tasks.servers.size(), std::uintmax_t{counts_.global_step},
        text_of_list(by_worker).c_str(), text_of_list(counts_.dropped_by_worker).c_str(),
        std::uintmax_t{counts_.most_ahead}, counts_.staleness_text().c_str(),
        std::uintmax_t{retried_},
        static_cast<double>(bytes) / static_cast<double>(std::max<std::uint64_t>(1, steps)));
  }
  [[nodiscard]] bool in_rounds() const override { return job_->in_sync(); }
  [[nodiscard]] bool is_served() const override { return true; }
  [[nodiscard]] std::string task() const override { return text_of(job_->tasks.self()); }
  void alike(const std::string& name, const std::string& value) override {
    options_.alike.emplace_back(name + "-" + std::to_string(options_.alike.size()), value);
  }
  void restored(std::uint64_t step) override { restored_ = step; }
  [[nodiscard]] double waited_seconds() const override { return waited_; }

 private:
  // A loop of the program's own knows nothing of a task that sends batches, or of one without a
  // share of the data: it would learn nothing, or from some samples twice.
  void begin_by_hand() {
    if (job_->options.fed || !job_->tasks.chief.empty()) {
      throw TrainerError(
          "a training loop of the program's own runs on workers that read their data: leave out "
          "--feed chief and --chief-hosts, whose chief is for fit and train",
          kExitConfiguration);
    }
    begin();
  }

  ParameterServer& servers() {
    if (job_->servers != nullptr) return *job_->servers;
    job_->servers = std::make_unique<ParameterServer>(job_->tasks, parameters_, options_);
    ParameterServer& made = *job_->servers;
    if (!made.is_chief()) return made;
    if (restored_) made.restored(*restored_);
    made.set_saved(saved_);
    options_.say(made.table());
    return made;
  }

  template <typename Call>
  void timed(const Call& call) {
    const double begin = steady_seconds();
    call();
    waited_ += steady_seconds() - begin;
  }

  // Waits for the workers that a first step needs, so that this wait is not measured as training:
  // in sync all but the backup workers; on a task without steps of its own one worker.
  void wait_for_others() {
    const std::uint32_t spare = options_.mode.backup_workers;
    while (job_->tasks.role != Role::kEvaluator) {
      const ServerCounts now = servers().counts();
      const bool waits = job_->in_sync() ? now.expected > spare
                                         : !job_->is_worker() && now.expected > 0 && now.there == 0;
      if (!waits) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  // A chief without steps of its own learns of the workers' steps by a pull now and then.
  void look() {
    constexpr double kSeconds = 0.5;
    if (steady_seconds() - looked_ < kSeconds) return;
    servers().pull();
    looked_ = steady_seconds();
  }

  void finish_part() {
    const std::vector<float> found = coordinator_->fetch(running_.front()).numbers;
    running_.pop_front();
    for (std::size_t i = 0; i < found.size() && i < answered_.size(); ++i) answered_[i] += found[i];
  }

  void drain() {
    while (!running_.empty()) finish_part();
  }

  const std::shared_ptr<ServedJob> job_;
  const std::vector<Parameter*> parameters_;
  ParameterServerOptions options_;
  std::optional<std::uint64_t> restored_;
  std::function<std::string()> saved_;
  bool open_ = false;           // between begin() and end()
  std::uint64_t training_ = 0;  // its number: see End
  mutable Stop stop_ = Stop::kNo;
  std::uint64_t pushes_ = 0;
  double waited_ = 0.0;
  ServerCounts counts_;  // at the end
  // A worker that is sent its batches uses these; the chief that sends them uses coordinator_ and
  // the members after it.
  std::unique_ptr<StepsToRun> parts_;
  bool parts_are_over_ = false;
  bool has_part_ = false;  // and has not answered it yet
  double sent_rate_ = 0.0;
  std::unique_ptr<Coordinator> coordinator_;
  std::deque<Scheduled> running_;
  std::uint64_t sent_ = 0;  // steps
  std::uint64_t sent_bytes_ = 0;
  std::uint64_t retried_ = 0;
  double looked_ = 0.0;  // when a chief that is no worker has pulled last
  Sums answered_{};
};

}  // namespace

std::unique_ptr<GradientPath> make_served_path(std::shared_ptr<ServedJob> job, const Network& model,
                                               UpdateRule& optimizer,
                                               const OptimizerOptions& options) {
  return std::make_unique<Served>(std::move(job), model.parameters(), model.statistics(), optimizer,
                                  options);
}

}  // namespace ronde::trainer::server
