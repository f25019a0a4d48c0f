// SPDX-License-Identifier: Apache-2.0
// Which launcher counts, and where they contradict each other.
#include "runtime/start/identity.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/process/environment.h"
#include "runtime/start/launchers.h"
#include "runtime/start/variables.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

namespace {

using Introduced = Identity::Introduced;
using MaybePoint = Result<std::optional<MeetingPoint>>;

constexpr std::size_t kLongestJob = 200;  // characters

Status refused_identity(const std::string& text) {
  return Status::error(Code::kInvalidArgument, text);
}

Status contradiction(const LaunchInfo& one, const LaunchInfo& other) {
  return refused_identity("two launchers contradict each other: " + one.launcher + " (" + one.said +
                          ") and " + other.launcher + " (" + other.said +
                          "); unset the variables of the one that did not start this process");
}

bool agree(const LaunchInfo& one, const LaunchInfo& other) {
  return one.size > 0 && one.rank == other.rank && one.size == other.size;
}

bool contradict(const LaunchInfo& one, const LaunchInfo& other) {
  const auto differ = [](std::int32_t a, std::int32_t b) { return a >= 0 && b >= 0 && a != b; };
  return differ(one.rank, other.rank) || differ(one.size, other.size);
}

// What RONDE_MEET names: it goes before the meeting point of any launcher.
MaybePoint chosen_point(Environment environment) {
  const auto text = variable(environment, "RONDE_MEET");
  if (!text) return std::optional<MeetingPoint>();
  auto point = parse_meeting_point("RONDE_MEET", *text);
  RONDE_RETURN_IF_ERROR(point.status());
  return std::optional(std::move(*point));
}

// All launchers that have set variables, in the order of launchers(), TF_CONFIG before Slurm, which
// is the last.
struct Launches {
  std::vector<LaunchInfo> infos;
  bool with_slurm = false;

  [[nodiscard]] bool is_slurm(const LaunchInfo& info) const {
    return with_slurm && &info == &infos.back();
  }
};

Result<Launches> launches_of(Environment environment) {
  Launches launches;
  const auto add = [&](MaybeInfo info) -> Status {
    RONDE_RETURN_IF_ERROR(info.status());
    if (*info) launches.infos.push_back(*std::move(*info));
    return {};
  };
  const auto all = launchers();
  for (const Launcher& one : all.first(all.size() - 1)) {
    RONDE_RETURN_IF_ERROR(add(info_of(one, environment)));
  }
  // What is around a launcher as a rule (a pod, an allocation) does not matter to it where it makes
  // no sense.
  const bool alone = launches.infos.empty();
  const Status config = add(info_of_tf_config(environment));
  if (alone) RONDE_RETURN_IF_ERROR(config);
  const std::size_t inner = launches.infos.size();
  const Status slurm = add(info_of(all.back(), environment));
  if (inner == 0) RONDE_RETURN_IF_ERROR(slurm);
  launches.with_slurm = launches.infos.size() > inner;
  return launches;
}

// Half of a launcher's variables do not matter beside another launcher of several ranks.
Status check_halves(const Launches& launches, Environment environment) {
  for (const LaunchInfo& info : launches.infos) {
    if (info.size != 1) return {};
  }
  for (const Launcher& one : launchers()) {
    const std::string half = half_set(one, environment);
    if (!half.empty()) return refused_identity(half);
  }
  return {};
}

// The launcher that counts, once no two contradict each other.
class Deciding {
 public:
  Deciding(const Launches& launches, Environment environment, const Ancestry& ancestry)
      : launches_(&launches) {
    for (const LaunchInfo& info : launches.infos) {
      distances_.push_back(ancestry.distance_of(info.variables, environment));
    }
  }

  // Its place among them. Those that agree go by their order: a program that MPI has started tells
  // other libraries so by their variables.
  [[nodiscard]] Result<std::size_t> decide() const {
    std::size_t best = 0;
    for (std::size_t i = 1; i < distances_.size(); ++i) {
      const bool nearer = distances_[i] < distances_[best];
      const bool agent = info(i).by_agent && info(best).by_mpi && distances_[i] <= distances_[best];
      if (is_beside(i, best) || !(nearer || agent)) continue;
      if (agent || !agree(info(i), info(best))) best = i;
    }
    for (std::size_t i = 0; i < distances_.size(); ++i) {
      if (is_outside(i, best) || !contradict(info(best), info(i))) continue;
      return contradiction(info(std::min(i, best)), info(std::max(i, best)));
    }
    return best;
  }
  [[nodiscard]] std::size_t distance(std::size_t i) const { return distances_[i]; }

 private:
  [[nodiscard]] const LaunchInfo& info(std::size_t i) const { return launches_->infos[i]; }
  // TF_CONFIG where it describes servers, too, beside a launcher of all of them.
  [[nodiscard]] bool is_beside(std::size_t i, std::size_t best) const {
    return i != best && (info(i).of_more_than_ranks || !info(i).no_member.empty()) &&
           !launches_->is_slurm(info(best));
  }
  [[nodiscard]] bool is_outside(std::size_t i, std::size_t best) const {
    return i == best || is_beside(i, best) || (info(i).by_mpi && info(best).by_mpi) ||
           distances_[best] < distances_[i];
  }

  const Launches* launches_;
  std::vector<std::size_t> distances_;
};

// A rank's child has the variables of the rank's launcher. What runs in a launcher that a rank has
// started has variables of its own: they are nearer to it than the mark of the rank, or others.
Status check_child(Environment environment, std::int64_t pid, const Identity* identity,
                   std::size_t distance, const Ancestry& ancestry) {
  const auto text = variable(environment, RankMark::kVariable);
  const auto mark = text ? RankMark::parse(*text) : std::nullopt;
  if (!mark || mark->pid == pid) return {};
  const std::size_t to_mark = ancestry.distance_of({RankMark::kVariable}, environment);
  const bool other_variables = identity != nullptr && words_of(*identity) != mark->said;
  if (identity != nullptr && (distance < to_mark || (distance == to_mark && other_variables)))
    return {};
  return Status::error(Code::kUnsupported,
                       "this process (pid " + std::to_string(pid) + ") is a child of rank " +
                           std::to_string(mark->rank) + " of " + std::to_string(mark->size) +
                           " (pid " + std::to_string(mark->pid) +
                           "), and no rank itself: RONDE_ALONE=1 makes it a job of one");
}

// The meeting point of a job of several ranks whose launcher is no MPI's.
Result<MeetingPoint> point_for(const LaunchInfo& info, const Launches& launches,
                               const std::optional<MeetingPoint>& chosen) {
  if (chosen) return *chosen;
  if (info.point) return *info.point;
  for (const LaunchInfo& other : launches.infos) {
    if (other.point && !launches.is_slurm(other) && !contradict(info, other)) return *other.point;
  }
  return refused_identity(info.launcher + " started " + std::to_string(info.size) + " ranks (" +
                          info.said + "), but " + info.no_point);
}

Result<Identity> identity_by(const LaunchInfo& info, const Launches& launches,
                             const std::optional<MeetingPoint>& chosen, Environment environment) {
  Identity identity{Introduced::kByNobody,
                    info.launcher,
                    info.said,
                    info.rank,
                    info.size,
                    {},
                    variable(environment, "RONDE_JOB").value_or(info.job)};
  if (identity.job.size() > kLongestJob) {
    return refused_identity("the name of the job (RONDE_JOB, or what " + info.launcher +
                            " calls it) has " + std::to_string(identity.job.size()) +
                            " characters: set RONDE_JOB to one of at most " +
                            std::to_string(kLongestJob));
  }
  // PMIx sets no size; another launcher of the same rank may.
  for (const LaunchInfo& other : launches.infos) {
    if (identity.size < 0 && other.rank == info.rank && other.size > 0) {
      identity.size = other.size;
      identity.said += " " + other.said;
    }
  }
  if (info.by_mpi) {
    if (chosen) {
      return refused_identity(
          "RONDE_MEET=" + text_of(*chosen) + " names a meeting point, but " + info.launcher + " (" +
          info.said +
          ") introduces the ranks itself: unset RONDE_MEET, or set RONDE_RANK and "
          "RONDE_SIZE too");
    }
    identity.introduced = Introduced::kByMpi;
    return identity;
  }
  if (!info.no_member.empty()) {
    return refused_identity(info.no_member + "; RONDE_ALONE=1 makes this process a job of one");
  }
  if (info.size == 1 && chosen && info.variables.size() == 1) {
    return refused_identity("RONDE_MEET=" + text_of(*chosen) + " names a meeting point, but " +
                            info.said +
                            " says that this process is alone: set RONDE_RANK and RONDE_SIZE");
  }
  if (info.size == 1) return identity;
  RONDE_ASSIGN_OR_RETURN(identity.point, point_for(info, launches, chosen));
  identity.introduced = Introduced::kAtAMeeting;
  identity.point.one_host = identity.point.one_host || is_loopback(identity.point.host);
  return identity;
}

}  // namespace

std::string words_of(const Identity& identity) {
  const bool meets = identity.introduced == Introduced::kAtAMeeting;
  return identity.said + (meets ? " at " + text_of(identity.point) : "") +
         (identity.job.empty() ? "" : " of " + identity.job);
}

Result<Identity> identity_of(Environment environment, std::int64_t pid,
                             const std::function<Ancestry()>& ancestry) {
  if (variable(environment, "RONDE_ALONE") == "1" || variable(environment, "RONDE_MPI") == "off") {
    return Identity();
  }
  RONDE_ASSIGN_OR_RETURN(const auto launches, launches_of(environment));
  RONDE_ASSIGN_OR_RETURN(const auto chosen, chosen_point(environment));
  RONDE_RETURN_IF_ERROR(check_halves(launches, environment));
  const bool marked = variable(environment, RankMark::kVariable).has_value();
  const Ancestry above = marked || launches.infos.size() > 1 ? ancestry() : Ancestry();
  if (launches.infos.empty()) {
    RONDE_RETURN_IF_ERROR(check_child(environment, pid, nullptr, 0, above));
    if (!chosen) return Identity();
    return refused_identity(
        "RONDE_MEET=" + text_of(*chosen) +
        " names a meeting point, but nothing says which rank this process is: set "
        "RONDE_RANK and RONDE_SIZE");
  }
  const Deciding deciding(launches, environment, above);
  RONDE_ASSIGN_OR_RETURN(const std::size_t best, deciding.decide());
  const LaunchInfo& info = launches.infos[best];
  RONDE_ASSIGN_OR_RETURN(auto identity, identity_by(info, launches, chosen, environment));
  RONDE_RETURN_IF_ERROR(check_child(environment, pid, &identity, deciding.distance(best), above));
  return identity;
}

Result<Identity> identity_of_this_process() {
  return identity_of(base::process_environment(), ::getpid(), ancestry_of_this_process);
}

Status check_alone(const Identity& identity) {
  if (identity.size == 1 || (identity.size < 0 && identity.rank == 0)) return {};
  return Status::error(
      Code::kUnsupported,
      identity.launcher + " (" + identity.said +
          ") has started several processes, each of which would train alone: start "
          "one, or set RONDE_ALONE=1 if they are meant to be alone");
}

Status check_launch(const Identity& identity, std::int64_t ranks, const std::string& mpi) {
  if (ranks != 1 || (identity.size <= 1 && identity.rank <= 0)) return {};
  const std::string several =
      identity.size > 1
          ? std::to_string(identity.size) + " processes were started by "
          : "this process was started as rank " + std::to_string(identity.rank) + " by ";
  return Status::error(
      Code::kUnsupported,
      several + identity.launcher + " (" + identity.said + "), but Ronde's MPI (" + mpi +
          ") knows of this one alone, so each would be a job of its own: start them with the "
          "mpirun of that MPI (srun: --mpi=pmix), or set RONDE_ALONE=1 if they are meant to be "
          "alone");
}

}  // namespace ronde::runtime
