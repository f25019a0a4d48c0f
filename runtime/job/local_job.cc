// SPDX-License-Identifier: Apache-2.0
// Joining a local job, the boards and links of its hosts, and the Job that each engine gets.
#include "runtime/job/local_job.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/host_name.h"
#include "base/log.h"
#include "base/process/cores.h"
#include "base/text.h"

namespace ronde::runtime {

using base::Code;
using base::MutexLock;
using base::Result;
using base::Status;

namespace {

// The limit of ranks: more engines in one process are a mistake, not a test.
constexpr std::int32_t kMostLocalRanks = 64;

// The limit of a rank's arena, because one test may hold many jobs of many ranks.
constexpr std::int64_t kMostLocalArena = std::int64_t{64} << 20;

// The doorbells of all hosts: a message's arrival rings the receiver, on whichever host it is.
class Doorbells {
 public:
  explicit Doorbells(const base::JobShape& shape) : shape_(shape) {}
  void add(collectives::Board board) { boards_.push_back(std::move(board)); }
  void ring(std::int32_t rank) const {
    const auto host = base::narrow<std::size_t>(shape_.host_of(rank));
    boards_[host].doorbell(shape_.position_of(rank)).ring();
  }

 private:
  base::JobShape shape_;
  std::vector<collectives::Board> boards_;  // by host
};

class LocalMember final : public Job {
 public:
  LocalMember(std::shared_ptr<LocalJob> job, std::int32_t rank, const base::JobShape& shape,
              std::unique_ptr<collectives::Transport> transport, collectives::Board board,
              std::unique_ptr<TcpLinks> links)
      : job_(std::move(job)),
        rank_(rank),
        shape_(shape),
        transport_(std::move(transport)),
        board_(std::move(board)),
        links_(std::move(links)),
        cores_(base::cores_of_masks({base::allowed_processors()})) {}

  [[nodiscard]] std::int32_t rank() const override { return rank_; }
  [[nodiscard]] const base::JobShape& shape() const override { return shape_; }
  [[nodiscard]] RankTable rank_table() const override { return job_->rank_table(); }
  [[nodiscard]] std::int64_t cores() const override { return cores_; }
  [[nodiscard]] collectives::Board& board() override { return board_; }
  [[nodiscard]] std::unique_ptr<TcpLinks> take_links() override { return std::move(links_); }
  [[nodiscard]] std::unique_ptr<collectives::Transport> take_transport() override {
    return std::move(transport_);
  }
  Result<std::vector<PeerWatch>> watch_peers() override { return std::vector<PeerWatch>(); }
  [[nodiscard]] bool probes() const override { return false; }
  Result<std::vector<std::vector<std::byte>>> allgather(std::span<const std::byte> mine,
                                                        const std::string& /*activity*/,
                                                        const base::Clock& clock,
                                                        base::Instant deadline) override {
    return job_->allgather(rank_, rounds_++, mine, deadline - clock.now());
  }
  void abandon() override {}
  Status close() override { return {}; }

 private:
  const std::shared_ptr<LocalJob> job_;
  const std::int32_t rank_;
  std::uint64_t rounds_ = 1;  // after that of join()
  const base::JobShape shape_;
  std::unique_ptr<collectives::Transport> transport_;
  collectives::Board board_;
  std::unique_ptr<TcpLinks> links_;
  const std::int64_t cores_;
};

std::string name_of_host(std::int32_t host) {
  return "host " + std::to_string(host) + " of this process";
}

}  // namespace

Result<std::shared_ptr<LocalJob>> LocalJob::create(std::int32_t size) {
  if (size < 1 || size > kMostLocalRanks) {
    return Status::error(Code::kInvalidArgument, "a local job of " + std::to_string(size) +
                                                     " ranks: use 1 to " +
                                                     std::to_string(kMostLocalRanks));
  }
  return create(base::JobShape::one_host(size));
}

Result<std::shared_ptr<LocalJob>> LocalJob::create(const base::JobShape& shape, std::int32_t fan_in,
                                                   std::shared_ptr<collectives::LocalHub> hub,
                                                   Transports transports) {
  base::check(hub == nullptr || hub->size() == shape.ranks(), "LocalJob: a hub of all its ranks");
  base::take_standard_descriptors();
  auto job = std::shared_ptr<LocalJob>(new LocalJob(shape, fan_in, std::move(transports)));
  const MutexLock lock(job->mutex_);
  job->has_joined_.resize(static_cast<std::size_t>(shape.ranks()));
  job->hub_ =
      hub != nullptr ? std::move(hub) : std::make_shared<collectives::LocalHub>(shape.ranks());
  RONDE_RETURN_IF_ERROR(job->make_hosts());
  return job;
}

Status LocalJob::make_hosts() {
  hosts_.resize(base::narrow<std::size_t>(shape_.hosts()));
  for (std::int32_t host = 0; host < shape_.hosts(); ++host) {
    const auto ranks = base::narrow<std::int32_t>(shape_.ranks_of(host).size());
    RONDE_ASSIGN_OR_RETURN(hosts_[base::narrow<std::size_t>(host)].event_fds,
                           collectives::make_event_fds(ranks));
  }
  const HostTree tree(shape_.hosts(), fan_in_);
  for (std::int32_t child = 1; child < shape_.hosts(); ++child) {
    const std::int32_t parent = tree.parent_of(child);
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      return Status::system("socketpair", errno);
    }
    hosts_[base::narrow<std::size_t>(parent)].links.children.push_back(
        {child, name_of_host(child), base::FileDescriptor(ends[0])});
    hosts_[base::narrow<std::size_t>(child)].links.parent =
        base::LinkEnd{parent, name_of_host(parent), base::FileDescriptor(ends[1])};
  }
  return {};
}

RankTable LocalJob::rank_table() const {
  RankTable table{{}, "memory", "socket pairs", fan_in_};
  for (std::int32_t rank = 0; rank < shape_.ranks(); ++rank) {
    const std::string host = shape_.hosts() > 1 ? "#" + std::to_string(shape_.host_of(rank)) : "";
    table.places.push_back({base::host_name() + host, "", std::to_string(::getpid())});
  }
  return table;
}

Status LocalJob::make_boards(const base::Config& config) {
  for (std::int32_t host = 0; host < shape_.hosts(); ++host) {
    auto geometry =
        board_geometry(base::narrow<std::int32_t>(shape_.ranks_of(host).size()), config);
    geometry.arena_bytes = std::min(geometry.arena_bytes, kMostLocalArena);
    RONDE_ASSIGN_OR_RETURN(
        auto memory, collectives::SharedMemory::create_heap(collectives::Board::size_of(geometry)));
    RONDE_RETURN_IF_ERROR(collectives::Board::format(*memory, geometry));
    hosts_[base::narrow<std::size_t>(host)].memory = std::move(memory);
  }
  has_boards_ = true;
  return {};
}

Result<std::unique_ptr<Job>> LocalJob::join(std::int32_t rank, const base::Config& config,
                                            const base::Clock& /*clock*/) {
  if (rank < 0 || rank >= shape_.ranks()) {
    return Status::error(
        Code::kInvalidArgument,
        "rank " + std::to_string(rank) + " of a local job of " + std::to_string(shape_.ranks()));
  }
  const MutexLock lock(mutex_);
  if (has_joined_[static_cast<std::size_t>(rank)]) {
    return Status::error(Code::kInvalidArgument,
                         "rank " + std::to_string(rank) + " of this local job has an engine");
  }
  if (!has_boards_) RONDE_RETURN_IF_ERROR(make_boards(config));
  has_joined_[static_cast<std::size_t>(rank)] = true;
  const std::string mine = config.shared_text();
  RONDE_ASSIGN_OR_RETURN(const auto all,
                         exchange(rank, 0, std::as_bytes(std::span(mine)), config.start_timeout,
                                  "did not open an engine in time: open one in a thread of its "
                                  "own for each rank"));
  std::vector<std::string> texts;
  texts.reserve(all.size());
  for (const auto& bytes : all) {
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  RONDE_RETURN_IF_ERROR(check_shared_settings(texts));
  return make_member(rank);
}

Result<LocalJob::Parts> LocalJob::allgather(std::int32_t rank, std::uint64_t number,
                                            std::span<const std::byte> mine,
                                            base::Nanoseconds timeout) {
  const MutexLock lock(mutex_);
  return exchange(rank, number, mine, timeout, "did not go on with opening an engine in time");
}

Result<LocalJob::Parts> LocalJob::exchange(std::int32_t rank, std::uint64_t number,
                                           std::span<const std::byte> mine,
                                           base::Nanoseconds timeout, const std::string& failing) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  Round& round = rounds_[number];
  round.parts.resize(has_joined_.size());
  round.parts[static_cast<std::size_t>(rank)].emplace(mine.begin(), mine.end());
  arrived_.notify_all();
  std::vector<std::int32_t> missing;
  const auto look = [&]() RONDE_REQUIRES(mutex_) {
    missing.clear();
    for (std::int32_t other = 0; other < shape_.ranks(); ++other) {
      if (!round.parts[static_cast<std::size_t>(other)]) missing.push_back(other);
    }
    return missing.empty();
  };
  while (failure_.ok() && !look()) {
    if (arrived_.wait_until(mutex_, deadline) == std::cv_status::no_timeout || look()) continue;
    if (!failure_.ok()) break;
    failure_ = Status::error(Code::kDeadline, base::ranks_phrase(missing) + " " + failing);
    arrived_.notify_all();
  }
  RONDE_RETURN_IF_ERROR(failure_);
  Parts parts;
  parts.reserve(round.parts.size());
  for (const auto& part : round.parts) parts.push_back(*part);
  if (++round.read == shape_.ranks()) rounds_.erase(number);
  return parts;
}

Result<std::unique_ptr<Job>> LocalJob::make_member(std::int32_t rank) {
  Doorbells doorbells(shape_);
  for (const Host& host : hosts_) {
    RONDE_ASSIGN_OR_RETURN(auto board, collectives::Board::attach(host.memory, 0, host.event_fds));
    doorbells.add(std::move(board));
  }
  Host& here = hosts_[base::narrow<std::size_t>(shape_.host_of(rank))];
  RONDE_ASSIGN_OR_RETURN(auto board, collectives::Board::attach(
                                         here.memory, shape_.position_of(rank), here.event_fds));
  std::unique_ptr<TcpLinks> links;
  if (shape_.hosts() > 1 && shape_.position_of(rank) == 0) {
    RONDE_ASSIGN_OR_RETURN(links, TcpLinks::open(std::exchange(here.links, {})));
  }
  std::unique_ptr<collectives::Transport> transport =
      transports_
          ? transports_(rank)
          : std::make_unique<collectives::Transport>(collectives::local_transport(
                hub_, rank, [doorbells = std::move(doorbells)](int to) { doorbells.ring(to); }));
  return std::unique_ptr<Job>(std::make_unique<LocalMember>(
      shared_from_this(), rank, shape_, std::move(transport), std::move(board), std::move(links)));
}

}  // namespace ronde::runtime
