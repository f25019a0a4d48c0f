// SPDX-License-Identifier: Apache-2.0
// Makes the hosts of the job, and steps them in the order in which their messages arrive.
#include "test/bench/scaling_job.h"

#include <algorithm>

#include "runtime/negotiate/make_control_node.h"
#include "test/support/memory_host.h"

namespace ronde::bench {

namespace {

// Nanoseconds of the virtual clock, enough for everything that was sent to arrive and be answered.
constexpr std::int64_t kPause = 1'000'000;

void must(const base::Status& status) { base::check(status.ok(), status.message().c_str()); }

}  // namespace

base::JobShape ScalingJob::shape_of(const ScalingSize& size) {
  std::vector<std::int32_t> leaders;
  leaders.reserve(base::narrow<std::size_t>(size.ranks));
  for (std::int32_t rank = 0; rank < size.ranks; ++rank) {
    leaders.push_back(rank / size.ranks_per_host * size.ranks_per_host);
  }
  return base::JobShape::of_leaders(leaders).value();
}

ScalingJob::ScalingJob(const ScalingSize& size)
    : size_(size),
      shape_(shape_of(size)),
      tree_(shape_.hosts(), size.fan_in),
      config_(base::Config::from_environment({}).value()),
      network_(tree_, now_,
               [this](std::int32_t from, std::int32_t to) {
                 const std::int64_t due = now_ + cost_of_visit(from) + link_ns_;
                 wake(to, due);
                 return due;
               }),
      hosts_(base::narrow<std::size_t>(shape_.hosts())) {
  for (std::int32_t host = 0; host < shape_.hosts(); ++host) make_host(host);
}

void ScalingJob::make_host(std::int32_t h) {
  Host& host = hosts_[base::narrow<std::size_t>(h)];
  const auto ranks = base::narrow<std::int32_t>(std::ssize(shape_.ranks_of(h)));
  // As small as it works: what does not fit into the rings waits in the memory of its writer.
  const auto boards = testing::make_memory_boards({.ranks = ranks,
                                                   .announce_bytes = 2048,
                                                   .decision_bytes = 4096,
                                                   .entries = size_.tensors,
                                                   .slot_bytes = std::int64_t{64} * ranks});
  const auto numbers = shape_.ranks_of(h);
  for (std::size_t position = 0; position < boards.size(); ++position) {
    host.ranks.push_back(std::make_unique<ScalingRank>(
        runtime::RankContext{boards[position], shape_, numbers[position], config_, clock_, log_}));
  }
  runtime::Links* const links = tree_.hosts() == 1 ? nullptr : &network_.links(h);
  host.control_node =
      runtime::make_control_node(boards[0], shape_, numbers.front(), links, config_, clock_, late_);
}

// ---- a step ----

void ScalingJob::begin(std::int64_t link_ns) {
  link_ns_ = link_ns;
  now_ += kPause;
  for (std::int32_t h = 0; h < hosts(); ++h) {
    network_.links(h).forget_traffic();
    for (const auto& rank : hosts_[base::narrow<std::size_t>(h)].ranks) {
      rank->heard = 0;
      rank->batches = 0;
    }
  }
}

ScalingStep ScalingJob::end(std::int64_t from) {
  const auto messages = [](const testing::Traffic& traffic) {
    return traffic.messages_read + traffic.messages_written;
  };
  ScalingStep step;
  step.root = network_.links(runtime::HostTree::kRoot).traffic();
  for (std::int32_t h = 0; h < hosts(); ++h) {
    for (const auto& rank : hosts_[base::narrow<std::size_t>(h)].ranks) {
      base::check(rank->heard == size_.tensors, "every rank hears of every tensor once a step");
    }
    if (h == runtime::HostTree::kRoot) continue;
    testing::Traffic& busiest = tree_.children_of(h).empty() ? step.leaf : step.inner;
    const testing::Traffic& traffic = network_.links(h).traffic();
    if (messages(traffic) > messages(busiest)) busiest = traffic;
  }
  step.latency_ns = last_heard_ - from;
  step.batches = hosts_.front().ranks.front()->batches;
  return step;
}

ScalingStep ScalingJob::first_step(std::int64_t link_ns) {
  begin(link_ns);
  const std::int64_t from = now_;
  for (std::int32_t h = 0; h < hosts(); ++h) {
    for (const auto& rank : hosts_[base::narrow<std::size_t>(h)].ranks) submit_all(*rank);
    wake(h, now_);
  }
  run();
  return end(from);
}

ScalingStep ScalingJob::steady_step(std::int64_t link_ns) {
  begin(link_ns);
  ScalingRank& last = *hosts_.back().ranks.back();
  for (std::int32_t h = 0; h < hosts(); ++h) {
    for (const auto& rank : hosts_[base::narrow<std::size_t>(h)].ranks) {
      if (rank.get() != &last) submit_all(*rank);
    }
    wake(h, now_);
  }
  run();
  now_ += kPause;
  const std::int64_t from = now_;
  submit_all(last);
  wake(hosts() - 1, now_);
  run();
  return end(from);
}

// ---- ranks ----

std::string ScalingJob::name_of(std::int32_t tensor) const {
  return "layers/" + std::to_string(1000 + tensor) + "/weight";
}

void ScalingJob::submit_all(ScalingRank& rank) {
  for (std::int32_t tensor = 0; tensor < size_.tensors; ++tensor) rank.submit(name_of(tensor));
}

ScalingRank::ScalingRank(const runtime::RankContext& context)
    : context_(context),
      table_(context.rank),
      failure_(context_, {}),
      streams_(context_, [](bool) {}),
      member_(context_, streams_, failure_, table_, *this) {}

void ScalingRank::submit(const std::string& name) {
  auto tensor = std::make_shared<runtime::LocalTensor>();
  tensor->name = name;
  tensor->place = "train.cc:100";
  tensor->signature.shape = {1024};
  const auto ticket = table_.insert(tensor);
  must(ticket.status());
  must(member_.announce(*tensor, *ticket, {}, true));
}

bool ScalingRank::hear() {
  bool any = streams_.has_backlog();
  must(streams_.flush());
  while (true) {
    const auto decision = streams_.next().value();
    if (!decision.has_value()) return any;
    must(member_.on_decision(*decision));
    any = true;
  }
}

base::Status ScalingRank::on_batch(std::uint64_t, runtime::TensorTable::Claimed claimed) {
  for (const auto& tensor : claimed.tensors) table_.remove(*tensor);
  heard += base::narrow<std::int32_t>(std::ssize(claimed.tensors));
  ++batches;
  return {};
}

void ScalingRank::on_failed(const runtime::LocalTensorPtr&, const base::Status& why) { must(why); }

// ---- the virtual clock ----

std::int64_t ScalingJob::messages_of(std::int32_t host) {
  const testing::Traffic& traffic = network_.links(host).traffic();
  return traffic.messages_read + traffic.messages_written;
}

std::int64_t ScalingJob::cost_of_visit(std::int32_t h) {
  const Host& host = hosts_[base::narrow<std::size_t>(h)];
  return (messages_of(h) - host.visited_messages) * size_.message_ns;
}

void ScalingJob::wake(std::int32_t h, std::int64_t when) {
  Host& host = hosts_[base::narrow<std::size_t>(h)];
  when = std::max(when, host.busy_until);
  if (when >= host.woken_at) return;
  host.woken_at = when;
  events_.emplace(when, h);
}

void ScalingJob::run() {
  while (!events_.empty()) {
    const auto [when, h] = events_.top();
    events_.pop();
    Host& host = hosts_[base::narrow<std::size_t>(h)];
    if (host.woken_at != when) continue;  // it was woken earlier
    host.woken_at = base::kNever.count();
    now_ = when;
    visit(h);
  }
}

// The leader and the ranks of a host, until none of them has anything to do.
void ScalingJob::visit(std::int32_t h) {
  Host& host = hosts_[base::narrow<std::size_t>(h)];
  host.visited_messages = messages_of(h);
  bool any = true;
  while (any) {
    any = host.control_node->step(true).value() > 0;
    for (const auto& rank : host.ranks) {
      if (!rank->hear()) continue;
      any = true;
      last_heard_ = std::max(last_heard_, now_ + cost_of_visit(h));
    }
  }
  host.busy_until = now_ + cost_of_visit(h);
  // What became due while it was busy is read when it is done.
  if (const auto due = network_.links(h).next_due()) wake(h, *due);
}

}  // namespace ronde::bench
