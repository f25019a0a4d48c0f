// SPDX-License-Identifier: Apache-2.0
// Process sets: engines inside that of the job.
#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "base/text.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/engine_patience.h"
#include "runtime/sets/set_board.h"
#include "runtime/sets/set_job.h"
#include "runtime/sets/set_openings.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr std::size_t kLongestSetName = 256;

Status refused_set(const std::string& name, const std::string& what) {
  return Status::error(Code::kInvalidArgument, "process set '" + name + "': " + what);
}

// Sorts the ranks of a set, of an engine of so many.
Status sort_ranks(std::vector<std::int32_t>& ranks, const std::string& name, std::int32_t size) {
  if (name.empty() || name.size() > kLongestSetName) {
    return Status::error(Code::kInvalidArgument, "a process set's name has 1 to " +
                                                     std::to_string(kLongestSetName) + " bytes");
  }
  if (ranks.empty()) return refused_set(name, "it has no ranks: give it one or more");
  std::sort(ranks.begin(), ranks.end());
  for (const std::int32_t rank : ranks) {
    if (rank >= 0 && rank < size) continue;
    return refused_set(name, "rank " + std::to_string(rank) +
                                 " is not there: the engine has ranks " + "0 to " +
                                 std::to_string(size - 1));
  }
  const auto twice = std::adjacent_find(ranks.begin(), ranks.end());
  if (twice == ranks.end()) return {};
  return refused_set(name, "rank " + std::to_string(*twice) + " is there twice: give each once");
}

std::vector<std::int32_t> on_host_of(const base::JobShape& shape,
                                     const std::vector<std::int32_t>& ranks, std::int32_t rank) {
  std::vector<std::int32_t> here;
  for (const std::int32_t one : ranks) {
    if (shape.host_of(one) == shape.host_of(rank)) here.push_back(one);
  }
  return here;
}

// Who makes the set's board on a host: another one for another name, because a rank's arena is
// limited.
std::int32_t maker_of(const std::string& name, const std::vector<std::int32_t>& here) {
  std::uint32_t hash = 2166136261U;  // FNV-1a: the same on every rank
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619U;
  return here[hash % here.size()];
}

// As the ranks of the job read a failure that a set has noticed.
collectives::FailureRecord told_to_job(const SetIdentity& set, collectives::FailureRecord record) {
  const auto of_job = [&](std::int32_t rank) {
    return rank < 0 || std::cmp_greater_equal(rank, set.ranks.size())
               ? -1
               : set.ranks[base::narrow<std::size_t>(rank)];
  };
  record.culprit = of_job(record.culprit);
  record.reporter = of_job(record.reporter);
  record.text = phrase_within_set(set.name, set.ranks) + ": " + record.text;
  return record;
}

}  // namespace

const std::vector<std::int32_t>& Engine::ranks_of_job() const {
  static const std::vector<std::int32_t> kNone;
  return within_ ? within_->identity.ranks : kNone;
}

// ---- opening ----

Result<std::shared_ptr<Engine>> Engine::subset(std::vector<std::int32_t> ranks,
                                               const std::string& name, const std::string& place,
                                               base::Nanoseconds deadline) {
  RONDE_RETURN_IF_ERROR(usable());
  RONDE_RETURN_IF_ERROR(sort_ranks(ranks, name, size_));
  RONDE_ASSIGN_OR_RETURN(auto opened, take_opened(name, ranks));
  if (opened != nullptr) return opened;
  if (!std::binary_search(ranks.begin(), ranks.end(), rank_)) return std::shared_ptr<Engine>();
  if (!open_.load()) {
    return agent_.context().told(
        Status::error(Code::kClosed, "this engine has been closed, and opens no process set"));
  }
  SetAnnouncement asked{name, std::move(ranks), place, -1, "", deadline.count()};
  if (within_ == nullptr) return open_set(std::move(asked));
  // A set of a set is one of the job, whose coordinator numbers them all.
  for (std::int32_t& rank : asked.ranks) {
    rank = within_->identity.ranks[base::narrow<std::size_t>(rank)];
  }
  asked.name = within_->identity.name + "/" + name;
  return within_->job->open_set(std::move(asked));
}

Result<std::shared_ptr<Engine>> Engine::split(std::int64_t color, const std::string& name,
                                              const std::string& place) {
  // With the rank, since those that have joined give nothing.
  const std::array<std::int64_t, 2> mine{rank_, color};
  Submission colors;
  colors.name = "process sets '" + name + "'";
  colors.place = place;
  colors.signature.operation = base::kExchange;
  colors.signature.dtype = base::DType::kI64;
  colors.signature.shape = {std::ssize(mine)};
  colors.will_wait = true;
  colors.views[0].input = reinterpret_cast<const std::byte*>(mine.data());
  RONDE_ASSIGN_OR_RETURN(const auto work, submit(std::move(colors)));
  RONDE_RETURN_IF_ERROR(wait(*work));
  if (color < 0) return std::shared_ptr<Engine>();
  const std::span all(reinterpret_cast<const std::int64_t*>(work->output.data()),
                      work->output.size() / sizeof color);
  std::vector<std::int32_t> ranks;
  for (std::size_t i = 0; i + 1 < all.size(); i += mine.size()) {
    if (all[i + 1] == color) ranks.push_back(base::narrow<std::int32_t>(all[i]));
  }
  return subset(std::move(ranks), name + "." + std::to_string(color), place);
}

// "tp=0,2;dp=1,3". All ranks open all of them, in this order.
Status Engine::open_sets_of_settings() {
  for (const std::string& text : base::words_of(config_.process_sets, ";")) {
    const std::size_t end = text.find('=');
    const std::string name = text.substr(0, end);
    std::vector<std::int32_t> ranks;
    bool right = end != std::string::npos;
    for (const std::string& word :
         right ? base::words_of(text.substr(end + 1), ",") : std::vector<std::string>()) {
      const auto rank = base::parse_number<std::int32_t>(word);
      right = right && rank.has_value();
      ranks.push_back(rank.value_or(-1));
    }
    if (!right) {
      return Status::error(Code::kInvalidArgument, "RONDE_PROCESS_SETS=" + config_.process_sets +
                                                       " is not valid: '" + text +
                                                       "' is not like tp=0,2");
    }
    RONDE_ASSIGN_OR_RETURN(auto set, subset(ranks, name, "RONDE_PROCESS_SETS"));
    std::sort(ranks.begin(), ranks.end());
    const base::MutexLock lock(sets_mutex_);
    opened_[name] = {std::move(ranks), std::move(set)};
  }
  return {};
}

// A set of the settings of that name, which is the caller's from now on; nullptr: there is none.
Result<std::shared_ptr<Engine>> Engine::take_opened(const std::string& name,
                                                    const std::vector<std::int32_t>& ranks) {
  const base::MutexLock lock(sets_mutex_);
  const auto found = opened_.find(name);
  if (found == opened_.end()) return std::shared_ptr<Engine>();
  if (found->second.ranks != ranks) {
    return refused_set(name, "RONDE_PROCESS_SETS has it with " +
                                 base::ranks_phrase(found->second.ranks) +
                                 ": give these, or another name");
  }
  auto set = std::move(found->second.set);
  opened_.erase(found);
  return set;
}

// One of the set's ranks on each host makes the set's board there before it asks, so that all can
// use it as soon as the coordinator has answered.
Result<std::shared_ptr<Engine>> Engine::open_set(SetAnnouncement asked) {
  RONDE_RETURN_IF_ERROR(may_drive());
  RONDE_RETURN_IF_ERROR(agent_.failure().why());
  const auto opening = std::make_shared<SetOpening>();
  opening->name = asked.name;
  opening->ranks = asked.ranks;
  opening->place = asked.place;
  opening->begun = clock_->now();
  agent_.threads().submitted();
  const auto here = on_host_of(job_->shape(), asked.ranks, rank_);
  if (maker_of(asked.name, here) == rank_) {
    const auto geometry = geometry_of_set(base::narrow<std::int32_t>(here.size()), config_);
    auto memory = SetMemory::make(job_->board(), memory_, geometry);
    if (memory.ok()) {
      asked.memory = (*memory)->offset();
      opening->memory = std::move(*memory);
    } else {
      asked.trouble = memory.status().message();
    }
  }
  RONDE_RETURN_IF_ERROR(agent_.openings().begin(opening));
  Status answered = agent_.member().announce(asked, false);
  if (answered.ok()) {
    answered = await_answer(*opening, base::Nanoseconds(asked.deadline_ns));
  }
  if (answered.ok()) {
    auto set = make_set(opening->decision);
    if (set.ok()) return set;
    answered = set.status();
    if (answered.code() == Code::kUnsupported) {  // for all of its ranks
      announce_end_of(opening->decision.number, asked.name);
    } else {
      agent_.failure().fail(answered, rank_);  // the others have opened it
    }
  }
  agent_.openings().ended(asked.name);
  return answered;
}

Status Engine::await_answer(SetOpening& opening, base::Nanoseconds deadline) {
  const Inside inside(waiting_threads_);
  std::optional<Submitters::Waiting> waiting;  // not for a time of its own
  if (deadline.count() == 0) waiting.emplace(agent_.threads());
  if (runner_.wait(opening.answered, verdict_deadline(deadline))) return opening.status;
  Status late =
      Status::error(Code::kDeadline, set_phrase(opening.name, opening.ranks) +
                                         " cannot open: rank 0, the coordinator, does not answer")
          .with_rank(kCoordinator);
  agent_.failure().fail(late, kCoordinator);
  runner_.notify(true);
  static_cast<void>(runner_.wait(opening.answered, clock_->after(kFarewell)));
  return late;
}

Result<std::shared_ptr<Engine>> Engine::make_set(const SetDecision& decision) {
  auto within = std::make_unique<Within>();
  within->job = shared_from_this();
  within->identity = {decision.number, decision.name, decision.ranks};
  const SetIdentity& set = within->identity;
  const base::JobShape shape = shape_of_set(job_->shape(), set);
  const auto here = on_host_of(job_->shape(), set.ranks, rank_);
  std::vector<std::int32_t> positions;
  positions.reserve(here.size());
  for (const std::int32_t rank : here) positions.push_back(job_->shape().position_of(rank));
  const auto mine = std::find(here.begin(), here.end(), rank_) - here.begin();
  const auto leader = std::lower_bound(set.ranks.begin(), set.ranks.end(), here.front());
  const std::int32_t host = shape.host_of(base::narrow<std::int32_t>(leader - set.ranks.begin()));
  base::Config config = config_;
  const auto geometry = geometry_of_set(base::narrow<std::int32_t>(here.size()), config_);
  config.plan_capacity = geometry.entries;
  if (std::cmp_greater_equal(host, decision.memory.size())) {
    return Status::error(Code::kInternal, "a process set without memory on a host");
  }
  RONDE_ASSIGN_OR_RETURN(
      const auto memory,
      memory_at(job_->board(), decision.memory[base::narrow<std::size_t>(host)], geometry));
  const auto board_in = [of_job = job_->board(), positions, mine, set](std::span<std::byte> bytes) {
    return collectives::Board::within(
        of_job, bytes, base::narrow<std::int32_t>(mine), positions,
        [set](const auto& record) { return told_to_job(set, record); });
  };
  RONDE_ASSIGN_OR_RETURN(auto board, board_in(memory));
  SetJobParts parts{std::move(board), nullptr, {}, nullptr};
  const auto large = geometry_of_large_slots(geometry.ranks);
  parts.growth = {
      base::Bytes(kMostOfSmallSlots),
      [this, large, number = set.number] { return make_large_slots(number, large); },
      [of_job = job_->board(), large, board_in](std::int64_t place) -> Result<collectives::Board> {
        RONDE_ASSIGN_OR_RETURN(const auto bytes, memory_at(of_job, place, large));
        return board_in(bytes);
      }};
  if (needs_transport(config_, shape.hosts() > 1)) {
    RONDE_ASSIGN_OR_RETURN(parts.transport, transport_of_set(set));
  }
  if (shape.hosts() > 1 && mine == 0) parts.links = links_of_set(set, shape, host);
  auto job = make_set_job(*job_, set, std::move(parts));
  std::shared_ptr<Engine> engine(
      new Engine(std::move(config), clock_, std::move(job), std::move(within)));
  engine->job_->board().enter();
  if (device_ != nullptr) engine->agent_.execution().use(device_, false);
  RONDE_RETURN_IF_ERROR(engine->agent_.execution().tune([this] {
    return job_->board().failed() ? Status::error(Code::kPeerFailed, "the job has failed")
                                  : Status();
  }));
  engine->open_ = true;
  {
    const base::MutexLock lock(sets_mutex_);
    std::erase_if(sets_, [](const auto& one) { return one.expired(); });
    sets_.push_back(engine);
  }
  agent_.sets().add(engine->agent_);
  runner_.notify(true);
  return engine;
}

Result<std::int64_t> Engine::make_large_slots(std::int32_t number,
                                              const collectives::BoardGeometry& geometry) {
  RONDE_ASSIGN_OR_RETURN(auto memory, SetMemory::make(job_->board(), memory_, geometry));
  const std::int64_t place = memory->offset();
  agent_.openings().keep(number, std::move(memory));
  return place;
}

// On the wire a set is a range of tags, behind those of the job.
Result<std::unique_ptr<collectives::Transport>> Engine::transport_of_set(const SetIdentity& set) {
  const collectives::Transport& all = *agent_.execution().transport();
  const collectives::Transport::Tags tags{
      collectives::kTagsOfJob + (set.number - 1) * collectives::kTagsOfSet,
      collectives::kTagsOfSet};
  if (tags.first + tags.count > all.largest_tag()) {
    return Status::error(Code::kUnsupported,
                         set_phrase(set.name, set.ranks) + " is number " +
                             std::to_string(set.number) +
                             " of the job, for which the transport between the hosts has no tags: "
                             "its largest is " +
                             std::to_string(all.largest_tag()) + ". Close a process set first");
  }
  return std::make_unique<collectives::Transport>(
      all, std::vector<int>(set.ranks.begin(), set.ranks.end()), tags);
}

std::unique_ptr<SetLinks> Engine::links_of_set(const SetIdentity& set, const base::JobShape& shape,
                                               std::int32_t host) {
  return std::make_unique<SetLinks>(
      shape, host,
      [streams = &agent_.streams(), set](std::int32_t rank, std::span<const std::byte> message) {
        return streams->send(encode(FrameAnnouncement{set.number,
                                                      -1,
                                                      set.ranks[base::narrow<std::size_t>(rank)],
                                                      {message.begin(), message.end()}}),
                             false);
      });
}

// ---- closing ----

std::vector<std::shared_ptr<Engine>> Engine::open_sets() {
  std::vector<std::shared_ptr<Engine>> open;
  const base::MutexLock lock(sets_mutex_);
  for (const auto& one : sets_) {
    if (auto set = one.lock(); set != nullptr && set->open_.load()) open.push_back(std::move(set));
  }
  return open;
}

void Engine::close_sets() {
  std::vector<std::shared_ptr<Engine>> taken;  // so that they live until they are closed
  {
    const base::MutexLock lock(sets_mutex_);
    for (auto& [name, one] : opened_) {
      if (one.set != nullptr) taken.push_back(std::move(one.set));
    }
    opened_.clear();
  }
  for (const auto& set : open_sets()) {
    set->closed_at_exit_.store(true);
    set->close().ignore();
  }
}

// The job's agent steps that of the set no more.
void Engine::end_set() {
  Engine& job = *within_->job;
  Completion removed;
  job.agent_.sets().remove(agent_, removed);
  job.runner_.notify(true);
  // It may last as long as one step of the agent does; until then the set must stay.
  while (!job.runner_.wait(removed, clock_->after(kFarewell))) {
  }
}

// From now on the memory of the set's board may be another set's.
void Engine::announce_end() {
  Engine& job = *within_->job;
  job.announce_end_of(within_->identity.number, within_->identity.name);
  // What the transport may still write after a failure belongs to the job.
  if (!agent_.failure().failed()) return;
  const base::MutexLock lock(job.sets_mutex_);
  job.agent_.execution().keep(agent_.execution().release_workspace());
}

void Engine::announce_end_of(std::int32_t number, const std::string& name) {
  agent_.openings().ended(name);
  if (agent_.failure().failed()) return;
  agent_.member().announce(SetEndedAnnouncement{number}, true).ignore();
}

}  // namespace ronde::runtime
