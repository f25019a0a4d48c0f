// SPDX-License-Identifier: Apache-2.0
// Which of the launchers' words counts, and where they contradict each other.
#include "runtime/start/identity.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/process/environment.h"
#include "runtime/start/variables.h"
#include "runtime/start/words.h"

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

Status contradiction(const Word& one, const Word& other) {
  return refused_identity("two launchers contradict each other: " + one.launcher + " (" + one.said +
                          ") and " + other.launcher + " (" + other.said +
                          "); unset the variables of the one that did not start this process");
}

bool agree(const Word& one, const Word& other) {
  return one.size > 0 && one.rank == other.rank && one.size == other.size;
}

bool contradict(const Word& one, const Word& other) {
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

// Everybody who speaks, in the order of launchers(), TF_CONFIG before Slurm, which is the last.
struct Speakers {
  std::vector<Word> words;
  bool with_slurm = false;

  [[nodiscard]] bool is_slurm(const Word& word) const {
    return with_slurm && &word == &words.back();
  }
};

Result<Speakers> speakers_of(Environment environment) {
  Speakers speakers;
  const auto add = [&](MaybeWord word) -> Status {
    RONDE_RETURN_IF_ERROR(word.status());
    if (*word) speakers.words.push_back(*std::move(*word));
    return {};
  };
  const auto all = launchers();
  for (const Launcher& one : all.first(all.size() - 1)) {
    RONDE_RETURN_IF_ERROR(add(word_of(one, environment)));
  }
  // What is around a launcher as a rule (a pod, an allocation) does not matter to it where it makes
  // no sense.
  const bool alone = speakers.words.empty();
  const Status config = add(word_of_tf_config(environment));
  if (alone) RONDE_RETURN_IF_ERROR(config);
  const std::size_t inner = speakers.words.size();
  const Status slurm = add(word_of(all.back(), environment));
  if (inner == 0) RONDE_RETURN_IF_ERROR(slurm);
  speakers.with_slurm = speakers.words.size() > inner;
  return speakers;
}

// Half of the words of a launcher say nothing beside somebody who speaks of several ranks.
Status check_halves(const Speakers& speakers, Environment environment) {
  for (const Word& word : speakers.words) {
    if (word.size != 1) return {};
  }
  for (const Launcher& one : launchers()) {
    const std::string half = half_said(one, environment);
    if (!half.empty()) return refused_identity(half);
  }
  return {};
}

// The word that counts, once no two contradict each other.
class Deciding {
 public:
  Deciding(const Speakers& speakers, Environment environment, const Ancestry& ancestry)
      : speakers_(&speakers) {
    for (const Word& word : speakers.words) {
      distances_.push_back(ancestry.distance_of(word.variables, environment));
    }
  }

  // Its place among the words. Those that agree go by their order: a program that MPI has started
  // tells other libraries so in their words.
  [[nodiscard]] Result<std::size_t> decide() const {
    std::size_t best = 0;
    for (std::size_t i = 1; i < distances_.size(); ++i) {
      const bool nearer = distances_[i] < distances_[best];
      const bool agent = word(i).by_agent && word(best).by_mpi && distances_[i] <= distances_[best];
      if (is_beside(i, best) || !(nearer || agent)) continue;
      if (agent || !agree(word(i), word(best))) best = i;
    }
    for (std::size_t i = 0; i < distances_.size(); ++i) {
      if (is_outside(i, best) || !contradict(word(best), word(i))) continue;
      return contradiction(word(std::min(i, best)), word(std::max(i, best)));
    }
    return best;
  }
  [[nodiscard]] std::size_t distance(std::size_t i) const { return distances_[i]; }

 private:
  [[nodiscard]] const Word& word(std::size_t i) const { return speakers_->words[i]; }
  // TF_CONFIG where it speaks of servers, too, beside a launcher of all of them.
  [[nodiscard]] bool is_beside(std::size_t i, std::size_t best) const {
    return i != best && (word(i).of_more_than_ranks || !word(i).no_member.empty()) &&
           !speakers_->is_slurm(word(best));
  }
  [[nodiscard]] bool is_outside(std::size_t i, std::size_t best) const {
    return i == best || is_beside(i, best) || (word(i).by_mpi && word(best).by_mpi) ||
           distances_[best] < distances_[i];
  }

  const Speakers* speakers_;
  std::vector<std::size_t> distances_;
};

// A rank's child has the words of the rank's launcher. What runs in a launcher that a rank has
// started has words of its own: they are nearer to it than the mark of the rank, or other ones.
Status check_child(Environment environment, std::int64_t pid, const Identity* identity,
                   std::size_t distance, const Ancestry& ancestry) {
  const auto text = variable(environment, RankMark::kVariable);
  const auto mark = text ? RankMark::parse(*text) : std::nullopt;
  if (!mark || mark->pid == pid) return {};
  const std::size_t to_mark = ancestry.distance_of({RankMark::kVariable}, environment);
  const bool other_words = identity != nullptr && words_of(*identity) != mark->said;
  if (identity != nullptr && (distance < to_mark || (distance == to_mark && other_words)))
    return {};
  return Status::error(Code::kUnsupported,
                       "this process (pid " + std::to_string(pid) + ") is a child of rank " +
                           std::to_string(mark->rank) + " of " + std::to_string(mark->size) +
                           " (pid " + std::to_string(mark->pid) +
                           "), and no rank itself: RONDE_ALONE=1 makes it a job of one");
}

// The meeting point of a job of several ranks whose deciding word is no MPI's.
Result<MeetingPoint> point_for(const Word& word, const Speakers& speakers,
                               const std::optional<MeetingPoint>& chosen) {
  if (chosen) return *chosen;
  if (word.point) return *word.point;
  for (const Word& other : speakers.words) {
    if (other.point && !speakers.is_slurm(other) && !contradict(word, other)) return *other.point;
  }
  return refused_identity(word.launcher + " started " + std::to_string(word.size) + " ranks (" +
                          word.said + "), but " + word.no_point);
}

Result<Identity> identity_by(const Word& word, const Speakers& speakers,
                             const std::optional<MeetingPoint>& chosen, Environment environment) {
  Identity identity{Introduced::kByNobody,
                    word.launcher,
                    word.said,
                    word.rank,
                    word.size,
                    {},
                    variable(environment, "RONDE_JOB").value_or(word.job)};
  if (identity.job.size() > kLongestJob) {
    return refused_identity("the name of the job (RONDE_JOB, or what " + word.launcher +
                            " calls it) has " + std::to_string(identity.job.size()) +
                            " characters: set RONDE_JOB to one of at most " +
                            std::to_string(kLongestJob));
  }
  // PMIx says no size; whoever has started the same rank may.
  for (const Word& other : speakers.words) {
    if (identity.size < 0 && other.rank == word.rank && other.size > 0) {
      identity.size = other.size;
      identity.said += " " + other.said;
    }
  }
  if (word.by_mpi) {
    if (chosen) {
      return refused_identity(
          "RONDE_MEET=" + text_of(*chosen) + " names a meeting point, but " + word.launcher + " (" +
          word.said +
          ") introduces the ranks itself: unset RONDE_MEET, or set RONDE_RANK and "
          "RONDE_SIZE too");
    }
    identity.introduced = Introduced::kByMpi;
    return identity;
  }
  if (!word.no_member.empty()) {
    return refused_identity(word.no_member + "; RONDE_ALONE=1 makes this process a job of one");
  }
  if (word.size == 1 && chosen && word.variables.size() == 1) {
    return refused_identity("RONDE_MEET=" + text_of(*chosen) + " names a meeting point, but " +
                            word.said +
                            " says that this process is alone: set RONDE_RANK and RONDE_SIZE");
  }
  if (word.size == 1) return identity;
  RONDE_ASSIGN_OR_RETURN(identity.point, point_for(word, speakers, chosen));
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
  RONDE_ASSIGN_OR_RETURN(const auto speakers, speakers_of(environment));
  RONDE_ASSIGN_OR_RETURN(const auto chosen, chosen_point(environment));
  RONDE_RETURN_IF_ERROR(check_halves(speakers, environment));
  const bool marked = variable(environment, RankMark::kVariable).has_value();
  const Ancestry above = marked || speakers.words.size() > 1 ? ancestry() : Ancestry();
  if (speakers.words.empty()) {
    RONDE_RETURN_IF_ERROR(check_child(environment, pid, nullptr, 0, above));
    if (!chosen) return Identity();
    return refused_identity(
        "RONDE_MEET=" + text_of(*chosen) +
        " names a meeting point, but nothing says which rank this process is: set "
        "RONDE_RANK and RONDE_SIZE");
  }
  const Deciding deciding(speakers, environment, above);
  RONDE_ASSIGN_OR_RETURN(const std::size_t best, deciding.decide());
  const Word& word = speakers.words[best];
  RONDE_ASSIGN_OR_RETURN(auto identity, identity_by(word, speakers, chosen, environment));
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
