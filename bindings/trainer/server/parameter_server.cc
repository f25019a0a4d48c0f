// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/server/parameter_server.h"
#include "bindings/trainer/chief/checkpoint_names.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "bindings/trainer/loop/replica.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {

namespace {

// Seconds that the chief waits at the end for workers that are there and make no step.
constexpr double kPatience = 600.0;
constexpr std::chrono::milliseconds kEndOfLoan{100};

std::vector<Piece> pieces_of(const std::vector<Parameter*>& parameters, std::uint32_t servers,
                             const Partition& partition) {
  std::vector<VariableSpec> specs;
  specs.reserve(parameters.size());
  for (const Parameter* const one : parameters) specs.push_back({one->name(), one->shape()});
  return place(specs, servers, partition);
}

std::string table_with(std::string table, const std::vector<TableSpec>& more,
                       std::uint32_t servers) {
  for (const TableSpec& one : more) {
    table += (table.empty() ? "" : "\n") + one.name + " (" + std::to_string(one.rows) + " x " +
             std::to_string(one.width) + "), row r on ps r mod " + std::to_string(servers);
  }
  return table;
}

}  // namespace

std::string ParameterServerOptions::job_of(const Tasks& tasks) const {
  return tasks.text() + "\n--standby " + (standby ? "on" : "off");
}

std::string ServerCounts::staleness_text() const {
  std::string text;
  for (std::size_t i = 0; i < staleness.size(); ++i) {
    if (staleness[i] == 0) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(i) +
            (i + 1 == staleness.size() ? " or more: " : ": ") + std::to_string(staleness[i]);
  }
  return text;
}

ParameterServer::ParameterServer(const Tasks& tasks, std::vector<Parameter*> parameters,
                                 ParameterServerOptions options)
    : tasks_(tasks),
      parameters_(std::move(parameters)),
      options_(std::move(options)),
      servers_(static_cast<std::uint32_t>(tasks.servers.size())),
      chief_(tasks.is_chief()),
      pieces_(pieces_of(parameters_, servers_, options_.partition)),
      table_(table_with(table_of(pieces_), options_.tables, servers_)),
      versions_(servers_, 0),
      dropped_(servers_, false),
      client_(client_options()) {
  if (!chief_) return;
  std::vector<Parameter*> all = parameters_;
  for (const TableSpec& one : options_.tables) {
    tables_.push_back(std::make_unique<Parameter>(one.name, Shape{one.rows, one.width}));
    all.push_back(tables_.back().get());
  }
  mirror_ = make_optimizer(options_.optimizer, all);
  for (const Parameter* const one : all) {
    tensors_.push_back({one->name(), one->shape(), one->value()});
  }
  for (StateTensor& one : mirror_->state()) tensors_.push_back(std::move(one));
  if (!options_.logdir.empty()) restore();
}

ParameterServer::~ParameterServer() = default;

ClientOptions ParameterServer::client_options() {
  ClientOptions client;
  client.state.self = tasks_.self();
  client.state.servers = servers_;
  client.state.standby = options_.standby;
  client.state.decides = chief_;
  client.state.job = options_.job_of(tasks_);
  client.state.training = training();
  client.state.server_timeout = options_.server_timeout;
  client.servers = tasks_.servers;
  client.access = access_for(tasks_.all());
  if (chief_) client.create = [this](std::uint32_t group) { return create(group); };
  client.deadline = options_.deadline;
  client.say = [this](const std::string& line) { say(line); };
  return client;
}

void ParameterServer::say(const std::string& line) const {
  if (options_.say) return options_.say(line);
  std::puts(line.c_str());
  std::fflush(stdout);
}

VariableSpecs ParameterServer::specs_of(std::uint32_t group) const {
  VariableSpecs specs;
  specs.optimizer = options_.optimizer;
  specs.mode = options_.mode;
  for (const Piece& piece : pieces_) {
    if (piece.server == group) specs.variables.push_back({piece.name, piece.shape});
  }
  for (TableSpec table : options_.tables) {
    table.rows = rows_on(table.rows, group, servers_);
    table.first = group;
    table.stride = servers_;
    specs.tables.push_back(table);
  }
  return specs;
}

// At first from what the chief has; for a server that was started again, from the last checkpoint.
Message ParameterServer::create(std::uint32_t group) {
  VariableSpecs specs = specs_of(group);
  if (global_step_ > first_step_) {
    if (checkpoints_ && (saved_step_ > first_step_ || restored_)) {
      (void)checkpoints_->flush();
      const Checkpoint last =
          read_checkpoint(disk(), checkpoint_path(options_.logdir, saved_step_));
      copy_tensors(last.tensors, tensors_, "the last checkpoint");
      restored_ = true;
      mirror_->set_steps(last.state.optimizer_steps);
      say("ps " + std::to_string(group) + " goes on from the checkpoint of step " +
          std::to_string(saved_step_) + ": what it has learned since is lost");
    } else {
      restored_ = false;
      say("ps " + std::to_string(group) + " goes on with the values that the chief has, of step " +
          std::to_string(versions_[group]) + ", without moments: there is no checkpoint");
    }
  }
  specs.whole = restored_;
  specs.steps = restored_ ? mirror_->steps() : versions_[group];
  std::vector<float> floats;
  if (restored_) {
    for (const Stretch& one : state_of(group)) {
      for (std::size_t i = 0; i < one.count; ++i) {
        const float* const from = one.first + i * one.step;
        floats.insert(floats.end(), from, from + one.size);
      }
    }
  } else {
    for (const Piece& piece : pieces_) {
      if (piece.server != group) continue;
      const auto from = parameters_[piece.variable]->value().subspan(piece.first, piece.size);
      floats.insert(floats.end(), from.begin(), from.end());
    }
  }
  Message message;
  message.kind = Kind::kCreate;
  message.group = group;
  message.text = specs.text();
  message.floats = Floats::of(std::move(floats));
  return message;
}

std::vector<std::int64_t> ParameterServer::ids_of(std::uint32_t group,
                                                  std::span<const Rows> rows) const {
  std::vector<std::int64_t> ids;
  for (const Rows& one : rows) {
    const std::size_t head = ids.size();
    ids.insert(ids.end(), {static_cast<std::int64_t>(one.table), 0});
    for (const std::int64_t id : one.ids) {
      if (id < 0 || one.table >= options_.tables.size() ||
          static_cast<std::size_t>(id) >= options_.tables[one.table].rows) {
        throw TrainerError("there is no row " + std::to_string(id) + " in table " +
                           std::to_string(one.table));
      }
      if (id % servers_ == group) ids.push_back(id / servers_);
    }
    ids[head + 1] = static_cast<std::int64_t>(ids.size() - head - 2);
  }
  return ids;
}

void ParameterServer::pull(std::span<Rows> rows) {
  check_rows(rows, false);
  if (chief_ && !std::exchange(has_compared_, true)) compare_servers();
  for (Rows& one : rows) {
    one.values.assign(one.ids.size() * options_.tables[one.table].width, 0.0F);
  }
  // First those that may hold it until their round is over.
  for (const bool after : {false, true}) {
    for (std::uint32_t group = 0; group < servers_; ++group) {
      if (dropped_[group] != after) continue;
      Message message;
      message.kind = Kind::kPull;
      message.group = group;
      message.ids = ids_of(group, rows);
      client_.start(std::move(message));
    }
    for (std::uint32_t group = 0; group < servers_; ++group) {
      if (dropped_[group] == after) take_values(group, client_.finish(group), rows);
    }
  }
  dropped_.assign(servers_, false);
  for (Parameter* const one : parameters_) one->changed();
}

void ParameterServer::take_values(std::uint32_t group, const Message& values,
                                  std::span<Rows> rows) {
  FloatReader from(values.floats);
  const auto take = [&from, group](std::span<float> to) {
    if (from.left() < to.size()) {
      throw TrainerError("ps " + std::to_string(group) +
                         " has sent fewer numbers than its variables"
                         " have: start all tasks with the same program and flags");
    }
    from.read(to);
  };
  for (const Piece& piece : pieces_) {
    if (piece.server != group) continue;
    take(parameters_[piece.variable]->value().subspan(piece.first, piece.size));
  }
  for (Rows& one : rows) {
    const std::size_t width = options_.tables[one.table].width;
    for (std::size_t i = 0; i < one.ids.size(); ++i) {
      if (one.ids[i] % servers_ != group) continue;
      take(std::span(one.values).subspan(i * width, width));
    }
  }
  if (from.left() > 0) {
    throw TrainerError("ps " + std::to_string(group) + " has sent " + std::to_string(from.left()) +
                       " numbers more than the variables here have: start all tasks with the same "
                       "program and flags");
  }
  versions_[group] = values.version;
  if (group == 0) global_step_ = values.version;
}

bool ParameterServer::push(double samples, double rate, std::span<const Rows> rows) {
  check_push(samples, rate, rows);
  std::vector<Values> memory;
  memory.reserve(parameters_.size());
  for (const Parameter* const one : parameters_) memory.push_back(one->gradient_values());
  for (std::uint32_t group = 0; group < servers_; ++group) {
    Message message;
    const auto owner = loan_.owner(memory);
    for (const Piece& piece : pieces_) {
      if (piece.server != group) continue;
      const auto from = parameters_[piece.variable]->gradient().subspan(piece.first, piece.size);
      message.floats.add({owner, from});
    }
    std::vector<float> numbers;
    for (const Rows& one : rows) {
      const std::size_t width = options_.tables.at(one.table).width;
      for (std::size_t i = 0; i < one.ids.size(); ++i) {
        if (one.ids[i] % servers_ != group) continue;
        const auto from = std::span(one.gradients).subspan(i * width, width);
        numbers.insert(numbers.end(), from.begin(), from.end());
      }
    }
    message.floats.add(Floats::of(std::move(numbers)));
    message.kind = Kind::kPush;
    message.group = group;
    message.version = versions_[group];
    message.weight = samples;
    message.rate = rate;
    message.ids = ids_of(group, rows);
    client_.start(std::move(message));
  }
  bool counted = true;
  try {
    for (std::uint32_t group = 0; group < servers_; ++group) {
      const Message answer = client_.finish(group);
      dropped_[group] = answer.dropped;
      if (group > 0) continue;
      counted = !answer.dropped;
      global_step_ = answer.version;
    }
  } catch (...) {
    end_loan();
    throw;
  }
  end_loan();
  return counted;
}

void ParameterServer::end_loan() {
  // Whoever has the push has read it, and has told so sooner than ZeroMQ lets go of it.
  if (loan_.ends_within(kEndOfLoan)) return;
  for (Parameter* const one : parameters_) one->move_gradient();
  loan_ = {};
}

ServerCounts ParameterServer::counts() {
  Message message;
  message.kind = Kind::kStatus;
  return counts_of(client_.ask(message).text);
}

ServerCounts ParameterServer::counts_of(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  ServerCounts counts;
  counts.global_step = json.at("version");
  counts.steps_by_worker = json.at("steps").get<std::vector<std::uint64_t>>();
  counts.dropped_by_worker = json.at("dropped").get<std::vector<std::uint64_t>>();
  counts.staleness = json.at("staleness").get<Histogram>();
  counts.there = json.at("there");
  counts.expected = json.at("expected");
  counts.most_ahead = json.at("most_ahead");
  counts.lost = json.at("lost").get<std::vector<std::string>>();
  counts.chief_is_heard = json.at("chief");
  counts.closed = json.at("closed");
  counts.created = json.at("created");
  return counts;
}

void ParameterServer::leave() {
  // The first server last: once that one says that all are done, the chief closes the job.
  for (std::uint32_t group = servers_; group-- > 0;) {
    Message message;
    message.kind = Kind::kBye;
    message.group = group;
    (void)client_.ask(std::move(message));
  }
}

void ParameterServer::wait_for_the_end() {
  const std::string seconds = std::to_string(std::lround(options_.deadline)) + " s";
  double heard = steady_seconds();
  bool said = false;
  while (true) {
    Message message;
    message.kind = Kind::kStatus;
    const auto answer = client_.try_ask(message, options_.deadline);
    if (client_.closed()) return;
    if (!answer || answer->kind != Kind::kCounts) {
      throw TrainerError("ps 0 has not answered for " + seconds + ", nor said that the chief has " +
                         "closed the job: look whether the chief has kept the last state");
    }
    const ServerCounts now = counts_of(answer->text);
    if (now.closed) return;
    if (now.chief_is_heard) heard = steady_seconds();
    const double silence = steady_seconds() - heard;
    if (silence > options_.deadline) {
      throw TrainerError("the chief has not been heard for " + seconds +
                         ": nobody has kept the last state, so start all tasks again");
    }
    if (silence > 0.0 && !std::exchange(said, true)) {
      say(text_of(tasks_.self()) + " is done, and the chief, which keeps the last state, is not " +
          "heard: it waits for at most " + seconds);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

ServerCounts ParameterServer::finish() {
  leave();
  if (!chief_) return wait_for_the_end(), ServerCounts{};
  // Those who stop without a word are gone after worker_timeout.
  ServerCounts last = counts();
  double news = steady_seconds();
  while (last.there > 0 || last.expected > 0) {
    // A chief that makes no steps of its own hears of them here alone.
    global_step_ = std::max(global_step_, last.global_step);
    save_if_due();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ServerCounts now = counts();
    if (now.global_step != last.global_step || now.there != last.there) news = steady_seconds();
    last = std::move(now);
    if (steady_seconds() - news < kPatience) continue;
    say(std::to_string(last.there) + " workers are there, but have made no step for " +
        std::to_string(static_cast<long>(kPatience)) + " s: the chief closes the job");
    break;
  }
  for (const std::string& one : last.lost) {
    say(one + " was lost before it was done: what it had still to learn is not learned");
  }
  pull();
  if (checkpoints_ && !save()) throw TrainerError("the last state is not on the disk");
  for (std::uint32_t group = 0; group < servers_; ++group) {
    Message message;
    message.kind = Kind::kClose;
    message.group = group;
    if (!client_.try_ask(std::move(message), 5.0)) {
      say("ps " + std::to_string(group) + " did not say that it ends: it does so by itself");
    }
  }
  return last;
}

}  // namespace ronde::trainer::server
