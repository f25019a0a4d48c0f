// SPDX-License-Identifier: Apache-2.0
// The actions of the ranks and hosts of a simulated job, and the promises that are checked.
#include "test/support/hosts_simulation.h"

#include <algorithm>
#include <chrono>

#include "runtime/negotiate/make_control_node.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

namespace {

// Tells whether the agreed tensor has the signature that the rank submitted.
bool agrees(const AgreedTensor& agreed, const Signature& mine, std::int32_t rank) {
  Signature remembered = agreed.signature;
  if (!agreed.first_dimensions.empty()) {
    remembered.shape[0] = agreed.first_dimensions[base::narrow<std::size_t>(rank)];
  }
  return remembered == normalized(mine);
}

}  // namespace

// ---- a rank ----

Status SimulatedRank::submit(const std::string& name, const Signature& signature) {
  auto tensor = std::make_shared<LocalTensor>();
  tensor->name = name;
  tensor->place = "train.cc:" + std::to_string(context_.rank);
  tensor->signature = normalized(signature);
  const auto ticket = table_.insert(tensor);
  RONDE_RETURN_IF_ERROR(ticket.status());
  in_flight_[name] = tensor;
  ++submitted_[name];
  const auto arrival = member_.count_in(*tensor, *ticket);
  if (arrival == collectives::Arrival::kLast) to_push_ = ticket->entry;
  if (arrival != collectives::Arrival::kStale) return {};
  return member_.announce(*tensor, Ticket{}, {}, true);
}

void SimulatedRank::push() {
  member_.push(*to_push_, true);
  to_push_.reset();
}

Result<bool> SimulatedRank::read() {
  RONDE_RETURN_IF_ERROR(streams_.flush());
  RONDE_ASSIGN_OR_RETURN(const auto decision, streams_.next());
  if (!decision.has_value()) return false;
  if (const auto* bind = std::get_if<BindDecision>(&*decision)) plan_[bind->entry] = *bind;
  if (const auto* batch = std::get_if<BatchDecision>(&*decision)) {
    RONDE_RETURN_IF_ERROR(check(*batch));
  }
  if (std::holds_alternative<CloseDecision>(*decision)) {
    return Status::error(Code::kInternal, "a rank hears that an entry is closed");
  }
  if (given_up_) return Status::error(Code::kInternal, "something is decided after the end");
  if (const auto* given_up = std::get_if<GivenUpDecision>(&*decision)) {
    given_up_ = *given_up;
    if (batches_.empty()) end_all();
    return true;
  }
  shut_ = shut_ || std::holds_alternative<DepartedDecision>(*decision);
  RONDE_RETURN_IF_ERROR(member_.on_decision(*decision));
  return true;
}

// Every tensor of a batch is executed as this rank has submitted it.
Status SimulatedRank::check(const BatchDecision& batch) const {
  for (const BatchItem& item : batch.items) {
    const bool planned = item.entry >= 0;
    const std::string& name = planned ? plan_.at(item.entry).name : item.name;
    const AgreedTensor& agreed = planned ? plan_.at(item.entry).tensor : item.tensor;
    const auto mine = in_flight_.find(name);
    if (mine != in_flight_.end() && !agrees(agreed, mine->second->signature, context_.rank)) {
      return Status::error(Code::kInternal, name + " is executed as " + describe(agreed.signature) +
                                                ", which rank " + std::to_string(context_.rank) +
                                                " did not say");
    }
  }
  return {};
}

Status SimulatedRank::on_batch(std::uint64_t sequence, TensorTable::Claimed claimed) {
  log_.emplace_back();
  for (const LocalTensorPtr& tensor : claimed.tensors) {
    log_.back().push_back({tensor->name, submitted(tensor->name) - 1});
  }
  batches_.emplace_back(sequence, std::move(claimed.tensors));
  return {};
}

void SimulatedRank::finish() {
  for (const LocalTensorPtr& tensor : batches_.front().second) {
    end(tensor, {batches_.front().first, Code::kOk, {}});
  }
  batches_.pop_front();
  if (given_up_ && batches_.empty()) end_all();
}

void SimulatedRank::end_all() {
  ended_ = shut_ = true;
  to_push_.reset();
  for (const LocalTensorPtr& tensor : table_.remove_all(true)) {
    if (tensor->in_batch) base::check(false, "a batch is in progress");
    end(tensor, {0, given_up_->why.code, given_up_->why.text});
  }
}

void SimulatedRank::end(const LocalTensorPtr& tensor, const Answer& answer) {
  table_.remove(*tensor);
  answers_[{tensor->name, submitted(tensor->name) - 1}] = answer;
  in_flight_.erase(tensor->name);
}

Status SimulatedRank::complain() {
  for (const auto& [name, tensor] : in_flight_) {
    if (tensor->in_batch) continue;
    return member_.announce(StalledAnnouncement{{{name, 1'000'000}}, false, false}, true);
  }
  return {};
}

Status SimulatedRank::give_up() {
  if (in_flight_.empty()) return {};
  return member_.announce(GivenUpAnnouncement{Code::kDeadline, in_flight_.begin()->first}, true);
}

Status SimulatedRank::start_closing() {
  closing_ = Closing::kClosing;
  return member_.announce(ClosingAnnouncement{false}, true);
}

Result<bool> SimulatedRank::go_on_closing() {
  RONDE_RETURN_IF_ERROR(streams_.flush());
  if (closing_ == Closing::kClosing && table_.empty()) {
    closing_ = Closing::kForced;
    RONDE_RETURN_IF_ERROR(member_.announce(ClosingAnnouncement{true}, true));
  }
  return closing_ == Closing::kForced && departed_ && batches_.empty();
}

std::string SimulatedRank::state() const {
  std::string text = closing_ == Closing::kNo ? "open" : "closing";
  if (closing_ == Closing::kForced) text += " for good";
  if (departed_) text += ", departed";
  text += ", " + std::to_string(log_.size()) + " batches, waits for";
  for (const auto& [name, tensor] : in_flight_) text += " " + name;
  return text;
}

void SimulatedRank::leave() {
  closing_ = Closing::kLeft;
  context_.board.set_state(collectives::PresenceState::kClosed);
}

// ---- the job ----

namespace {

base::Config config_of(const HostsWorkload& workload) {
  // Each action takes 50 ms: a notice, and the time of a roll call, come every twenty actions.
  base::Config config =
      base::Config::from_environment(std::vector<std::string>{"RONDE_STALL_WARNING_SECONDS=1"})
          .value();
  config.plan_capacity = workload.capacity;
  config.batch_bytes = workload.limit;
  return config;
}

}  // namespace

HostsSimulation::HostsSimulation(const HostsWorkload& workload, Random& random)
    : workload_(workload),
      random_(random),
      config_(config_of(workload)),
      network_(
          HostTree(workload.shape.hosts(), workload.fan_in), now_,
          [this](std::int32_t, std::int32_t) { return now_ + draw(0, workload_.longest_delay); }) {
  const base::JobShape& shape = workload_.shape;
  ranks_.resize(base::narrow<std::size_t>(shape.ranks()));
  for (std::int32_t h = 0; h < shape.hosts(); ++h) {
    const auto ranks = shape.ranks_of(h);
    Host& host = hosts_.emplace_back();
    host.boards =
        testing::make_memory_boards({.ranks = base::narrow<std::int32_t>(ranks.size()),
                                     .announce_bytes = workload_.ring_bytes,
                                     .decision_bytes = workload_.ring_bytes,
                                     .entries = workload_.capacity,
                                     .slot_bytes = base::narrow<std::int64_t>(64 * ranks.size())});
    Links* const links = shape.hosts() == 1 ? nullptr : &network_.links(h);
    host.control_node =
        make_control_node(host.boards[0], shape, ranks.front(), links, config_, clock_, late_);
    for (std::size_t position = 0; position < ranks.size(); ++position) {
      ranks_[base::narrow<std::size_t>(ranks[position])] = std::make_unique<SimulatedRank>(
          RankContext{host.boards[position], shape, ranks[position], config_, clock_, log_});
    }
  }
}

bool HostsSimulation::act() {
  ++now_;
  clock_.advance(std::chrono::milliseconds(50));
  if (chance(0.3)) {
    return act_control_node(base::narrow<std::int32_t>(draw(0, workload_.shape.hosts() - 1)));
  }
  return act_rank(base::narrow<std::int32_t>(draw(0, workload_.shape.ranks() - 1)));
}

bool HostsSimulation::act_control_node(std::int32_t h) {
  Host& host = hosts_.at(base::narrow<std::size_t>(h));
  if (host.gone) return false;
  const bool idle = !at(workload_.shape.leader_of(h)).executes();
  const auto led = host.control_node->step(idle);
  if (!led.ok()) problem("host " + std::to_string(h) + ": " + led.status().message());
  return led.ok() && *led > 0;
}

bool HostsSimulation::act_rank(std::int32_t r) {
  SimulatedRank& rank = at(r);
  if (rank.left()) return false;
  if (rank.ended()) return leave(r);
  if (rank.closing()) {
    const auto left = rank.go_on_closing();
    if (!left.ok()) return try_to(left.status());
    if (*left && leave(r)) return true;
  }
  if (rank.pushes() && chance(0.5)) {
    rank.push();
    return true;
  }
  if (rank.executes() && chance(0.4)) {
    rank.finish();
    return true;
  }
  if (chance(0.5)) return read_some(rank);
  if (chance(workload_.stalls)) return try_to(rank.complain());
  if (workload_.gives_up > 0 && chance(workload_.gives_up)) return try_to(rank.give_up());
  return submit_some(r) || close_some(r);
}

bool HostsSimulation::read_some(SimulatedRank& rank) {
  bool any = false;
  for (std::int64_t i = draw(1, 4); i > 0; --i) {
    const auto read = rank.read();
    if (!read.ok()) return try_to(read.status());
    any = any || *read;
  }
  return any;
}

bool HostsSimulation::submit_some(std::int32_t r) {
  SimulatedRank& rank = at(r);
  const auto first = base::narrow<std::size_t>(draw(0, std::ssize(workload_.signatures) - 1));
  for (std::size_t i = 0; i < workload_.signatures.size(); ++i) {
    const std::size_t tensor = (first + i) % workload_.signatures.size();
    const std::string name = tensor_name(tensor);
    const std::size_t time = rank.submitted(name);
    if (time == workload_.signatures[tensor].size() || !rank.may_submit(name)) continue;
    return try_to(
        rank.submit(name, workload_.signatures[tensor][time][base::narrow<std::size_t>(r)]));
  }
  return false;
}

bool HostsSimulation::close_some(std::int32_t r) {
  SimulatedRank& rank = at(r);
  if (rank.closing() || rank.pushes()) return false;
  const bool early = workload_.may_close.contains(r) && chance(0.02);
  // The others close when they have submitted all, whether or not they have read the answers.
  if (!early && !all_submitted(r)) return false;
  for (std::int32_t other = 0; other < workload_.shape.ranks(); ++other) {
    if (workload_.close_together && !all_submitted(other)) return false;
  }
  return try_to(rank.start_closing());
}

// A leader leaves when it has passed on all decisions.
bool HostsSimulation::leave(std::int32_t r) {
  const std::int32_t h = workload_.shape.host_of(r);
  if (workload_.shape.leader_of(h) == r) {
    Host& host = hosts_.at(base::narrow<std::size_t>(h));
    if (!host.control_node->drained()) return false;
    host.gone = true;
    if (!at(r).ended()) network_.links(h).close();  // those of a set stay open, with the job's
  }
  at(r).leave();
  return true;
}

bool HostsSimulation::all_submitted(std::int32_t r) const {
  const SimulatedRank& rank = *ranks_.at(base::narrow<std::size_t>(r));
  if (rank.shut()) return true;  // the rank can submit no more
  for (std::size_t tensor = 0; tensor < workload_.signatures.size(); ++tensor) {
    if (rank.submitted(tensor_name(tensor)) != workload_.signatures[tensor].size()) return false;
  }
  return true;
}

bool HostsSimulation::over() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->left(); });
}

std::uint64_t HostsSimulation::requests() const {
  std::uint64_t sum = 0;
  for (const auto& rank : ranks_) sum += rank->requests();
  return sum;
}

// ---- the promises ----

void HostsSimulation::check_end() {
  for (std::int32_t r = 0; r < workload_.shape.ranks(); ++r) {
    const SimulatedRank& rank = at(r);
    const std::string who = "rank " + std::to_string(r);
    if (!rank.in_flight().empty()) {
      problem(who + " waits for ever for " + rank.in_flight().begin()->first);
    }
    if (!rank.left()) problem(who + " never leaves: " + rank.state());
    if (rank.batches() != at(0).batches()) problem(who + " executes other batches than rank 0");
  }
  std::set<Call> executed;
  for (const auto& batch : at(0).batches()) {
    for (const Call& call : batch) {
      if (!executed.insert(call).second) problem(call.first + " is executed twice");
    }
  }
  std::set<Call> calls;
  for (const auto& rank : ranks_) {
    for (const auto& [call, answer] : rank->answers()) calls.insert(call);
  }
  for (const Call& call : calls) check_call(call);
}

// Checks that all ranks got the same answer to a call: the same batch, or errors of the same kind.
void HostsSimulation::check_call(const Call& call) {
  const std::size_t tensor = std::stoul(call.first.substr(1));
  const bool disagree = workload_.disagree[tensor][call.second];
  const std::string what = call.first + ", time " + std::to_string(call.second);
  const SimulatedRank::Answer* first = nullptr;
  for (const auto& rank : ranks_) {
    const auto found = rank->answers().find(call);
    const bool everywhere = first == nullptr || (first->batch == 0 && first->code == Code::kClosed);
    if (found == rank->answers().end() || found->second.code == Code::kDeadline) {
      if (workload_.gives_up > 0 && (first == nullptr || first->batch == 0)) continue;
      // Only a rank that closes leaves a tensor out.
      if (workload_.may_close.empty()) problem(what + " is not answered on every rank");
      if (!everywhere) problem(what + " is not answered on every rank that it needs");
      continue;
    }
    const SimulatedRank::Answer& answer = found->second;
    if (first == nullptr) first = &answer;
    if (answer.batch != first->batch || answer.code != first->code) {
      problem(what + " has different answers: '" + answer.text + "', '" + first->text + "'");
    }
    if (answer.code == Code::kMismatch && answer.text != first->text) {
      problem(what + " fails with different texts");
    }
    if (answer.batch > 0 && disagree) problem(what + " is executed although the ranks disagree");
    if (answer.batch > 0 || disagree) continue;
    if (answer.code != Code::kClosed) problem(what + " fails without a reason: " + answer.text);
    if (workload_.may_close.empty()) problem(what + " fails though nobody closes early");
  }
}

}  // namespace ronde::runtime
