// SPDX-License-Identifier: Apache-2.0
// A job of engines in one process: see local_job.h.
#include "runtime/local_job.h"

#include <algorithm>
#include <chrono>

#include "base/cores.h"
#include "runtime/signature.h"

namespace ronde::runtime {

using base::Code;
using base::MutexLock;
using base::Result;
using base::Status;

namespace {

// More engines than this in one process are a mistake, not a test.
constexpr std::int32_t kMostLocalRanks = 64;

// Many jobs of many ranks live in one test.
constexpr std::int64_t kMostLocalArena = std::int64_t{64} << 20;

class LocalMember final : public Job {
 public:
  LocalMember(std::shared_ptr<collectives::LocalHub> hub, collectives::Board board)
      : hub_(std::move(hub)),
        board_(std::move(board)),
        cores_(base::cores_of_masks({base::allowed_processors()})) {}

  [[nodiscard]] std::int32_t rank() const override { return board_.rank(); }
  [[nodiscard]] std::int32_t size() const override { return board_.ranks(); }
  [[nodiscard]] std::int32_t local_rank() const override { return board_.rank(); }
  [[nodiscard]] std::int32_t local_size() const override { return board_.ranks(); }
  [[nodiscard]] std::int64_t cores() const override { return cores_; }
  [[nodiscard]] collectives::Board& board() override { return board_; }
  [[nodiscard]] std::unique_ptr<collectives::Transport> make_transport() override {
    // An arrival rings the receiver, as a message of the board would.
    return std::make_unique<collectives::LocalTransport>(
        hub_, board_.rank(), [board = board_](int to) { board.doorbell(to).ring(); });
  }
  Result<std::vector<PeerWatch>> watch_peers() override { return std::vector<PeerWatch>(); }
  [[nodiscard]] bool probes() const override { return false; }
  void abandon() override {}
  Status close() override { return {}; }

 private:
  std::shared_ptr<collectives::LocalHub> hub_;
  collectives::Board board_;
  const std::int64_t cores_;
};

}  // namespace

Result<std::shared_ptr<LocalJob>> LocalJob::create(std::int32_t size,
                                                   const collectives::FaultPlan& faults) {
  if (size < 1 || size > kMostLocalRanks) {
    return Status::error(Code::kInvalidArgument, "a local job of " + std::to_string(size) +
                                                     " ranks: use 1 to " +
                                                     std::to_string(kMostLocalRanks));
  }
  auto job = std::shared_ptr<LocalJob>(new LocalJob(size));
  const MutexLock lock(job->mutex_);
  job->settings_.resize(static_cast<std::size_t>(size));
  job->hub_ = std::make_shared<collectives::LocalHub>(size, faults);
  auto event_fds = collectives::make_event_fds(size);
  RONDE_RETURN_IF_ERROR(event_fds.status());
  job->event_fds_ = *event_fds;
  return job;
}

Status LocalJob::make_board(const base::Config& config) {
  auto geometry = board_geometry(size_, config);
  geometry.arena_bytes = std::min(geometry.arena_bytes, kMostLocalArena);
  auto memory = collectives::SharedMemory::create_heap(collectives::Board::size_of(geometry));
  RONDE_RETURN_IF_ERROR(memory.status());
  RONDE_RETURN_IF_ERROR(collectives::Board::format(**memory, geometry));
  memory_ = std::move(*memory);
  return {};
}

bool LocalJob::all_joined() const {
  for (const auto& settings : settings_) {
    if (!settings) return false;
  }
  return true;
}

Status LocalJob::wait_for_all(base::Nanoseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!all_joined()) {
    if (!failure_.ok()) return failure_;
    if (joined_.wait_until(mutex_, deadline) == std::cv_status::no_timeout) continue;
    if (!failure_.ok()) return failure_;
    std::vector<std::int32_t> missing;
    for (std::int32_t rank = 0; rank < size_; ++rank) {
      if (!settings_[static_cast<std::size_t>(rank)]) missing.push_back(rank);
    }
    if (missing.empty()) break;
    joined_.notify_all();
    return failure_ =
               Status::error(Code::kDeadline, ranks_phrase(missing) +
                                                  " did not open an engine in time: open one in a "
                                                  "thread of its own for each rank");
  }
  return failure_;
}

Result<std::unique_ptr<Job>> LocalJob::join(std::int32_t rank, const base::Config& config,
                                            const base::Clock& /*clock*/) {
  if (rank < 0 || rank >= size_) {
    return Status::error(Code::kInvalidArgument, "rank " + std::to_string(rank) +
                                                     " of a local job of " + std::to_string(size_));
  }
  const MutexLock lock(mutex_);
  auto& mine = settings_[static_cast<std::size_t>(rank)];
  if (mine) {
    return Status::error(Code::kInvalidArgument,
                         "rank " + std::to_string(rank) + " of this local job has an engine");
  }
  if (memory_ == nullptr) RONDE_RETURN_IF_ERROR(make_board(config));
  mine = config.shared_text();
  joined_.notify_all();
  RONDE_RETURN_IF_ERROR(wait_for_all(config.start_timeout));
  std::vector<std::string> texts;
  texts.reserve(settings_.size());
  for (const auto& settings : settings_) texts.push_back(*settings);
  RONDE_RETURN_IF_ERROR(check_shared_settings(texts));
  auto board = collectives::Board::attach(memory_, rank, event_fds_);
  RONDE_RETURN_IF_ERROR(board.status());
  return std::unique_ptr<Job>(std::make_unique<LocalMember>(hub_, std::move(*board)));
}

}  // namespace ronde::runtime
