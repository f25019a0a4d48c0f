// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/server/parameter_server.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "bindings/trainer/fit/replica.h"
#include "bindings/trainer/keep/checkpoint.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {

namespace {

constexpr std::chrono::milliseconds kEndOfLoan{100};

std::vector<Piece> pieces_of(const std::vector<Parameter*>& parameters, std::uint32_t servers,
                             const ParameterServerOptions& options) {
  std::vector<VariableSpec> specs;
  specs.reserve(parameters.size() + options.statistics.size());
  for (const Parameter* const one : parameters) specs.push_back({one->name(), one->shape()});
  for (const StateTensor& one : options.statistics) specs.push_back({one.name, one.shape, true});
  return place(specs, servers, options.partition);
}

ParameterServerOptions with_printer(ParameterServerOptions options) {
  options.say = or_stdout(std::move(options.say));
  return options;
}

std::string table_with(std::string table, const std::vector<TableSpec>& more,
                       std::uint32_t servers) {
  for (const TableSpec& one : more) {
    const std::string rows = one.grows ? "as many as there are keys" : std::to_string(one.rows);
    table += (table.empty() ? "" : "\n") + one.name + " (" + rows + " x " +
             std::to_string(one.width) + "), row r on ps r mod " + std::to_string(servers) +
             (one.rule.empty() ? "" : ", by the rule '" + one.rule + "'");
  }
  return table;
}

}  // namespace

PrintLine or_stdout(PrintLine say) {
  if (say) return say;
  return [](const std::string& line) {
    std::puts(line.c_str());
    std::fflush(stdout);
  };
}

std::string ParameterServerOptions::job_of(const Tasks& tasks) const {
  return tasks.text() + "\n--standby " + (standby ? "on" : "off");
}

ParameterServer::ParameterServer(const Tasks& tasks, std::vector<Parameter*> parameters,
                                 ParameterServerOptions options)
    : tasks_(tasks),
      parameters_(std::move(parameters)),
      options_(with_printer(std::move(options))),
      servers_(static_cast<std::uint32_t>(tasks.servers.size())),
      chief_(tasks.is_chief()),
      pieces_(pieces_of(parameters_, servers_, options_)),
      table_(table_with(table_of(pieces_), options_.tables, servers_)),
      versions_(servers_, 0),
      dropped_(servers_, false),
      client_(client_options()) {
  if (!chief_) return;
  std::vector<Parameter*> all = parameters_;
  for (const TableSpec& one : options_.tables) {
    if (one.grows) continue;
    tables_.push_back(std::make_unique<Parameter>(one.name, Shape{one.rows, one.width}));
    all.push_back(tables_.back().get());
  }
  if (options_.mirror == nullptr) {
    own_mirror_ = std::make_unique<UpdateRule>(options_.optimizer, all);
  }
  mirror_ = options_.mirror == nullptr ? own_mirror_.get() : options_.mirror;
  for (const Parameter* const one : parameters_) {
    tensors_.push_back({one->name(), one->shape(), one->value()});
  }
  tensors_.insert(tensors_.end(), options_.statistics.begin(), options_.statistics.end());
  for (const auto& one : tables_) tensors_.push_back({one->name(), one->shape(), one->value()});
  for (StateTensor& one : mirror_->state()) tensors_.push_back(std::move(one));
}

ParameterServer::~ParameterServer() = default;

ClientOptions ParameterServer::client_options() {
  ClientOptions client{.state = {.self = tasks_.self(),
                                 .servers = servers_,
                                 .standby = options_.standby,
                                 .decides = chief_,
                                 .job = options_.job_of(tasks_),
                                 .training = training(),
                                 .server_timeout = options_.server_timeout},
                       .servers = tasks_.servers,
                       .access = access_for(tasks_.all()),
                       .create = {},
                       .deadline = options_.deadline,
                       .say = options_.say};
  if (chief_) client.create = [this](std::uint32_t group) { return create(group); };
  return client;
}

VariableSpecs ParameterServer::specs_of(std::uint32_t group) const {
  VariableSpecs specs;
  specs.optimizer = options_.optimizer;
  specs.mode = options_.mode;
  specs.clip = options_.clip;
  for (const Piece& piece : pieces_) {
    if (piece.server == group) {
      specs.variables.push_back({piece.name, piece.shape, piece.variable >= parameters_.size()});
    }
  }
  for (TableSpec table : options_.tables) {
    table.rows = rows_on(table.rows, group, servers_);
    table.first = group;
    table.stride = servers_;
    specs.tables.push_back(table);
  }
  return specs;
}

// From the chief's values; for a server that was started again, from the last checkpoint.
Message ParameterServer::create(std::uint32_t group) {
  VariableSpecs specs = specs_of(group);
  specs.whole = restored_;
  specs.steps = restored_ ? mirror_->steps() : versions_[group];
  std::vector<float> floats;
  if (global_step_ > first_step_) {
    restored_ = specs.whole = saved_ != nullptr;
    require_rows(group);
    if (restored_) {
      floats = saved_state_of(group, specs);
    } else {
      specs.steps = versions_[group];
      options_.say("ps " + std::to_string(group) +
                   " goes on with the values that the chief has, of step " +
                   std::to_string(versions_[group]) + ", without moments: there is no checkpoint");
    }
  } else if (restored_) {
    floats = numbers_of(state_of(group, tensors_));
  }
  if (!restored_) {
    for (const Piece& piece : pieces_) {
      if (piece.server != group) continue;
      const auto from = value_of(piece);
      floats.insert(floats.end(), from.begin(), from.end());
    }
  }
  Message message = make_message(Kind::kCreate, group, specs.text());
  message.floats = Floats::of(std::move(floats));
  return message;
}

// The chief has no rows but those of a checkpoint: a table would begin anew beside what is learned.
void ParameterServer::require_rows(std::uint32_t group) const {
  for (const TableSpec& table : options_.tables) {
    if (!table.grows && restored_) continue;
    throw TrainerError("ps " + std::to_string(group) + " was started again, and the rows of " +
                           table.name + " are lost, " +
                           (table.grows ? "which no checkpoint has"
                                        : "of which there is no "
                                          "checkpoint") +
                           ": use a standby (--standby on), which takes over",
                       kExitConfiguration);
  }
}

// The tensors here stay as they are: this comes in the middle of a pull, or of a fetch of all that
// is saved, and other groups have answered already.
std::vector<float> ParameterServer::saved_state_of(std::uint32_t group, VariableSpecs& specs) {
  const Checkpoint last = read_checkpoint(disk(), saved_());
  std::vector<std::vector<float>> memory;
  std::vector<StateTensor> tensors = tensors_;
  for (StateTensor& one : tensors) {
    one.values = memory.emplace_back(one.values.begin(), one.values.end());
  }
  copy_tensors(last.tensors, tensors, "the last checkpoint");
  specs.steps = last.state.optimizer_steps;
  options_.say("ps " + std::to_string(group) + " goes on from the checkpoint of step " +
               std::to_string(last.state.global_step) + ": its later updates are lost");
  return numbers_of(state_of(group, tensors));
}

std::vector<std::int64_t> ParameterServer::ids_of(std::uint32_t group,
                                                  std::span<const Rows> rows) const {
  std::vector<std::int64_t> ids;
  for (const Rows& one : rows) {
    const std::size_t head = ids.size();
    ids.insert(ids.end(), {static_cast<std::int64_t>(one.table), 0});
    for (const std::int64_t id : one.ids) {
      if (id < 0 || one.table >= options_.tables.size() ||
          (!options_.tables[one.table].grows &&
           static_cast<std::size_t>(id) >= options_.tables[one.table].rows)) {
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
  const bool clips = options_.clip > 0.0 && servers_ > 1 && std::exchange(has_pushed_, false);
  const double norm = clips ? norm_of_round() : 0.0;
  // Groups that have dropped the push come last: see Modes in protocol.h.
  for (const bool after : {false, true}) {
    for (std::uint32_t group = 0; group < servers_; ++group) {
      if (dropped_[group] != after) continue;
      Message message = make_message(Kind::kPull, group);
      message.dropped = left_;
      message.weight = norm;
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

// Squared, over all groups; 0 if the groups are in different rounds: then other workers ask, too.
double ParameterServer::norm_of_round() {
  for (std::uint32_t group = 0; group < servers_; ++group) {
    client_.start(make_message(Kind::kNorm, group));
  }
  double norm = std::numeric_limits<double>::min();
  std::set<std::uint64_t> rounds;
  for (std::uint32_t group = 0; group < servers_; ++group) {
    const Message answer = client_.finish(group);
    norm += answer.weight;
    rounds.insert(answer.version);
  }
  return rounds.size() == 1 ? norm : 0.0;
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
    take(value_of(piece));
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
  if (group > 0) return;
  global_step_ = values.version;
  end_ = std::max(end_, static_cast<std::uint64_t>(values.rate));
}

std::span<float> ParameterServer::value_of(const Piece& piece) const {
  const std::size_t parameters = parameters_.size();
  const std::span<float> whole = piece.variable < parameters
                                     ? parameters_[piece.variable]->value()
                                     : options_.statistics[piece.variable - parameters].values;
  return whole.subspan(piece.first, piece.size);
}

// A statistic is copied, since it may change before the message is sent.
Floats::Part ParameterServer::pushed(const Piece& piece, const std::shared_ptr<const void>& owner) {
  if (piece.variable < parameters_.size()) {
    return {owner, parameters_[piece.variable]->gradient().subspan(piece.first, piece.size)};
  }
  const auto value = value_of(piece);
  return Floats::of({value.begin(), value.end()}).parts().front();
}

bool ParameterServer::push(double samples, double rate, std::span<const Rows> rows) {
  join();
  has_pushed_ = true;
  check_push(samples, rate, rows);
  std::vector<Values> memory;
  memory.reserve(parameters_.size());
  for (const Parameter* const one : parameters_) memory.push_back(one->gradient_values());
  for (std::uint32_t group = 0; group < servers_; ++group) {
    Message message = make_message(Kind::kPush, group);
    const auto owner = loan_.owner(memory);
    for (const Piece& piece : pieces_) {
      if (piece.server != group) continue;
      message.floats.add(pushed(piece, owner));
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
      end_ = std::max(end_, static_cast<std::uint64_t>(answer.rate));
    }
  } catch (...) {
    end_loan();
    throw;
  }
  end_loan();
  return counted;
}

void ParameterServer::end_loan() {
  // A server acknowledges a push before ZeroMQ here lets go of its memory.
  if (loan_.ends_within(kEndOfLoan)) return;
  for (Parameter* const one : parameters_) one->move_gradient();
  loan_ = {};
}

}  // namespace ronde::trainer::server
