// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/server/coordinator/coordinator.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "bindings/trainer/fit/own_time.h"
#include "bindings/trainer/server/coordinator/coordinator_state.h"
#include "bindings/trainer/server/message_socket.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {

namespace {

std::size_t payload_of(const Message& message) {
  return message.text.size() + bytes_of(message.floats);
}

}  // namespace

// A thread of its own answers beats while a step runs.
class StepsToRun::Inside {
 public:
  Inside(const Tasks& tasks, double deadline, const PrintLine& say)
      : self_(tasks.self()),
        deadline_(deadline),
        socket_({.self = self_, .access = access_for(tasks.all()), .say = say}) {
    socket_.listen(tasks.workers.at(tasks.index));
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() {
    thread_.request_stop();
    socket_.wake();
    thread_.join();
  }

  // The next step, until the one after it; null at the end.
  const Message* next(const std::function<void()>& idle) {
    double start = -1.0;
    bool is_idle = false;
    while (true) {
      double now = 0.0;
      {
        std::unique_lock lock(mutex_);
        came_.wait_for(lock, std::chrono::milliseconds(100),
                       [&] { return task_ || closed_ || !failure_.empty(); });
        if (!failure_.empty()) throw TrainerError(failure_);
        if (task_) return &step_.emplace(*std::exchange(task_, {}));
        if (closed_) return nullptr;
        now = time_.now();
        if (start < 0.0) start = now;
        if (now - std::max(start, heard_) > deadline_) {
          throw TrainerError(text_of(self_) + " has received no message of the chief for " +
                             std::to_string(static_cast<long>(deadline_)) +
                             " s, and ends: start the chief");
        }
      }
      if (!is_idle && idle && now - start > 1.0) {
        is_idle = true;
        idle();
      }
    }
  }
  // The result of that step.
  void answer(Message result) {
    result.from = self_;
    result.to = step_->from;
    result.sequence = step_->sequence;
    {
      const std::lock_guard lock(mutex_);
      last_ = result;
      // The next step may have come already, if this one was taken from a lost worker.
      if (running_ == std::pair(result.to.incarnation, result.sequence)) running_.reset();
      out_.push_back(std::move(result));
    }
    socket_.wake();
  }

 private:
  void run(const std::stop_token& stop) {
    try {
      for (bool ends = false; !ends;) {
        ends = stop.stop_requested();  // once more, to send the last result
        const auto messages = socket_.receive(ends ? 0.0 : 0.1);
        Messages out;
        {
          const std::lock_guard lock(mutex_);
          time_.listened();
          for (const Message& one : messages) take(one);
          out = std::exchange(out_, {});
        }
        for (const Message& one : out) socket_.send(one);
        came_.notify_all();
      }
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      failure_ = error.what();
    }
  }
  void take(const Message& message) {
    heard_ = time_.now();
    const auto key = std::pair(message.from.incarnation, message.sequence);
    if (message.kind == Kind::kRun && last_ && last_->to == message.from &&
        last_->sequence == message.sequence) {
      out_.push_back(*last_);  // its result was lost on the way
    } else if (message.kind == Kind::kRun && running_ != key) {
      running_ = key;
      task_ = message;
    } else if (message.kind == Kind::kClose) {
      closed_ = true;
    }
    Message answer = make_message(Kind::kBeatBack);
    answer.from = self_;
    answer.to = message.from;
    if (message.kind == Kind::kBeat || message.kind == Kind::kClose) {
      out_.push_back(std::move(answer));
    }
  }

  const Address self_;
  const double deadline_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::optional<Message> task_;
  std::optional<Message> last_;
  std::optional<std::pair<std::uint64_t, std::uint64_t>> running_;
  Messages out_;
  bool closed_ = false;
  OwnTime time_;
  double heard_ = 0.0;
  std::string failure_;
  std::optional<Message> step_;  // that runs
  MessageSocket socket_;
  std::jthread thread_;
};

StepsToRun::StepsToRun(const Tasks& tasks, double deadline, const PrintLine& say)
    : inside_(std::make_unique<Inside>(tasks, deadline, say)) {}

StepsToRun::~StepsToRun() = default;

std::optional<std::pair<std::string, Value>> StepsToRun::next(const std::function<void()>& idle) {
  const Message* const step = inside_->next(idle);
  if (step == nullptr) return {};
  const std::size_t end = step->text.find('\n');
  return {{step->text.substr(0, end),
           {end == std::string::npos ? "" : step->text.substr(end + 1), step->floats.whole()}}};
}

void StepsToRun::answer(Value result, const std::string& failed) {
  Message message = failed.empty() ? make_message(Kind::kResult, 0, std::move(result.text))
                                   : make_message(Kind::kFailed, 0, failed);
  message.floats = Floats::of(std::move(result.numbers));
  inside_->answer(std::move(message));
}

void run_steps(const Tasks& tasks, const Steps& steps, const std::function<void()>& idle,
               double deadline, const PrintLine& say) {
  StepsToRun all(tasks, deadline, say);
  while (const auto next = all.next(idle)) {
    try {
      const auto step = steps.find(next->first);
      if (step == steps.end()) {
        throw TrainerError("there is no step '" + next->first + "' on " + text_of(tasks.self()) +
                           ": start all tasks with the same program");
      }
      all.answer(step->second(next->second));
    } catch (const std::exception& error) {
      all.answer({}, error.what());
    } catch (...) {
      all.answer({}, "its exception is no std::exception");
    }
  }
}

struct Coordinator::Inside {
  Inside(const Tasks& tasks, double deadline_of, double worker_timeout)
      : workers(static_cast<std::uint32_t>(tasks.workers.size())),
        self{Role::kChief, 0, tasks.self().incarnation},
        deadline(deadline_of),
        state(workers, worker_timeout, deadline_of),
        socket({.self = self, .access = access_for(tasks.all()), .say = {}}) {
    for (std::uint32_t i = 0; i < workers; ++i) {
      socket.connect({Role::kWorker, i, 0}, tasks.workers[i]);
    }
  }
  void send(Kind kind) {
    for (std::uint32_t i = 0; i < workers; ++i) {
      Message message = make_message(kind);
      message.from = self;
      message.to = {Role::kWorker, i, 0};
      socket.send(message);
    }
  }

  const std::uint32_t workers;
  const Address self;
  const double deadline;
  CoordinatorState state;
  MessageSocket socket;
  OwnTime time;
  double heard = time.now();
  double result = time.now();  // when the last one came
  double beat = -1.0;
  std::uint64_t bytes = 0;
};

Coordinator::Coordinator(const Tasks& tasks, double deadline, double worker_timeout)
    : inside_(std::make_unique<Inside>(tasks, deadline, worker_timeout)) {}

Coordinator::~Coordinator() {
  try {
    inside_->send(Kind::kClose);
    (void)inside_->socket.receive(0.2);
    inside_->send(Kind::kClose);
  } catch (const std::exception&) {
    return;  // the workers end at their deadline
  }
}

void Coordinator::progress(double seconds) {
  Inside& in = *inside_;
  const auto send = [&in](Messages messages) {
    for (Message& one : messages) {
      one.from = in.self;
      in.bytes += payload_of(one);
      in.socket.send(one);
    }
  };
  double now = 0.0;
  const auto hear = [&](double wait) {
    const auto messages = in.socket.receive(wait);
    now = in.time.listened();
    if (!messages.empty()) in.heard = now;
    for (const Message& one : messages) {
      in.bytes += payload_of(one);
      if (one.kind == Kind::kResult || one.kind == Kind::kFailed) in.result = now;
    }
    for (const Message& one : messages) send(in.state.on_message(now, one));
    return !messages.empty();
  };
  const bool heard = hear(0.0);  // no worker is late whose message is here already
  send(in.state.on_tick(now));   // free workers get at once what was scheduled
  if (!heard && seconds > 0.0) hear(seconds);
  if (now - in.beat > 0.1) {
    in.beat = now;
    in.send(Kind::kBeat);
  }
  if (now - in.heard > in.deadline) {
    throw TrainerError("the chief has received no message of a worker for " +
                       std::to_string(static_cast<long>(in.deadline)) + " s: start some");
  }
}

Scheduled Coordinator::schedule_on(const std::string& step, const Value& argument,
                                   std::optional<std::uint32_t> worker, bool must) {
  return {inside_->state.schedule(step + "\n" + argument.text, Floats::of(argument.numbers), worker,
                                  must)};
}

Scheduled Coordinator::schedule(const std::string& step, const Value& argument,
                                std::optional<std::uint32_t> worker) {
  const Scheduled scheduled = schedule_on(step, argument, worker, false);
  progress(0.0);
  return scheduled;
}

void Coordinator::require_news(double since) const {
  const double most = 10.0 * inside_->deadline;
  if (inside_->time.now() - since <= most) return;
  throw TrainerError("no step was done in " + std::to_string(static_cast<long>(most)) +
                     " s: does the worker that must run it still run?");
}

void Coordinator::join() {
  inside_->result = inside_->time.now();
  while (!inside_->state.all_done() && !inside_->state.setup_failure()) {
    progress(0.1);
    require_news(inside_->result);
  }
  const auto failed = inside_->state.take_failure();
  if (failed) throw TrainerError("a step failed: " + *failed);
}

Message Coordinator::result_of(Scheduled scheduled) {
  const double start = inside_->time.now();
  while (!inside_->state.is_done(scheduled.number)) {
    if (const auto& failed = inside_->state.setup_failure()) {
      throw TrainerError("a setup failed: " + *failed);
    }
    progress(0.1);
    require_news(start);
  }
  Message result = inside_->state.take(scheduled.number);
  if (result.kind == Kind::kFailed) throw TrainerError("a step failed: " + result.text);
  return result;
}

Value Coordinator::fetch(Scheduled scheduled) {
  const Message result = result_of(scheduled);
  return {result.text, result.floats.whole()};
}

std::vector<Value> Coordinator::per_worker(const std::string& step, const Value& argument) {
  CoordinatorState& state = inside_->state;
  std::map<std::uint32_t, Message> results;
  // A worker that is started again while others still run the step has lost what it had made.
  for (bool all = false; !all;) {
    std::map<std::uint32_t, Scheduled> scheduled;
    for (std::uint32_t i = 0; i < inside_->workers; ++i) {
      const auto found = results.find(i);
      if (found != results.end() && state.is_current(found->second)) continue;
      scheduled[i] = schedule_on(step, argument, i);
    }
    for (const auto& [worker, one] : scheduled) results[worker] = result_of(one);
    all = scheduled.empty();
  }
  state.add_setup(step + "\n" + argument.text, Floats::of(argument.numbers));
  std::vector<Value> values;
  values.reserve(results.size());
  for (const auto& [worker, one] : results) values.push_back({one.text, one.floats.whole()});
  return values;
}

std::uint64_t Coordinator::retried() const { return inside_->state.retried(); }

std::uint64_t Coordinator::bytes() const { return inside_->bytes; }

}  // namespace ronde::trainer::server
