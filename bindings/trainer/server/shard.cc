// SPDX-License-Identifier: Apache-2.0
// A group on one server: its log, and the effect of its entries. The standby applies the same
// entries in the same order, so that apply() and all that it calls read no clock. shard_requests.cc
// decides which requests become entries.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "bindings/trainer/server/protocol.h"
#include "bindings/trainer/server/variables.h"

namespace ronde::trainer::server {

namespace {

constexpr std::size_t kMostStarts = 64;  // that are remembered of a task: the newest

}  // namespace

Shard::Shard(const ServerOptions& options, std::uint32_t group, bool primary)
    : options_(options),
      group_(group),
      primary_(primary),
      has_standby_(primary && options.standby && options.servers > 1),
      members_(options.workers + 2U) {
  // The last two are a chief and an evaluator beside the workers: no round waits for them.
  for (std::uint32_t i = 0; i < members_.size(); ++i) {
    members_[i].address = {Role::kWorker, i, 0};
    if (i < options.workers) continue;
    members_[i].life = Life::kGone;
    members_[i].address = {i == options.workers ? Role::kChief : Role::kEvaluator, 0, 0};
  }
}

Shard::~Shard() = default;

const Shard::Member* Shard::member_of(const Address& address) const {
  std::size_t at = address.index;
  if (address.role == Role::kChief) at += options_.workers;
  if (address.role == Role::kEvaluator) at += options_.workers + 1U;
  const bool one_of_many = address.role == Role::kWorker && address.index < options_.workers;
  const bool alone = address.index == 0 && (address.role == Role::kEvaluator ||
                                            (address.role == Role::kChief && options_.has_chief));
  return one_of_many || alone ? &members_[at] : nullptr;
}

bool Shard::knows(const Address& from) const {
  const Member* const member = member_of(from);
  return member != nullptr && from.incarnation != 0 && member->incarnation == from.incarnation;
}

void Shard::heard(double now, const Address& from) {
  if (knows(from)) member_of(from)->heard = now;
}

void Shard::log(const Message& request, Messages& out) {
  Message entry = request;
  entry.entry = ++entries_;
  entry.origin = request.from;
  if (has_standby_) {
    entry.group = group_;
    entry.to = {Role::kServer, next(), 0};
    unconfirmed_.push_back(entry);
    out.push_back(neighbour_.incarnation == 0 ? hello_to_standby() : entry);
  }
  apply(entry);
  release(out);
}

void Shard::release(Messages& out) {
  if (!primary_) answers_.clear();
  while (!answers_.empty() && (!has_standby_ || answers_.front().entry <= confirmed_)) {
    answers_.front().entry = 0;
    out.push_back(std::move(answers_.front()));
    answers_.pop_front();
  }
}

void Shard::promote(double now) {
  if (primary_) return;
  primary_ = true;
  started_ = now;
  for (Member& member : members_) {
    member.heard = now;
    member.held.reset();  // the worker sends it again
  }
}

void Shard::drop_standby(Messages& out) {
  has_standby_ = false;
  unconfirmed_.clear();
  release(out);
}

void Shard::on_tick(double now, Messages& out) {
  if (!primary_) return;
  if (started_ < 0.0) started_ = now;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    member.silent = now - member.heard > options_.worker_timeout;
    const bool silent = member.life == Life::kThere && member.silent;
    const bool never_seen =
        member.life == Life::kExpected && now - started_ > options_.start_timeout;
    if (!silent && !never_seen) continue;
    Message gone = make_message(Kind::kGone);
    gone.sequence = i;
    news_.push_back(
        name_of(member) + (silent ? " has not been heard for " : " has not come within ") +
        std::to_string(std::lround(silent ? options_.worker_timeout : options_.start_timeout)) +
        " s: the others go on without it" +
        (options_.is_chief(member.address) ? ", and nothing is saved" : ""));
    log(gone, out);
  }
  if (unconfirmed_.empty() || now - sent_ < options_.resend) return;
  sent_ = now;
  if (neighbour_.incarnation == 0) return out.push_back(hello_to_standby());
  out.insert(out.end(), unconfirmed_.begin(), unconfirmed_.end());
}

Message Shard::reply(const Message& request, Message answer) {
  answer.to = request.origin;
  answer.group = group_;
  answer.sequence = request.sequence;
  answer.entry = entries_;
  if (primary_) answers_.push_back(answer);
  return answer;
}

void Shard::apply(const Message& entry) {
  if (entry.kind == Kind::kGone) {
    if (entry.sequence < members_.size()) leave(members_[entry.sequence]);
    return advance();
  }
  Member* const member = member_of(entry.origin);
  if (member == nullptr) return;  // no primary makes such an entry
  switch (entry.kind) {
    case Kind::kHello:
      join(entry);
      break;
    case Kind::kCreate:
      create(*member, entry);
      break;
    case Kind::kNorm:
      member->held = entry;
      break;
    case Kind::kPull:
      if (pending_rate_ && entry.weight > 0.0) {
        variables_->apply(*std::exchange(pending_rate_, {}), entry.weight);
      }
      member->held = entry;
      member->excused = false;  // it waits for no other group now
      break;
    case Kind::kPush:
      take_push(entry);
      break;
    case Kind::kState: {
      Message answer = make_message(Kind::kStates);
      answer.version = variables_->version();
      answer.floats = variables_->whole();
      reply(entry, std::move(answer));
      break;
    }
    case Kind::kStatus:
      member->told = member->told || closed();
      reply(entry, make_message(Kind::kCounts, group_, counts().text()));
      break;
    case Kind::kStop:
      hear_end(entry.version);
      reply(entry, make_message(Kind::kAck));
      break;
    case Kind::kBye:
      leave(*member);
      member->bye = entry.sequence;
      member->done = true;
      reply(entry, make_message(Kind::kAck));
      break;
    default:
      break;
  }
  advance();
}

void Shard::create(const Member& member, const Message& entry) {
  try {
    if (!created()) {
      const VariableSpecs specs = VariableSpecs::of(entry.text);
      variables_ = std::make_unique<Variables>(specs, entry.floats, options_.rules);
      mode_ = specs.mode;
      training_ = member.training;
      for (Member& one : members_) one.unlike = unlike(one.address, one.training);
    }
    reply(entry, make_message(Kind::kCreated));
  } catch (const std::exception& error) {
    reply(entry, make_message(Kind::kRefused, group_, error.what()));
  }
}

void Shard::join(const Message& entry) {
  Member& member = *member_of(entry.origin);
  member.address = entry.origin;
  if (!entry.text.empty()) member.training = training_of(entry.text);
  member.unlike = unlike(entry.origin, member.training);
  heard_of(member, entry.origin.incarnation);
  if (member.incarnation != entry.origin.incarnation) {
    member.incarnation = entry.origin.incarnation;
    member.last = {};
    member.bye = 0;
    member.excused = false;
    member.held.reset();
  }
  Message answer = make_message(Kind::kWelcome);
  answer.dropped = !created();
  // The hello was on its way for longer than a later goodbye.
  if (member.bye > 0 && entry.sequence <= member.bye) {
    reply(entry, std::move(answer));
    return;
  }
  // It takes the variables as they are, and must not hold up the workers that are further.
  if (member.life == Life::kGone) {
    const std::uint64_t others = slowest();
    if (others != std::numeric_limits<std::uint64_t>::max()) {
      member.clock = std::max(member.clock, others);
    }
  }
  if (member.life != Life::kThere && group_ == options_.index) {
    news_.push_back(name_of(member) + (member.starts.size() > 1 ? " is there again" : " is there"));
  }
  member.life = Life::kThere;
  member.done = member.told = false;
  reply(entry, std::move(answer));
}

void Shard::heard_of(Member& member, std::uint64_t start) {
  auto& starts = member.starts;
  if (std::ranges::find(starts, start) == starts.end()) starts.push_back(start);
  if (starts.size() > kMostStarts) {
    starts.erase(starts.begin() + (starts.front() == member.incarnation ? 1 : 0));
  }
}

void Shard::leave(Member& member) {
  member.life = Life::kGone;
  member.held.reset();
}

void Shard::take_push(const Message& entry) {
  Member& member = *member_of(entry.origin);
  const std::uint64_t version = variables_->version();
  const std::uint64_t stale = version - std::min(version, entry.version);
  const bool late = mode_.mode == Mode::kSync &&
                    (stale > 0 || member.waits.has_value() || pending_rate_ || has_stopped());
  if (late) {
    ++member.dropped;
    member.excused = true;
  } else if (mode_.mode != Mode::kSync && entry.weight == 0.0) {
    ++member.clock;  // a step without samples is neither counted nor applied
  } else {
    ++member.clock;
    ++member.counted;
    ++staleness_[std::min<std::uint64_t>(stale, staleness_.size() - 1)];
    if (mode_.mode == Mode::kSync) {
      member.waits = entry;
    } else {
      const Message* const push = &entry;
      const double scale =
          mode_.scale_by_staleness ? 1.0 / (1.0 + static_cast<double>(stale)) : 1.0;
      variables_->update({&push, 1}, entry.rate * scale);
    }
  }
  Message answer = make_message(Kind::kAck);
  answer.dropped = late;
  answer.rate = static_cast<double>(end_);
  answer.version = variables_->version();
  member.last = reply(entry, std::move(answer));
}

std::uint64_t Shard::slowest() const {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (std::size_t i = 0; i < options_.workers; ++i) {
    if (members_[i].life != Life::kGone) least = std::min(least, members_[i].clock);
  }
  return least;
}

bool Shard::may_go_on(const Member& member) const {
  const auto at = static_cast<std::size_t>(&member - members_.data());
  if (!created()) return false;
  if (at >= options_.workers || mode_.mode == Mode::kAsync) return true;
  // An earlier incarnation may have pushed to some groups only: this one must not wait for their
  // rounds while other workers wait for its push to another group.
  if (mode_.mode == Mode::kSync) {
    return !member.waits || member.waits->origin.incarnation != member.incarnation;
  }
  return member.clock - std::min(member.clock, slowest()) <= mode_.bound;
}

bool Shard::has_stopped() const {
  return mode_.mode == Mode::kSync && end_ % kEnds != 0 && end_ % kEnds != kSaysAllDone;
}

// Drops the pushes that wait for a round, since no round ends any more.
void Shard::hear_end(std::uint64_t end) {
  end_ = std::max(end_, end);
  if (!has_stopped()) return;
  for (Member& member : members_) {
    if (!member.waits) continue;
    member.waits.reset();
    --member.counted;
    ++member.dropped;
    --staleness_.front();
  }
}

void Shard::end_round(const std::vector<const Message*>& pushes) {
  const double rate = pushes.front()->rate;
  if (!variables_->clips()) return variables_->update(pushes, rate);
  norm_ = variables_->prepare(pushes);
  if (options_.servers == 1) return variables_->apply(rate, norm_);
  pending_rate_ = rate;
}

// Ends the round if it is complete, then answers the pulls that need not wait any more.
void Shard::advance() {
  if (created() && mode_.mode == Mode::kSync) {
    // A round is complete with the pushes of all but `backup_workers`, or of all that are there.
    std::vector<const Message*> pushes;
    bool all_are_here = true;
    for (std::size_t i = 0; i < options_.workers; ++i) {
      const Member& member = members_[i];
      if (member.waits) pushes.push_back(&*member.waits);
      all_are_here = all_are_here && (member.waits || member.life == Life::kGone || member.excused);
    }
    const bool enough = pushes.size() + mode_.backup_workers >= options_.workers;
    if (!pushes.empty() && (enough || all_are_here)) {
      end_round(pushes);
      for (Member& member : members_) member.waits.reset();
    }
  }
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    if (!member.held || !may_go_on(member)) continue;
    if (i < options_.workers && mode_.mode == Mode::kStale) {
      most_ahead_ = std::max(most_ahead_, member.clock - std::min(member.clock, slowest()));
    }
    const bool asks_norm = member.held->kind == Kind::kNorm;
    Message answer = make_message(asks_norm ? Kind::kNormIs : Kind::kValues);
    answer.rate = static_cast<double>(end_);
    answer.version = variables_->version();
    answer.weight = norm_;
    if (asks_norm) {
      answer.version += pending_rate_ ? 1U : 0U;
    } else if (primary_)
      answer.floats = variables_->values(member.held->ids);
    reply(*member.held, std::move(answer));
    member.held.reset();
  }
}

}  // namespace ronde::trainer::server
