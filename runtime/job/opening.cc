// SPDX-License-Identifier: Apache-2.0
// The steps of a start: greetings, boards, the transport, the leaders' links, verdicts.
#include "runtime/job/opening.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/host_name.h"
#include "base/numbers.h"
#include "base/process/cores.h"
#include "base/process/environment.h"
#include "base/process/secrets.h"
#include "base/text.h"
#include "base/wire/interfaces.h"
#include "base/wire/sha256.h"
#include "base/wire/tcp_socket.h"
#include "collectives/board/handover.h"
#include "collectives/board/shared_memory.h"
#include "collectives/transport/transport.h"
#include "runtime/job/greeting.h"
#include "runtime/job/opening_engine.h"
#include "runtime/job/process_job.h"
#include "runtime/job/transport_choice.h"
#include "runtime/links/meeting.h"
#include "runtime/links/tree.h"

namespace ronde::runtime {

using base::Result;
using base::Status;

namespace {

// How long the ends of a transport say good-bye to each other, as the leaders' links do.
constexpr base::Nanoseconds kGoodBye = std::chrono::seconds(5);

void set_trouble(Greeting& greeting, const Status& status, std::int32_t rank) {
  if (!status.ok()) greeting.trouble = {rank, status.rank().value_or(rank), status.message()};
}

Result<std::vector<Greeting>> exchange(collectives::Meeting& meeting, const std::string& activity,
                                       const Greeting& mine, const base::Clock& clock,
                                       base::Instant deadline) {
  RONDE_ASSIGN_OR_RETURN(auto all,
                         meeting.allgather(encode(mine), activity, mine.trouble, clock, deadline));
  std::vector<Greeting> greetings;
  std::vector<std::string> settings;
  std::vector<collectives::StartTrouble> troubles;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    RONDE_ASSIGN_OR_RETURN(auto greeting,
                           decode_greeting(all[rank], base::narrow<std::int32_t>(rank)));
    troubles.push_back(greeting.trouble);
    settings.push_back(greeting.settings);
    greetings.push_back(std::move(greeting));
  }
  if (const auto* cause = collectives::root_cause(troubles)) return cause->status();
  RONDE_RETURN_IF_ERROR(check_shared_settings(settings));
  return greetings;
}

// The interfaces that the user has chosen for traffic between hosts, as "eth0,eth1"; empty: any.
Result<std::string> chosen_interfaces(const base::Config& config, const std::string& host_name) {
  const base::WantedInterfaces wanted =
      base::wanted_interfaces(config.interfaces, base::process_environment());
  if (wanted.words.empty()) return std::string();
  RONDE_ASSIGN_OR_RETURN(const auto all, base::list_interfaces());
  RONDE_ASSIGN_OR_RETURN(const auto chosen, base::choose_addresses(all, wanted, host_name));
  std::set<std::string> names;
  for (const base::InterfaceAddress& one : chosen) names.insert(one.name);
  return base::joined(names, ",");
}

// How much of the start's time is kept for the exchange of verdicts after the meeting, but at most
// half of what is left.
constexpr base::Nanoseconds kVerdictTime = std::chrono::seconds(8);

// The start of a rank, step by step. Owns what it has opened until job() hands it over.
//
// Thread safety: none; the thread that opens the engine uses it.
class Opening {
 public:
  Opening(const Met& met, const base::Config& config, const base::Clock& clock,
          base::Instant deadline)
      : met_(met),
        meeting_(*met.meeting),
        config_(config),
        clock_(clock),
        log_(config.log_level, meeting_.rank()),
        here_(meeting_.ranks_on_this_host()),
        meet_by_(deadline - std::min((deadline - clock.now()) / 2, kVerdictTime)),
        geometry_(board_geometry(base::narrow<std::int32_t>(here_.size()), config)),
        choice_(choose_transport(config.transport, met.plugin ? met.plugin->name() : "")) {}

  Opening(const Opening&) = delete;
  Opening& operator=(const Opening&) = delete;
  // A start that failed leaves peers that may be gone.
  ~Opening() {
    if (transport_) transport_->abandon();
  }

  [[nodiscard]] bool several_hosts() const {
    return here_.size() != base::narrow<std::size_t>(meeting_.size());
  }
  // Makes this rank's greeting; from here on a leader can be reached.
  Greeting greet() {
    Greeting mine;
    mine.settings = config_.shared_text();
    mine.processors = base::allowed_processors();
    mine.leader = here_.front();
    mine.host_name = base::host_name();
    mine.pid = ::getpid();
    Status trouble;
    if (is_leader()) trouble = make_board(mine);
    if (trouble.ok() && is_leader() && several_hosts()) trouble = listen(mine);
    if (trouble.ok() && needs_transport(config_, several_hosts())) trouble = open_transport(mine);
    set_trouble(mine, trouble, meeting_.rank());
    return mine;
  }
  // Connects the transport, shares the board with the ranks of this host, and connects to the
  // leaders of other hosts.
  Status meet(const std::vector<Greeting>& greetings) {
    if (transport_) RONDE_RETURN_IF_ERROR(connect_transport(greetings));
    RONDE_RETURN_IF_ERROR(share_board(greetings));
    RONDE_ASSIGN_OR_RETURN(shape_, shape_of(greetings));
    return several_hosts() && is_leader() ? meet_leaders(greetings) : Status();
  }
  // After meet(): this leader's address on its links; empty for other ranks and on a single host.
  [[nodiscard]] const std::string& address() const { return address_; }
  std::unique_ptr<Job> job(std::unique_ptr<collectives::Meeting> meeting,
                           std::unique_ptr<OpeningEngine> engine,
                           const std::vector<Greeting>& greetings,
                           const std::vector<Greeting>& verdicts) {
    ProcessJobParts parts{*shape_,
                          std::move(*board_),
                          std::move(connections_),
                          std::move(links_),
                          std::move(transport_),
                          "",
                          "",
                          {},
                          cores_of(greetings, here_)};
    parts.table = table_of(greetings, *shape_, geometry_.slot_bytes, transport_text_);
    parts.ranks = ranks_of(greetings, verdicts, *shape_);
    if (!transport_title_.empty()) parts.ranks.transport = transport_title_;
    parts.transport_note =
        yielding_note(base::process_environment(), choice_.name, shape_->hosts());
    return make_process_job(std::move(meeting), std::move(engine), std::move(parts));
  }

 private:
  [[nodiscard]] bool is_leader() const { return here_.front() == meeting_.rank(); }

  Status make_board(Greeting& mine) {
    RONDE_ASSIGN_OR_RETURN(
        memory_, collectives::SharedMemory::create_memfds(collectives::Board::parts_of(geometry_)));
    RONDE_ASSIGN_OR_RETURN(handover_, collectives::HandoverListener::open());
    mine.socket_name = handover_->name();
    return collectives::Board::format(*memory_, geometry_);
  }
  Status listen(Greeting& mine) {
    RONDE_ASSIGN_OR_RETURN(leaders_,
                           LeaderMeeting::listen(config_.interfaces, mine.host_name, config_.ports,
                                                 base::Keepalive::of(config_.link_timeout)));
    mine.addresses = leaders_->addresses();
    if (meeting_.rank() != 0) return {};
    RONDE_ASSIGN_OR_RETURN(mine.seed, base::random_bytes<sizeof mine.seed>());
    return {};
  }
  Status open_transport(Greeting& mine) {
    const bool introduced = met_.plugin && met_.plugin->name() == choice_.name;
    auto library = introduced
                       ? Result<collectives::TransportLibrary>(*met_.plugin)
                       : collectives::TransportLibrary::load(choice_.name, config_.transport_path);
    if (!library.ok()) {
      return Status::error(library.status().code(),
                           "no transport '" + choice_.name + "' (" + choice_.reason + ")",
                           library.status());
    }
    transport_title_ = library->title();
    transport_text_ = transport_title_ + " (" + library->library() + "; " + choice_.reason + ")";
    RONDE_ASSIGN_OR_RETURN(const auto interfaces, chosen_interfaces(config_, mine.host_name));
    collectives::Transport::Options options;
    options.rank = meeting_.rank();
    options.size = meeting_.size();
    options.party = introduced ? met_.party : nullptr;
    options.interfaces = interfaces;
    options.peer_timeout = config_.link_timeout;
    options.close_patience = std::min(config_.shutdown_timeout, kGoodBye);
    options.log = [log = log_](base::LogLevel level, std::string_view text) {
      log.log(level, text);
    };
    RONDE_ASSIGN_OR_RETURN(transport_, collectives::Transport::open(*library, std::move(options)));
    RONDE_ASSIGN_OR_RETURN(mine.transport, transport_->address());
    return {};
  }
  Status connect_transport(const std::vector<Greeting>& greetings) {
    std::vector<std::vector<std::byte>> addresses;
    addresses.reserve(greetings.size());
    for (const Greeting& greeting : greetings) addresses.push_back(greeting.transport);
    return transport_->connect(addresses);
  }
  Status share_board(const std::vector<Greeting>& greetings) {
    const auto position = std::find(here_.begin(), here_.end(), meeting_.rank());
    const auto index = base::narrow<std::size_t>(position - here_.begin());
    const auto leader = base::narrow<std::size_t>(here_.front());
    RONDE_ASSIGN_OR_RETURN(
        auto handed, is_leader() ? handover_->hand_over(memory_, here_, clock_, meet_by_, log_)
                                 : collectives::receive_board(greetings[leader].socket_name, index,
                                                              here_, clock_, meet_by_));
    RONDE_ASSIGN_OR_RETURN(
        board_, collectives::Board::attach(handed.memory, base::narrow<std::int32_t>(index),
                                           handed.event_fds));
    handed.memory->keep_fds_of(index + 1);  // its arena, behind the board
    connections_ = std::move(handed.connections);
    return {};
  }
  // Where the ranks know a secret, what rank 0 has told them (in clear, after the proof) is not
  // enough to make the leaders' one; where MPI introduced them, the seed is as safe as MPI is.
  [[nodiscard]] base::JobSecret leaders_secret(const std::vector<Greeting>& greetings) const {
    const auto& seed = greetings.front().seed;
    if (met_.secret.empty()) return {seed.begin(), seed.end()};
    const base::Digest digest = base::hmac_sha256(
        met_.secret, {std::as_bytes(std::span(std::string_view("the leaders"))), seed});
    return {digest.begin(), digest.end()};
  }
  Status meet_leaders(const std::vector<Greeting>& greetings) {
    RONDE_ASSIGN_OR_RETURN(
        auto met, leaders_->meet(HostTree(shape_->hosts()), shape_->host_of(meeting_.rank()),
                                 leaders_of(greetings, *shape_), leaders_secret(greetings), clock_,
                                 meet_by_, log_));
    const base::LinkEnd& first = met.parent ? *met.parent : met.children.front();
    if (const auto own = base::own_end(first.socket)) address_ = text_of(own->address);
    RONDE_ASSIGN_OR_RETURN(links_, TcpLinks::open(std::move(met)));
    return {};
  }

  const Met& met_;
  collectives::Meeting& meeting_;
  const base::Config& config_;
  const base::Clock& clock_;
  const base::Log log_;
  const std::vector<int> here_;
  // Early enough that the ranks can still exchange which rank was not reached.
  const base::Instant meet_by_;
  const collectives::BoardGeometry geometry_;
  std::shared_ptr<collectives::SharedMemory> memory_;
  std::optional<collectives::HandoverListener> handover_;
  std::optional<LeaderMeeting> leaders_;
  std::optional<base::JobShape> shape_;
  std::optional<collectives::Board> board_;
  std::vector<base::FileDescriptor> connections_;
  std::unique_ptr<TcpLinks> links_;
  std::string address_;
  const TransportChoice choice_;
  std::string transport_title_;  // "MPI"
  std::string transport_text_;   // for the table of the job
  std::unique_ptr<collectives::Transport> transport_;
};

}  // namespace

Result<std::unique_ptr<Job>> open_job(Met met, std::unique_ptr<OpeningEngine> engine,
                                      const base::Config& config, const base::Clock& clock,
                                      base::Instant deadline) {
  collectives::Meeting& meeting = *met.meeting;
  Opening opening(met, config, clock, deadline);
  const auto greetings =
      exchange(meeting, "exchanging addresses", opening.greet(), clock, deadline);
  if (!greetings.ok()) return engine->explained(greetings.status());
  Status reached = opening.meet(*greetings);
  if (reached.ok()) reached = engine->alone();
  Result<std::vector<Greeting>> verdicts = std::vector<Greeting>(greetings->size());
  if (meeting.size() > 1) {
    // Only the rank that could not reach another one knows of it, so all exchange their verdicts,
    // and every rank returns the same error.
    Greeting verdict;
    verdict.addresses = {opening.address()};
    set_trouble(verdict, reached, meeting.rank());
    verdicts = exchange(meeting, "meeting the other ranks", verdict, clock, deadline);
    RONDE_RETURN_IF_ERROR(verdicts.status());
  }
  RONDE_RETURN_IF_ERROR(reached);
  return opening.job(std::move(met.meeting), std::move(engine), *greetings, *verdicts);
}

}  // namespace ronde::runtime
