// SPDX-License-Identifier: Apache-2.0
// A job of processes on one host: ranks come from MPI, the board is handed over by the leader.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/cores.h"
#include "collectives/board_handover.h"
#include "collectives/mpi_session.h"
#include "collectives/shared_memory.h"
#include "runtime/job.h"
#include "runtime/local_job.h"
#include "runtime/signature.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

namespace {

class ProcessJob final : public Job {
 public:
  ProcessJob(std::unique_ptr<collectives::MpiCommunicator> communicator, collectives::Board board,
             std::int64_t cores)
      : communicator_(std::move(communicator)), board_(std::move(board)), cores_(cores) {}

  [[nodiscard]] std::int32_t rank() const override { return communicator_->rank(); }
  [[nodiscard]] std::int32_t size() const override { return communicator_->size(); }
  [[nodiscard]] std::int32_t local_rank() const override { return board_.rank(); }
  [[nodiscard]] std::int32_t local_size() const override { return board_.ranks(); }
  [[nodiscard]] std::int64_t cores() const override { return cores_; }
  [[nodiscard]] collectives::Board& board() override { return board_; }
  [[nodiscard]] std::unique_ptr<collectives::Transport> make_transport() override {
    return communicator_->transport();
  }
  [[nodiscard]] bool probes() const override { return true; }
  void abandon() override { communicator_->abandon(); }
  Status close() override { return communicator_->close(); }

  Result<std::vector<PeerWatch>> watch_peers() override {
    std::vector<PeerWatch> watches;
    for (std::int32_t peer = 0; peer < board_.ranks(); ++peer) {
      if (peer == board_.rank()) continue;
      auto watch = watch_peer(peer);
      RONDE_RETURN_IF_ERROR(watch.status());
      watches.push_back(std::move(*watch));
    }
    return watches;
  }

 private:
  Result<PeerWatch> watch_peer(std::int32_t peer) {
    const collectives::Presence presence = board_.presence(peer);
    // No glibc wrapper in Debian 12.
    const long pidfd = ::syscall(SYS_pidfd_open, presence.pid, 0);
    if (pidfd < 0 && errno == ESRCH) return dead(peer, presence);
    if (pidfd < 0) {
      return Status::system("watching rank " + std::to_string(peer) + " (pid " +
                                std::to_string(presence.pid) + ") through pidfd_open",
                            errno);
    }
    PeerWatch watch{peer, collectives::FileDescriptor(base::narrow<int>(pidfd))};
    // The pid may have passed to another process before the descriptor held it.
    const auto started = collectives::process_start_time(presence.pid);
    const bool known = started.ok() && presence.start_time != 0;
    if (known && *started != presence.start_time) return dead(peer, presence);
    return watch;
  }

  static Status dead(std::int32_t peer, const collectives::Presence& presence) {
    return Status::error(Code::kPeerFailed, "rank " + std::to_string(peer) + " (pid " +
                                                std::to_string(presence.pid) +
                                                ") died while the engines were opening, or runs in "
                                                "another pid namespace")
        .with_rank(peer);
  }

  std::unique_ptr<collectives::MpiCommunicator> communicator_;
  collectives::Board board_;
  const std::int64_t cores_;
};

// What each rank tells all others at the start, in one exchange: its settings, the processors that
// it may use, and from the leader where to fetch the board.
struct Greeting {
  std::string settings;
  std::string processors;
  std::string socket_name;
  std::string trouble;  // why this rank cannot go on
};

std::vector<std::byte> encode(const Greeting& greeting) {
  const std::string text = greeting.settings + '\0' + greeting.processors + '\0' +
                           greeting.socket_name + '\0' + greeting.trouble + '\0';
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

Result<Greeting> decode(const std::vector<std::byte>& bytes, std::size_t rank) {
  Greeting greeting;
  const std::array fields{&greeting.settings, &greeting.processors, &greeting.socket_name,
                          &greeting.trouble};
  std::size_t field = 0;
  for (const std::byte byte : bytes) {
    if (field == fields.size()) break;
    if (byte == std::byte{0}) {
      ++field;
    } else {
      *fields.at(field) += static_cast<char>(byte);
    }
  }
  if (field != fields.size()) {
    return Status::error(Code::kInternal, "rank " + std::to_string(rank) +
                                              " sent a greeting of another version of Ronde: use "
                                              "the same libronde.so on every rank");
  }
  return greeting;
}

Status refuse_several_hosts(const collectives::MpiCommunicator& communicator,
                            const std::vector<int>& here) {
  if (here.size() == static_cast<std::size_t>(communicator.size())) return {};
  return Status::error(Code::kUnsupported,
                       "the job spans several hosts (" + std::to_string(here.size()) + " of " +
                           std::to_string(communicator.size()) +
                           " ranks are on this one): this version of Ronde runs on one host, so "
                           "start all ranks there");
}

Result<std::vector<Greeting>> exchange(collectives::MpiCommunicator& communicator,
                                       const Greeting& mine, const base::Clock& clock,
                                       base::Instant deadline) {
  auto all = communicator.allgather_bytes(encode(mine), clock, deadline);
  RONDE_RETURN_IF_ERROR(all.status());
  std::vector<Greeting> greetings;
  std::vector<std::string> settings;
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    auto greeting = decode((*all)[rank], rank);
    RONDE_RETURN_IF_ERROR(greeting.status());
    if (!greeting->trouble.empty()) {
      return Status::error(Code::kPeerFailed,
                           "rank " + std::to_string(rank) + " cannot start: " + greeting->trouble)
          .with_rank(base::narrow<std::int32_t>(rank));
    }
    settings.push_back(greeting->settings);
    greetings.push_back(std::move(*greeting));
  }
  RONDE_RETURN_IF_ERROR(check_shared_settings(settings));
  return greetings;
}

std::int64_t cores_of(const std::vector<Greeting>& greetings) {
  std::vector<std::vector<int>> masks;
  masks.reserve(greetings.size());
  for (const Greeting& greeting : greetings) {
    masks.push_back(base::mask_of_text(greeting.processors));
  }
  return base::cores_of_masks(masks);
}

Result<std::unique_ptr<Job>> open_on_host(
    std::unique_ptr<collectives::MpiCommunicator> communicator, const base::Config& config,
    const base::Clock& clock, base::Instant deadline) {
  const std::vector<int> here = communicator->ranks_on_this_host();
  const collectives::BoardGeometry geometry = board_geometry(communicator->size(), config);
  Greeting mine{config.shared_text(), base::mask_text(base::allowed_processors()), "", ""};
  const Status one_host = refuse_several_hosts(*communicator, here);
  if (!one_host.ok()) mine.trouble = one_host.message();

  const bool leader = communicator->rank() == 0;
  std::shared_ptr<collectives::SharedMemory> memory;
  std::optional<collectives::HandoverListener> listener;
  if (leader && one_host.ok()) {
    auto made = collectives::SharedMemory::create_memfd(collectives::Board::size_of(geometry));
    auto opened = collectives::HandoverListener::open();
    Status trouble = made.ok() ? opened.status() : made.status();
    if (trouble.ok()) {
      memory = std::move(*made);
      listener = std::move(*opened);
      mine.socket_name = listener->name();
      trouble = collectives::Board::format(*memory, geometry);
    }
    if (!trouble.ok()) mine.trouble = trouble.message();
  }
  const auto greetings = exchange(*communicator, mine, clock, deadline);
  if (!one_host.ok()) return one_host;
  RONDE_RETURN_IF_ERROR(greetings.status());

  auto handover = leader
                      ? listener->hand_over(memory, here, clock, deadline)
                      : collectives::receive_board(greetings->front().socket_name,
                                                   static_cast<std::size_t>(communicator->rank()),
                                                   here, clock, deadline);
  RONDE_RETURN_IF_ERROR(handover.status());
  auto board =
      collectives::Board::attach(handover->memory, communicator->rank(), handover->event_fds);
  RONDE_RETURN_IF_ERROR(board.status());
  return std::unique_ptr<Job>(std::make_unique<ProcessJob>(
      std::move(communicator), std::move(*board), cores_of(*greetings)));
}

}  // namespace

Result<std::unique_ptr<Job>> open_process_job(const void* communicator, const base::Config& config,
                                              const base::Clock& clock) {
  const auto wanted = collectives::MpiSession::wanted();
  RONDE_RETURN_IF_ERROR(wanted.status());
  if (!*wanted && communicator == nullptr) {
    auto job = LocalJob::create(1);
    RONDE_RETURN_IF_ERROR(job.status());
    return (*job)->join(0, config, clock);
  }
  const base::Instant deadline = clock.after(config.start_timeout);
  auto opened = collectives::MpiSession::open(communicator, clock, deadline);
  RONDE_RETURN_IF_ERROR(opened.status());
  return open_on_host(std::move(*opened), config, clock, deadline);
}

}  // namespace ronde::runtime
