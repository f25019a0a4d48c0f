// SPDX-License-Identifier: Apache-2.0
// How a server handles a request before the log: it lets tasks in, refuses requests, and answers
// repeated ones; and the messages between a server and its neighbours. This code may read the
// clock, since the standby does not run it.
#include <algorithm>
#include <utility>

#include "bindings/trainer/server/protocol.h"
#include "bindings/trainer/server/variables.h"

namespace ronde::trainer::server {

namespace {

// Shares of worker_timeout. After the first one without a message, a later start of a task takes
// its place; if the earlier start is heard until the second one after that, both run. (Messages of
// a dead task may come late.)
constexpr double kSilent = 0.4;
constexpr double kBothRun = 0.8;

// The hello of a worker that was taken for dead while its push was on the way: the push proves that
// it lives, so it need not send all of that again after a hello.
Message hello_of(const Message& push) {
  Message hello = push;
  hello.kind = Kind::kHello;
  hello.text.clear();
  hello.ids.clear();
  hello.floats = {};
  return hello;
}

}  // namespace

Message Shard::answer_to(const Message& message, Kind kind, std::string text) const {
  Message answer = make_message(kind, group_, std::move(text));
  answer.to = message.from;
  answer.sequence = message.sequence;
  return answer;
}

std::string Shard::training_of(const std::string& hello) const {
  return hello.substr(std::min(hello.size(), options_.job.size() + 1));
}

// Answers tasks that must say hello first, or wait for the chief, without the log.
bool Shard::is_stranger(const Message& message, Messages& out) {
  const bool takes_part =
      (message.kind == Kind::kPull && !message.dropped) || message.kind == Kind::kPush;
  const bool known =
      knows(message.from) && (!takes_part || member_of(message.from)->life == Life::kThere);
  const bool ready = created() || message.kind == Kind::kCreate || message.kind == Kind::kClose ||
                     message.kind == Kind::kStop || message.kind == Kind::kStatus ||
                     message.kind == Kind::kBye;
  if (known && ready) return false;
  out.push_back(answer_to(message, known ? Kind::kNotReady : Kind::kUnknown));
  return true;
}

void Shard::on_request(double now, const Message& message, Messages& out) {
  if (!primary_) return;  // the sender asks the primary once it has the next view
  heard(now, message.from);
  if (closing_ && !closing_->text.empty() && message.kind != Kind::kClose) {
    if (Member* const late = member_of(message.from)) late->told = true;
    return out.push_back(closing_to(message.from));
  }
  if (message.kind == Kind::kHello) return on_hello(now, message, out);
  const Member* const sender = knows(message.from) ? member_of(message.from) : nullptr;
  if (message.kind == Kind::kPush && sender != nullptr && sender->life == Life::kGone &&
      sender->bye == 0) {
    log(hello_of(message), out);
  }
  if (is_stranger(message, out)) return;
  const auto refuse = [&](std::string why) {
    out.push_back(answer_to(message, Kind::kRefused, std::move(why)));
  };
  if ((message.kind == Kind::kCreate || message.kind == Kind::kClose) &&
      !options_.is_chief(message.from)) {
    return refuse(text_of(message.from) +
                  " is not the chief, which alone creates variables and "
                  "closes the job");
  }
  const Member& member = *member_of(message.from);
  if (!member.unlike.empty()) return refuse(member.unlike);
  const bool is_waiting = std::ranges::any_of(answers_, [&](const Message& answer) {
    return answer.to == message.from && answer.sequence == message.sequence &&
           answer.kind != Kind::kWelcome;
  });
  if (is_waiting) return;  // the answer waits for the standby
  if (message.kind == Kind::kClose) {
    closing_ = message;  // without the log: the standby may be closed already
    out.push_back(answer_to(message, Kind::kAck));
    // A task that is stopped now reads this when it goes on.
    for (const Member& one : members_) {
      if (one.incarnation == 0 || one.address == message.from) continue;
      out.push_back(closing_to(one.address));
    }
    return;
  }
  if (message.kind == Kind::kPush) {
    if (message.sequence < member.last.sequence) return;  // long answered
    if (message.sequence == member.last.sequence) {
      Message again = member.last;
      again.entry = entries_;
      answers_.push_back(std::move(again));
      return release(out);
    }
  }
  const bool waits = message.kind == Kind::kPull || message.kind == Kind::kNorm;
  if (waits && member.held && member.held->sequence >= message.sequence) {
    return;
  }
  const std::string wrong = wrong_with(message);
  if (!wrong.empty()) return refuse(wrong);
  log(message, out);
}

std::string Shard::wrong_with(const Message& message) {
  const std::string group = "group " + std::to_string(group_);
  if (message.kind == Kind::kPull && !variables_->fits(message.ids)) {
    return "a pull of " + text_of(message.from) + " asks for rows that " + group + " does not have";
  }
  if (message.kind != Kind::kPush) return "";
  if (!variables_->fits(message.ids, message.floats.size())) {
    return "a push of " + text_of(message.from) + " does not fit the variables of " + group +
           ": start all tasks with the same program and flags";
  }
  if (message.weight <= 0.0 || all_finite(message.floats)) return "";
  const std::string what = "a gradient of " + text_of(message.from) + " is not a finite number";
  news_.push_back(what + ", and is refused");
  return what + ": use a smaller learning rate, or look for NaN in its data";
}

bool Shard::is_earlier(const Member& member, std::uint64_t start) {
  const auto found = std::ranges::find(member.starts, start);
  return member.incarnation != 0 && found < std::ranges::find(member.starts, member.incarnation);
}

void Shard::on_hello(double now, const Message& message, Messages& out) {
  if (message.from.incarnation == 0) return;  // every task has one
  Member* const member = member_of(message.from);
  const std::string here = "ps " + std::to_string(options_.index);
  std::string refused;
  if (member == nullptr) {
    refused = text_of(message.from) + " is no task of the job that " + here +
              " serves, which has " + std::to_string(options_.workers) + " workers and " +
              (options_.has_chief ? "a chief" : "no chief") +
              " beside them: start all tasks with the same lists";
  } else if (!(message.text + "\n").starts_with(options_.job + "\n")) {
    const auto differs = difference(options_.job, message.text);
    refused = text_of(message.from) + " was started with " +
              (differs ? differs->second : "other settings") + ", and " + here + " with " +
              (differs ? differs->first : "more of them") + ": start all tasks with the same lists";
  } else if (is_earlier(*member, message.from.incarnation)) {
    refused = text_of(message.from) + " runs twice: " + here +
              " knows one that was started later, so end this one";
  } else if (message.from.incarnation != member->incarnation && member->life == Life::kThere &&
             now - member->heard < kSilent * options_.worker_timeout) {
    heard_of(*member, message.from.incarnation);
    if (member->contender != message.from.incarnation) {
      member->contender = message.from.incarnation;
      member->contender_since = now;
    }
    const double since = member->contender_since;
    if (member->heard < since + kBothRun * options_.worker_timeout) return;  // it asks again
    refused = text_of(message.from) + " runs twice: " + here +
              " hears another one, which was started before, so end one of them";
  } else {
    refused = unlike(message.from, training_of(message.text));
  }
  if (!refused.empty()) return out.push_back(answer_to(message, Kind::kRefused, refused));
  member->heard = now;
  const bool is_waiting = std::ranges::any_of(answers_, [&](const Message& answer) {
    return answer.to == message.from && answer.kind == Kind::kWelcome;
  });
  if (!is_waiting) log(message, out);
}

Message Shard::closing_to(const Address& to) const {
  Message closing = make_message(Kind::kClose, group_, closing_->text);
  closing.version = closing_->version;
  closing.to = to;
  return closing;
}

Message Shard::hello_to_standby() const {
  Message hello = make_message(Kind::kHello, group_, options_.job);
  hello.to = {Role::kServer, next(), 0};
  hello.sequence = options_.start;
  return hello;
}

bool Shard::believes(const Address& server) const {
  return server.incarnation != 0 && server == neighbour_;
}

void Shard::on_server(const Message& message, Messages& out) {
  const auto answer = [&](Kind kind, std::string text = {}) {
    out.push_back(answer_to(message, kind, std::move(text)));
  };
  if (primary_) {
    if (has_standby_ && message.from.index == next()) on_standby(message, out);
  } else if (message.entry > 0) {
    believes(message.from) ? on_entry(message, out) : answer(Kind::kUnknown);
  } else if (message.kind == Kind::kHello && message.from.index == group_) {
    if (const auto differs = difference(options_.job, message.text)) {
      return answer(Kind::kRefused, text_of(message.from) + " was started with " + differs->second +
                                        ", and its standby with " + differs->first);
    }
    if (message.from.incarnation == 0) return;
    // An earlier start may still run.
    if (!earlier_.insert(message.from.incarnation).second && !believes(message.from)) return;
    neighbour_ = message.from;
    answer(Kind::kWelcome);
    out.back().entry = entries_;
  }
}

// A message of the standby to this primary.
void Shard::on_standby(const Message& message, Messages& out) {
  if (message.kind == Kind::kReplicated && believes(message.from)) {
    on_replicated(message, out);
  } else if (message.kind == Kind::kUnknown) {
    out.push_back(hello_to_standby());
  } else if (message.kind == Kind::kRefused && !std::exchange(is_refused_, true)) {
    news_.push_back(message.text +
                    ": end the server there, and start all tasks with the same lists");
  } else if (message.kind == Kind::kWelcome && message.sequence == options_.start &&
             !believes(message.from)) {
    if (earlier_.insert(message.from.incarnation).second && earlier_.size() > 1) {
      news_.push_back(text_of(message.from) + " was started again, and has lost its copy of ps " +
                      std::to_string(options_.index) + ", which goes on without a standby: to " +
                      "have one, end all tasks and start them again from a checkpoint");
      return drop_standby(out);
    }
    neighbour_ = message.from;
    // It has entries of an earlier start of this server, and confirms none of this start.
    lost_ = lost_ || message.entry > 0;
    if (!lost_) out.insert(out.end(), unconfirmed_.begin(), unconfirmed_.end());
  }
}

void Shard::on_entry(const Message& entry, Messages& out) {
  const bool uses =
      entry.kind == Kind::kPull || entry.kind == Kind::kPush || entry.kind == Kind::kState;
  const bool fits = !uses || (created() && (entry.kind == Kind::kPush
                                                ? variables_->fits(entry.ids, entry.floats.size())
                                                : variables_->fits(entry.ids)));
  if (entry.entry == entries_ + 1 && !fits) return;  // no primary makes such an entry
  if (entry.entry == entries_ + 1) {
    ++entries_;
    apply(entry);
  }
  out.push_back(answer_to(entry, Kind::kReplicated));
  out.back().entry = entries_;
}

void Shard::on_replicated(const Message& message, Messages& out) {
  if (lost_) return;
  confirmed_ = std::max(confirmed_, std::min(message.entry, entries_));
  while (!unconfirmed_.empty() && unconfirmed_.front().entry <= confirmed_) {
    unconfirmed_.pop_front();
  }
  release(out);
}

}  // namespace ronde::trainer::server
