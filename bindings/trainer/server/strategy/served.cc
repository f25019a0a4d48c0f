// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/server/strategy/served.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>
#include <utility>

#include "bindings/trainer/fit/replica.h"
#include "bindings/trainer/fit/strategy/part_bytes.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer::server {

namespace {

// Steps of the chief's Coordinator: a part to learn from; and to wait for no round any more.
constexpr const char* kTrainStep = "train";
constexpr const char* kLeaveStep = "leave";

std::string text_of_list(const std::vector<std::uint64_t>& numbers) {
  std::string text;
  for (const std::uint64_t one : numbers) text += (text.empty() ? "" : ",") + std::to_string(one);
  return text;
}

}  // namespace

Served::Served(std::shared_ptr<ServedJob> job, std::vector<Parameter*> parameters,
               std::vector<StateTensor> statistics, const RuleOptions& how, UpdateRule& optimizer,
               double clip)
    : job_(std::move(job)), parameters_(std::move(parameters)), options_(job_->options.servers) {
  options_.statistics = std::move(statistics);
  options_.optimizer = how;
  options_.mirror = &optimizer;
  options_.clip = job_->in_sync() ? clip : 0.0;
}

// A part that has failed is none that another worker should take.
Served::~Served() {
  if (!has_part_) return;
  try {
    parts_->answer({}, text_of(job_->tasks.self()) + " has failed: look at what it has printed");
  } catch (const std::exception&) {
    return;  // it is given to another worker once this one is lost
  }
}

ParameterServer& Served::servers() {
  if (job_->servers != nullptr) return *job_->servers;
  job_->servers = std::make_unique<ParameterServer>(job_->tasks, parameters_, options_);
  ParameterServer& made = *job_->servers;
  if (!made.is_chief()) return made;
  if (restored_) made.restored(*restored_);
  made.set_saved(saved_);
  if (options_.say) {
    options_.say(made.table());
  } else {
    std::puts(made.table().c_str());
  }
  return made;
}

void Served::saved(std::function<std::string()> path) {
  saved_ = std::move(path);
  if (job_->servers != nullptr) job_->servers->set_saved(saved_);
}

template <typename Call>
void Served::timed(const Call& call) {
  const double begin = steady_seconds();
  call();
  waited_ += steady_seconds() - begin;
}

void Served::pull() {
  drain();
  timed([this] { servers().pull(); });
  sent_ = std::max(sent_, job_->servers->global_step());
}

void Served::push(double samples, double rate) {
  if (!open_) begin();  // a loop of the program's own
  const double slow = job_->options.slow_ms;
  if (slow > 0.0) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(slow));
  timed([&] { (void)servers().push(samples, parts_ == nullptr ? rate : sent_rate_); });
  pushes_ += samples == 0.0 ? 0 : 1;
}

void Served::fetch() {
  drain();
  servers().state();
}

std::uint64_t Served::global_step() const {
  if (sends_data()) return sent_;
  return job_->servers == nullptr ? 0 : job_->servers->global_step();
}

std::uint64_t Served::steps_per_batch() const {
  return job_->in_sync() ? 1 : job_->tasks.workers.size();
}

bool Served::reads_data() const { return job_->options.fed ? sends_data() : job_->is_worker(); }

bool Served::is_sent_data() const { return job_->options.fed && job_->is_worker(); }

bool Served::sends_data() const { return job_->options.fed && job_->tasks.role == Role::kChief; }

void Served::begin() {
  const std::uint64_t end = servers().counts().end;
  training_ = end / kEnds + (end % kEnds == kSaysAllDone ? 1 : 0);
  stop_ = Stop::kNo;
  open_ = true;
  servers().join();
  const double deadline = options_.deadline;
  if (sends_data()) {
    coordinator_ = std::make_unique<Coordinator>(job_->tasks, deadline, options_.worker_timeout);
  } else if (is_sent_data()) {
    parts_ = std::make_unique<StepsToRun>(job_->tasks, deadline, options_.say);
    parts_are_over_ = false;
  }
}

Stop Served::stopped() const {
  if (parts_ != nullptr && !parts_are_over_) return Stop::kNo;  // the chief waits for what it sent
  const std::uint64_t end = job_->servers == nullptr ? 0 : job_->servers->end();
  const std::uint64_t mine = kEnds * training_;
  if (end == mine + kSaysStopped) stop_ = Stop::kStopped;
  if (end > mine && stop_ == Stop::kNo) stop_ = Stop::kEnded;
  return stop_;
}

void Served::stop(Stop why) {
  const std::uint64_t says =
      kEnds * training_ + (why == Stop::kStopped ? kSaysStopped : kSaysEnded);
  if (servers().end() < says) servers().say_end(says);
}

void Served::end() {
  if (!std::exchange(open_, false)) return;
  ParameterServer& all = servers();
  const std::uint64_t done = kEnds * training_ + kSaysAllDone;
  if (coordinator_ != nullptr) {
    // Nobody waits for one that has had fewer parts, since it was away.
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
    say(one + " was lost before it was done: what it had still to learn is not learned");
  }
  all.say_end(done);
}

void Served::say(const std::string& line) const {
  options_.say ? options_.say(line) : static_cast<void>(std::puts(line.c_str()));
}

// A chief that takes no steps hears of those of the workers so.
void Served::look() {
  constexpr double kSeconds = 0.5;
  if (steady_seconds() - looked_ < kSeconds) return;
  servers().pull();
  looked_ = steady_seconds();
}

bool Served::await_batch(StepBatch& batch, std::uint64_t& epoch) {
  if (parts_ == nullptr) {  // it looks on
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    look();
    const ServerCounts now = servers().counts();
    if (servers().is_chief() && now.there == 0 && now.expected == 0 && stop_ == Stop::kNo) {
      // Where nobody has come to the end of it the training is not over.
      const bool alone = now.lost.size() == job_->tasks.workers.size();
      stop_ = alone ? Stop::kStopped : Stop::kEnded;
      if (alone) say("all workers are gone without a word: start all tasks again to go on");
    }
    return false;
  }
  // A round of sync waits for its part; otherwise nobody waits for one that has none.
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
    // A round is the parts of one batch. One that was away has parts of later rounds alone, and the
    // round that it takes part in again has none for it; or it is over without this part.
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

void Served::answer(const Sums& sums) {
  std::vector<float> numbers;
  for (const double one : sums) numbers.push_back(static_cast<float>(one));
  parts_->answer({"", std::move(numbers)});
  has_part_ = false;
}

GradientPath::Sums Served::send_batch(const StepBatch& batch, std::uint64_t epoch, double rate) {
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

void Served::finish_part() {
  const std::vector<float> found = coordinator_->fetch(running_.front()).numbers;
  running_.pop_front();
  for (std::size_t i = 0; i < found.size() && i < answered_.size(); ++i) answered_[i] += found[i];
}

void Served::drain() {
  while (!running_.empty()) finish_part();
}

GradientPath::Sums Served::finish_sent() {
  drain();
  return std::exchange(answered_, {});
}

std::string Served::words() {
  if (!servers().is_chief()) return "pushed " + std::to_string(pushes_) + " times";
  const std::vector<std::uint64_t>& by_worker = counts_.steps_by_worker;
  const std::uint64_t all = std::reduce(by_worker.begin(), by_worker.end());
  // A chief that sends batches takes part in every step, and another one, worker 0, in its own.
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

}  // namespace ronde::trainer::server
