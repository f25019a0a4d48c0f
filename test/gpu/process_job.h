// SPDX-License-Identifier: Apache-2.0
// A job of the runtime whose ranks were forked: the board is made before, the rest of the start
// goes through the memory in which they meet. As a job under mpirun, without MPI.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/host_name.h"
#include "base/process/cores.h"
#include "collectives/board/shared_memory.h"
#include "collectives/transport/local.h"
#include "runtime/job/job.h"
#include "test/gpu/forked_job.h"

namespace ronde::gpu_test {

// What exists before the ranks do. Thread safety: none.
struct SharedBoard {
  std::shared_ptr<collectives::SharedMemory> memory;
  collectives::EventFds event_fds;

  static base::Result<SharedBoard> create(int ranks, const base::Config& config) {
    const auto geometry = runtime::board_geometry(ranks, config);
    auto memory = collectives::SharedMemory::create_memfd(collectives::Board::size_of(geometry));
    RONDE_RETURN_IF_ERROR(memory.status());
    RONDE_RETURN_IF_ERROR(collectives::Board::format(**memory, geometry));
    auto event_fds = collectives::make_event_fds(ranks);
    RONDE_RETURN_IF_ERROR(event_fds.status());
    return SharedBoard{*memory, *event_fds};
  }
};

// Thread safety: that of a Job.
class ForkedJob final : public runtime::Job {
 public:
  static base::Result<std::unique_ptr<runtime::Job>> join(const SharedBoard& shared, int rank,
                                                          int size, Meeting& meeting) {
    auto board = collectives::Board::attach(shared.memory, rank, shared.event_fds);
    RONDE_RETURN_IF_ERROR(board.status());
    return std::unique_ptr<runtime::Job>(new ForkedJob(std::move(*board), rank, size, meeting));
  }

  [[nodiscard]] std::int32_t rank() const override { return rank_; }
  [[nodiscard]] const base::JobShape& shape() const override { return shape_; }
  [[nodiscard]] runtime::RankTable rank_table() const override {
    runtime::RankTable table;
    for (std::int32_t peer = 0; peer < board_.ranks(); ++peer) {
      table.places.push_back({base::host_name(), "", std::to_string(board_.presence(peer).pid)});
    }
    return table;
  }
  [[nodiscard]] std::int64_t cores() const override {
    return base::cores_of_masks({base::allowed_processors()});
  }
  [[nodiscard]] collectives::Board& board() override { return board_; }
  [[nodiscard]] std::unique_ptr<runtime::TcpLinks> take_links() override { return nullptr; }
  // On one host nothing goes through it.
  [[nodiscard]] std::unique_ptr<collectives::Transport> take_transport() override {
    return std::make_unique<collectives::Transport>(collectives::local_transport(
        std::make_shared<collectives::LocalHub>(shape_.ranks()), rank_));
  }
  [[nodiscard]] bool probes() const override { return false; }
  base::Result<std::vector<runtime::PeerWatch>> watch_peers() override {
    std::vector<runtime::PeerWatch> watches;
    for (std::int32_t peer = 0; peer < board_.ranks(); ++peer) {
      if (peer == rank_) continue;
      const long pidfd = ::syscall(SYS_pidfd_open, board_.presence(peer).pid, 0);
      if (pidfd < 0) return base::Status::system("watching another rank", errno);
      watches.push_back({peer, base::FileDescriptor(static_cast<int>(pidfd))});
    }
    return watches;
  }
  base::Result<std::vector<std::vector<std::byte>>> allgather(std::span<const std::byte> mine,
                                                              const std::string& /*doing*/,
                                                              const base::Clock& /*clock*/,
                                                              base::Instant /*deadline*/) override {
    Parcel parcel;
    if (mine.size() > sizeof parcel.bytes) {
      return base::Status::error(base::Code::kInternal, "more bytes than the ranks' meeting takes");
    }
    parcel.length = mine.size();
    if (!mine.empty()) std::memcpy(parcel.bytes, mine.data(), mine.size());
    std::vector<Parcel> all(static_cast<std::size_t>(shape_.ranks()));
    if (!meeting_.allgather(rank_, shape_.ranks(), &parcel, sizeof parcel, all.data())) {
      return base::Status::error(base::Code::kDeadline, "not all ranks have come");
    }
    std::vector<std::vector<std::byte>> parts;
    for (const Parcel& one : all) parts.emplace_back(one.bytes, one.bytes + one.length);
    return parts;
  }
  void abandon() override {}
  base::Status close() override { return {}; }

 private:
  struct Parcel {
    std::size_t length = 0;
    std::byte bytes[16 << 10] = {};
  };

  ForkedJob(collectives::Board board, int rank, int size, Meeting& meeting)
      : board_(std::move(board)),
        rank_(rank),
        shape_(base::JobShape::one_host(size)),
        meeting_(meeting) {}

  collectives::Board board_;
  const std::int32_t rank_;
  const base::JobShape shape_;
  Meeting& meeting_;
};

}  // namespace ronde::gpu_test
