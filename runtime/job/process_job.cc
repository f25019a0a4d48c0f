// SPDX-License-Identifier: Apache-2.0
// A job of processes: MPI introduces the ranks, or they meet at a meeting point; the board of a
// host is handed over by its leader, and the leaders of several hosts connect to each other.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "base/cores.h"
#include "base/host_name.h"
#include "collectives/board/handover.h"
#include "collectives/board/shared_memory.h"
#include "collectives/transport/mpi/session.h"
#include "runtime/job/greeting.h"
#include "runtime/job/job.h"
#include "runtime/job/local_job.h"
#include "runtime/links/meeting.h"
#include "runtime/links/tcp_socket.h"
#include "runtime/links/tree.h"
#include "runtime/meet/identity.h"
#include "runtime/meet/meet.h"
#include "runtime/tensors/signature.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

namespace {

// MPI introduces the ranks.
class MpiMeeting final : public collectives::Meeting {
 public:
  explicit MpiMeeting(std::unique_ptr<collectives::MpiCommunicator> communicator)
      : communicator_(std::move(communicator)) {}

  [[nodiscard]] int rank() const override { return communicator_->rank(); }
  [[nodiscard]] int size() const override { return communicator_->size(); }
  [[nodiscard]] std::vector<int> ranks_on_this_host() const override {
    return communicator_->ranks_on_this_host();
  }
  [[nodiscard]] std::string text() const override { return collectives::MpiSession::library(); }
  Result<std::vector<std::vector<std::byte>>> allgather(std::span<const std::byte> mine,
                                                        const std::string& activity,
                                                        const collectives::StartTrouble& trouble,
                                                        const base::Clock& clock,
                                                        base::Instant deadline) override {
    return communicator_->allgather_bytes(mine, activity, trouble, clock, deadline);
  }
  [[nodiscard]] std::string bound_to_thread() const override {
    if (communicator_->any_thread()) return "";
    return "the program started MPI with " + communicator_->thread_level();
  }
  [[nodiscard]] bool ends_with_process() const override { return true; }
  void abandon() override { communicator_->abandon(); }
  Status close() override { return communicator_->close(); }

 private:
  std::unique_ptr<collectives::MpiCommunicator> communicator_;
};

// How the ranks of a job have been introduced.
struct Introduction {
  std::unique_ptr<collectives::Meeting> meeting;
  // Where MPI did it: it belongs to the meeting, and carries tensors, too.
  collectives::MpiCommunicator* mpi = nullptr;
};

class ProcessJob final : public Job {
 public:
  ProcessJob(Introduction introduction, collectives::JobShape shape, collectives::Board board,
             std::vector<collectives::FileDescriptor> connections, std::unique_ptr<TcpLinks> links,
             std::string table, RankTable ranks, std::int64_t cores)
      : meeting_(std::move(introduction.meeting)),
        mpi_(introduction.mpi),
        shape_(std::move(shape)),
        board_(std::move(board)),
        connections_(std::move(connections)),
        links_(std::move(links)),
        table_(std::move(table)),
        ranks_(std::move(ranks)),
        cores_(cores) {}

  [[nodiscard]] std::int32_t rank() const override { return meeting_->rank(); }
  [[nodiscard]] const collectives::JobShape& shape() const override { return shape_; }
  [[nodiscard]] std::string table() const override { return table_; }
  [[nodiscard]] RankTable rank_table() const override { return ranks_; }
  [[nodiscard]] std::int64_t cores() const override { return cores_; }
  [[nodiscard]] collectives::Board& board() override { return board_; }
  [[nodiscard]] std::unique_ptr<TcpLinks> take_links() override { return std::move(links_); }
  [[nodiscard]] std::unique_ptr<collectives::Transport> make_transport() override {
    return mpi_ != nullptr ? mpi_->transport() : nullptr;
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
    if (mpi_ == nullptr) meeting_->close().ignore();
  }
  void at_exit(const std::function<void()>& close) override {
    if (mpi_ != nullptr) mpi_->at_exit(close);
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
  [[nodiscard]] std::string watch_note() const override { return watch_note_; }

 private:
  // Without pidfds the leader watches every rank of the host and the others watch the leader, which
  // is enough: whoever notices a death fails the job on the board for all.
  std::vector<PeerWatch> watch_sockets(const Result<collectives::FileDescriptor>& refused) {
    watch_note_ = refused.status().message() +
                  "; Ronde watches sockets instead: a rank that dies is noticed as soon, unless a "
                  "process that it made with clone() lives on";
    std::vector<PeerWatch> watches;
    for (std::int32_t position = 0; position < board_.ranks(); ++position) {
      collectives::FileDescriptor& socket = connections_[base::narrow<std::size_t>(position)];
      if (socket.valid()) watches.push_back({rank_at(position), std::move(socket)});
    }
    return watches;
  }

  // Fails with kUnsupported where the kernel, or what the process runs in, knows no pidfds: Linux
  // before 5.3 and gVisor answer ENOSYS, filters of containers EPERM.
  Result<collectives::FileDescriptor> open_pidfd(std::int32_t position) {
    const std::int32_t peer = rank_at(position);
    const collectives::Presence presence = board_.presence(position);
    // The glibc of Debian 12 has no wrapper for this call.
    collectives::FileDescriptor pidfd(
        base::narrow<int>(::syscall(SYS_pidfd_open, presence.pid, 0)));
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
  collectives::MpiCommunicator* const mpi_;  // nullptr: nothing carries tensors between hosts
  const collectives::JobShape shape_;
  collectives::Board board_;
  // The sockets of the handover, which stay open even where this rank watches pidfds, since another
  // rank may have none and would take the end of its connection for a death.
  std::vector<collectives::FileDescriptor> connections_;
  std::string watch_note_;
  std::unique_ptr<TcpLinks> links_;  // until the agent takes them
  const std::string table_;
  const RankTable ranks_;
  const std::int64_t cores_;
};

collectives::StartTrouble trouble_of(const Greeting& greeting, std::int32_t rank) {
  collectives::StartTrouble trouble{rank, rank, greeting.trouble};
  const std::string& culprit = greeting.culprit;
  std::from_chars(culprit.data(), culprit.data() + culprit.size(), trouble.culprit);
  return trouble;
}

void set_trouble(Greeting& greeting, const Status& status) {
  if (status.ok()) return;
  greeting.trouble = status.message();
  if (const auto culprit = status.rank()) greeting.culprit = std::to_string(*culprit);
}

Result<std::vector<Greeting>> exchange(collectives::Meeting& meeting, const std::string& activity,
                                       const Greeting& mine, const base::Clock& clock,
                                       base::Instant deadline) {
  auto all =
      meeting.allgather(encode(mine), activity, trouble_of(mine, meeting.rank()), clock, deadline);
  RONDE_RETURN_IF_ERROR(all.status());
  std::vector<Greeting> greetings;
  std::vector<std::string> settings;
  std::vector<collectives::StartTrouble> troubles;
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    auto greeting = decode_greeting((*all)[rank], base::narrow<std::int32_t>(rank));
    RONDE_RETURN_IF_ERROR(greeting.status());
    troubles.push_back(trouble_of(*greeting, base::narrow<std::int32_t>(rank)));
    settings.push_back(greeting->settings);
    greetings.push_back(std::move(*greeting));
  }
  if (const auto* cause = collectives::root_cause(troubles)) return cause->status();
  RONDE_RETURN_IF_ERROR(check_shared_settings(settings));
  return greetings;
}

// How much of the start's time is kept for the exchange of verdicts after the meeting, but at most
// half of what is left.
constexpr base::Nanoseconds kVerdictTime = std::chrono::seconds(8);

// The start of a rank, step by step. Owns what it has opened until job() hands it over.
//
// Thread safety: none; the thread that opens the engine uses it.
class Opening {
 public:
  Opening(collectives::Meeting& meeting, const base::Config& config, const base::Clock& clock,
          base::Instant deadline)
      : introducer_(meeting),
        config_(config),
        clock_(clock),
        here_(meeting.ranks_on_this_host()),
        meet_by_(deadline - std::min((deadline - clock.now()) / 2, kVerdictTime)),
        geometry_(board_geometry(base::narrow<std::int32_t>(here_.size()), config)) {}

  [[nodiscard]] bool several_hosts() const {
    return here_.size() != base::narrow<std::size_t>(introducer_.size());
  }
  // Makes this rank's greeting; from here on a leader can be reached.
  Greeting greet() {
    Greeting mine;
    mine.settings = config_.shared_text();
    mine.processors = base::mask_text(base::allowed_processors());
    mine.leader = std::to_string(here_.front());
    mine.host_name = base::host_name();
    mine.pid = std::to_string(::getpid());
    if (!is_leader()) return mine;
    Status trouble = make_board(mine);
    if (trouble.ok() && several_hosts()) trouble = listen(mine);
    set_trouble(mine, trouble);
    return mine;
  }
  // Shares the board with the ranks of this host, and connects to the leaders of other hosts.
  Status meet(const std::vector<Greeting>& greetings) {
    RONDE_RETURN_IF_ERROR(share_board(greetings));
    auto shape = shape_of(greetings);
    RONDE_RETURN_IF_ERROR(shape.status());
    shape_ = std::move(*shape);
    return several_hosts() && is_leader() ? meet_leaders(greetings) : Status();
  }
  // After meet(): this leader's address on its links; empty for other ranks and on a single host.
  [[nodiscard]] const std::string& address() const { return address_; }
  Result<std::unique_ptr<Job>> job(Introduction introduction,
                                   const std::vector<Greeting>& greetings,
                                   const std::vector<Greeting>& verdicts) {
    std::string table = table_of(greetings, *shape_, geometry_.slot_bytes);
    RankTable ranks = ranks_of(greetings, verdicts, *shape_);
    return std::unique_ptr<Job>(std::make_unique<ProcessJob>(
        std::move(introduction), std::move(*shape_), std::move(*board_), std::move(connections_),
        std::move(links_), std::move(table), std::move(ranks), cores_of(greetings, here_)));
  }

 private:
  [[nodiscard]] bool is_leader() const { return here_.front() == introducer_.rank(); }

  Status make_board(Greeting& mine) {
    auto made = collectives::SharedMemory::create_memfd(collectives::Board::size_of(geometry_));
    RONDE_RETURN_IF_ERROR(made.status());
    memory_ = std::move(*made);
    auto opened = collectives::HandoverListener::open();
    RONDE_RETURN_IF_ERROR(opened.status());
    handover_ = std::move(*opened);
    mine.socket_name = handover_->name();
    return collectives::Board::format(*memory_, geometry_);
  }
  Status listen(Greeting& mine) {
    auto meeting = LeaderMeeting::listen(config_.interfaces, mine.host_name,
                                         Keepalive::of(config_.link_timeout));
    RONDE_RETURN_IF_ERROR(meeting.status());
    meeting_ = std::move(*meeting);
    for (const std::string& address : meeting_->addresses()) {
      mine.addresses += (mine.addresses.empty() ? "" : " ") + address;
    }
    if (introducer_.rank() != 0) return {};
    const auto secret = make_job_secret();
    RONDE_RETURN_IF_ERROR(secret.status());
    mine.secret = hex_of(*secret);
    return {};
  }
  Status share_board(const std::vector<Greeting>& greetings) {
    const auto position = std::find(here_.begin(), here_.end(), introducer_.rank());
    const auto index = base::narrow<std::size_t>(position - here_.begin());
    const auto leader = base::narrow<std::size_t>(here_.front());
    auto handed = is_leader() ? handover_->hand_over(memory_, here_, clock_, meet_by_)
                              : collectives::receive_board(greetings[leader].socket_name, index,
                                                           here_, clock_, meet_by_);
    RONDE_RETURN_IF_ERROR(handed.status());
    auto board = collectives::Board::attach(handed->memory, base::narrow<std::int32_t>(index),
                                            handed->event_fds);
    RONDE_RETURN_IF_ERROR(board.status());
    board_ = std::move(*board);
    connections_ = std::move(handed->connections);
    return {};
  }
  Status meet_leaders(const std::vector<Greeting>& greetings) {
    const auto secret = secret_of_hex(greetings.front().secret);
    RONDE_RETURN_IF_ERROR(secret.status());
    auto met = meeting_->meet(HostTree(shape_->hosts()), shape_->host_of(introducer_.rank()),
                              leaders_of(greetings, *shape_), *secret, clock_, meet_by_,
                              base::Log(config_.log_level, introducer_.rank()));
    RONDE_RETURN_IF_ERROR(met.status());
    const LinkEnd& first = met->parent ? *met->parent : met->children.front();
    if (const auto own = own_end(first.socket)) address_ = text_of(own->address);
    auto links = TcpLinks::open(std::move(*met));
    RONDE_RETURN_IF_ERROR(links.status());
    links_ = std::move(*links);
    return {};
  }

  collectives::Meeting& introducer_;
  const base::Config& config_;
  const base::Clock& clock_;
  const std::vector<int> here_;
  // Early enough that the ranks can still exchange which rank was not reached.
  const base::Instant meet_by_;
  const collectives::BoardGeometry geometry_;
  std::shared_ptr<collectives::SharedMemory> memory_;
  std::optional<collectives::HandoverListener> handover_;
  std::optional<LeaderMeeting> meeting_;
  std::optional<collectives::JobShape> shape_;
  std::optional<collectives::Board> board_;
  std::vector<collectives::FileDescriptor> connections_;
  std::unique_ptr<TcpLinks> links_;
  std::string address_;
};

// Without MPI only shared memory carries tensors. All ranks find the same.
Status check_transport(const Introduction& introduction, const base::Config& config) {
  if (introduction.mpi != nullptr) return {};
  const collectives::Meeting& meeting = *introduction.meeting;
  if (config.algorithm != "auto") {
    return Status::error(Code::kUnsupported,
                         "RONDE_ALGORITHM=" + config.algorithm +
                             " moves tensors between ranks as messages, for which this job, not "
                             "started by MPI, has no transport: unset it, or start the ranks with "
                             "mpirun");
  }
  if (std::ssize(meeting.ranks_on_this_host()) == meeting.size()) return {};
  return Status::error(Code::kUnsupported,
                       "the ranks that met at " + meeting.text() +
                           " are on several hosts, between which this job, not started by MPI, has "
                           "no transport: start the ranks with mpirun");
}

Result<std::unique_ptr<Job>> open_job(Introduction introduction, const base::Config& config,
                                      const base::Clock& clock, base::Instant deadline) {
  RONDE_RETURN_IF_ERROR(check_transport(introduction, config));
  collectives::Meeting& meeting = *introduction.meeting;
  Opening opening(meeting, config, clock, deadline);
  const auto greetings =
      exchange(meeting, "exchanging addresses", opening.greet(), clock, deadline);
  RONDE_RETURN_IF_ERROR(greetings.status());
  const Status met = opening.meet(*greetings);
  Result<std::vector<Greeting>> verdicts = std::vector<Greeting>(greetings->size());
  if (meeting.size() > 1) {
    // Only the rank that could not reach another one knows of it, so all exchange their verdicts,
    // and every rank returns the same error.
    Greeting verdict;
    verdict.addresses = opening.address();
    set_trouble(verdict, met);
    verdicts = exchange(meeting, "meeting the other ranks", verdict, clock, deadline);
    RONDE_RETURN_IF_ERROR(verdicts.status());
  }
  RONDE_RETURN_IF_ERROR(met);
  return opening.job(std::move(introduction), *greetings, *verdicts);
}

// The ranks meet at a meeting point.
Result<Introduction> introduce(const Identity& identity, std::span<const std::string> environment,
                               const base::Config& config, const base::Clock& clock,
                               base::Instant deadline) {
  auto secret = MeetingSecret::of(environment);
  RONDE_RETURN_IF_ERROR(secret.status());
  const MeetingPlan plan{identity.rank,
                         identity.size,
                         identity.point,
                         identity.launcher,
                         std::move(*secret),
                         config.interfaces,
                         Keepalive::of(config.link_timeout),
                         base::Log(config.log_level, identity.rank)};
  auto met = meet(plan, clock, deadline);
  RONDE_RETURN_IF_ERROR(met.status());
  return Introduction{std::move(*met), nullptr};
}

Result<std::unique_ptr<Job>> job_of_one(const base::Config& config, const base::Clock& clock) {
  auto job = LocalJob::create(1);
  RONDE_RETURN_IF_ERROR(job.status());
  return (*job)->join(0, config, clock);
}

}  // namespace

Result<std::unique_ptr<Job>> open_process_job(const collectives::ProgramCommunicator* communicator,
                                              const base::Config& config,
                                              const base::Clock& clock) {
  const bool world = communicator == nullptr;
  if (config.mpi == "off") {
    if (world) return job_of_one(config, clock);
    return Status::error(Code::kInvalidArgument,
                         "RONDE_MPI=off makes a job of one, but the program gave a communicator of "
                         "its own: unset RONDE_MPI, or give none");
  }
  const auto environment = base::Config::process_environment();
  const auto identity = world ? identity_of(environment) : Result<Identity>(Identity());
  RONDE_RETURN_IF_ERROR(identity.status());
  const base::Instant deadline = clock.after(config.start_timeout);
  if (identity->introduced == Identity::Introduced::kAtAMeeting) {
    auto introduction = introduce(*identity, environment, config, clock, deadline);
    RONDE_RETURN_IF_ERROR(introduction.status());
    return open_job(std::move(*introduction), config, clock, deadline);
  }
  const auto wanted = collectives::MpiSession::wanted();
  RONDE_RETURN_IF_ERROR(wanted.status());
  const auto check = [&](std::int64_t ranks) {
    return check_launch(*identity, ranks, collectives::MpiSession::library());
  };
  if (!*wanted && world) {
    RONDE_RETURN_IF_ERROR(check(1));
    return job_of_one(config, clock);
  }
  auto opened = collectives::MpiSession::open(communicator, clock, deadline);
  RONDE_RETURN_IF_ERROR(opened.status());
  if (const Status launched = world ? check((*opened)->size()) : Status(); !launched.ok()) {
    (*opened)->close().ignore();  // so that MPI is finalised at exit
    return launched;
  }
  collectives::MpiCommunicator* const mpi = opened->get();
  return open_job({std::make_unique<MpiMeeting>(std::move(*opened)), mpi}, config, clock, deadline);
}

}  // namespace ronde::runtime
