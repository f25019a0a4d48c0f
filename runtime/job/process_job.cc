// SPDX-License-Identifier: Apache-2.0
// A job of processes: what the engine asks of it, and how it watches the ranks of its host.
#include "runtime/job/process_job.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <span>
#include <utility>

#include "base/host_name.h"
#include "base/numbers.h"
#include "collectives/board/shared_memory.h"
#include "runtime/job/end_of_process.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

namespace {

class ProcessJob final : public Job {
 public:
  ProcessJob(std::unique_ptr<collectives::Meeting> meeting, std::unique_ptr<OpeningEngine> engine,
             ProcessJobParts parts)
      : meeting_(std::move(meeting)),
        engine_(std::move(engine)),
        shape_(std::move(parts.shape)),
        board_(std::move(parts.board)),
        connections_(std::move(parts.connections)),
        links_(std::move(parts.links)),
        transport_(std::move(parts.transport)),
        table_(std::move(parts.table)),
        note_(std::move(parts.transport_note)),
        ranks_(std::move(parts.ranks)),
        cores_(parts.cores) {}
  ProcessJob(const ProcessJob&) = delete;
  ProcessJob& operator=(const ProcessJob&) = delete;
  ~ProcessJob() override { forget_at_end(this); }

  [[nodiscard]] std::int32_t rank() const override { return meeting_->rank(); }
  [[nodiscard]] const base::JobShape& shape() const override { return shape_; }
  [[nodiscard]] std::string table() const override { return table_; }
  [[nodiscard]] std::string transport_note() const override { return note_; }
  [[nodiscard]] RankTable rank_table() const override { return ranks_; }
  [[nodiscard]] std::int64_t cores() const override { return cores_; }
  [[nodiscard]] collectives::Board& board() override { return board_; }
  [[nodiscard]] std::unique_ptr<TcpLinks> take_links() override { return std::move(links_); }
  [[nodiscard]] std::unique_ptr<collectives::Transport> take_transport() override {
    return std::move(transport_);
  }
  [[nodiscard]] std::string transport_bound_to_thread() const override {
    return meeting_->bound_to_thread();
  }
  [[nodiscard]] bool probes() const override { return true; }
  Result<std::vector<std::vector<std::byte>>> allgather(std::span<const std::byte> mine,
                                                        const std::string& activity,
                                                        const base::Clock& clock,
                                                        base::Instant deadline) override {
    return meeting_->allgather(mine, activity, {}, clock, deadline);
  }
  void started() override {
    meeting_->started();
    engine_->opened();
    engine_.reset();
  }
  void at_exit(const std::function<void()>& close) override {
    if (meeting_->ends_with_process()) call_at_end(this, close);
  }
  void abandon() override { meeting_->abandon(); }
  Status close() override { return meeting_->close(); }

  Result<std::vector<PeerWatch>> watch_peers() override {
    std::vector<PeerWatch> watches;
    for (std::int32_t position = 0; position < board_.ranks(); ++position) {
      if (position == board_.rank()) continue;
      auto pidfd = open_pidfd(position);
      if (!pidfd.ok() && pidfd.status().code() == Code::kUnsupported) return watch_sockets(pidfd);
      RONDE_RETURN_IF_ERROR(pidfd.status());
      watches.push_back({rank_at(position), std::move(*pidfd)});
    }
    return watches;
  }
  [[nodiscard]] collectives::Visitors visitors() override { return meeting_->visitors(); }
  [[nodiscard]] std::string watch_note() const override { return watch_note_; }

 private:
  // Without pidfds the leader watches every rank of the host and the others watch the leader, which
  // is enough: whoever notices a death fails the job on the board for all.
  std::vector<PeerWatch> watch_sockets(const Result<base::FileDescriptor>& refused) {
    watch_note_ = refused.status().message() +
                  "; Ronde watches sockets instead: a rank that dies is noticed as soon, unless a "
                  "process that it made with clone() lives on";
    std::vector<PeerWatch> watches;
    for (std::int32_t position = 0; position < board_.ranks(); ++position) {
      base::FileDescriptor& socket = connections_[base::narrow<std::size_t>(position)];
      if (socket.valid()) watches.push_back({rank_at(position), std::move(socket)});
    }
    return watches;
  }

  // Fails with kUnsupported where the kernel, or what the process runs in, knows no pidfds: Linux
  // before 5.3 and gVisor answer ENOSYS, filters of containers EPERM.
  Result<base::FileDescriptor> open_pidfd(std::int32_t position) {
    const std::int32_t peer = rank_at(position);
    const collectives::Presence presence = board_.presence(position);
    // The glibc of Debian 12 has no wrapper for this call.
    base::FileDescriptor pidfd(base::narrow<int>(::syscall(SYS_pidfd_open, presence.pid, 0)));
    if (!pidfd.valid()) {
      const int error = errno;
      if (error == ESRCH) return dead(peer, presence);
      const Status refused =
          Status::system("watching rank " + std::to_string(peer) + " (pid " +
                             std::to_string(presence.pid) + ") through pidfd_open",
                         error);
      if (error != ENOSYS && error != EPERM) return refused;
      return Status::error(Code::kUnsupported, refused.message());
    }
    // The process may have ended, and its pid been given to another, before the descriptor held it.
    const auto started = collectives::process_start_time(presence.pid);
    const bool known = started.ok() && presence.start_time != 0;
    if (known && *started != presence.start_time) return dead(peer, presence);
    return pidfd;
  }

  static Status dead(std::int32_t peer, const collectives::Presence& presence) {
    return Status::error(Code::kPeerFailed, "rank " + std::to_string(peer) + " (host " +
                                                base::host_name() + ", pid " +
                                                std::to_string(presence.pid) +
                                                ") died while the engines were opening, or runs in "
                                                "another pid namespace")
        .with_rank(peer);
  }

  std::unique_ptr<collectives::Meeting> meeting_;
  std::unique_ptr<OpeningEngine> engine_;  // until the start is over
  const base::JobShape shape_;
  collectives::Board board_;
  // The sockets of the handover, which stay open even where this rank watches pidfds, since another
  // rank may have none and would take the end of its connection for a death.
  std::vector<base::FileDescriptor> connections_;
  std::string watch_note_;
  std::unique_ptr<TcpLinks> links_;                    // until the agent takes them
  std::unique_ptr<collectives::Transport> transport_;  // likewise
  const std::string table_;
  const std::string note_;
  const RankTable ranks_;
  const std::int64_t cores_;
};

}  // namespace

std::unique_ptr<Job> make_process_job(std::unique_ptr<collectives::Meeting> meeting,
                                      std::unique_ptr<OpeningEngine> engine,
                                      ProcessJobParts parts) {
  return std::make_unique<ProcessJob>(std::move(meeting), std::move(engine), std::move(parts));
}

}  // namespace ronde::runtime
