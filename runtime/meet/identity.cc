// SPDX-License-Identifier: Apache-2.0
// Which of the launchers' words counts, and where they contradict each other.
#include "runtime/meet/identity.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/meet/variables.h"
#include "runtime/meet/words.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

namespace {

using Introduced = Identity::Introduced;
using MaybePoint = Result<std::optional<MeetingPoint>>;

Status refused_identity(const std::string& text) {
  return Status::error(Code::kInvalidArgument, text);
}

Status contradiction(const Word& one, const Word& other) {
  return refused_identity("two launchers contradict each other: " + one.launcher + " (" + one.said +
                          ") and " + other.launcher + " (" + other.said +
                          "); unset the variables of the one that did not start this process");
}

bool contradict(const Word& one, const Word& other) {
  const auto differ = [](std::int32_t a, std::int32_t b) { return a >= 0 && b >= 0 && a != b; };
  return differ(one.rank, other.rank) || differ(one.size, other.size);
}

// What RONDE_MEET names: it goes before the meeting point of any launcher.
MaybePoint chosen_point(std::span<const std::string> environment) {
  const auto text = variable(environment, "RONDE_MEET");
  if (!text) return std::optional<MeetingPoint>();
  auto point = parse_meeting_point("RONDE_MEET", *text);
  RONDE_RETURN_IF_ERROR(point.status());
  return std::optional(std::move(*point));
}

struct Words {
  std::optional<Word> hand;
  std::optional<Word> mpi;
  std::optional<Word> torchrun;
  std::optional<Word> tf_config;
  std::optional<Word> slurm;
};

Result<Words> words_of(std::span<const std::string> environment) {
  Words words;
  const std::pair<std::optional<Word>*, MaybeWord> all[] = {
      {&words.hand, word_of_hand(environment)},
      {&words.mpi, word_of_mpi(environment)},
      {&words.torchrun, word_of_torchrun(environment)},
      {&words.tf_config, word_of_tf_config(environment)},
      {&words.slurm, word_of_slurm(environment)},
  };
  for (const auto& [place, word] : all) {
    // An outer Slurm whose variables make no sense does not matter to what runs inside it.
    if (place == &words.slurm && !word.ok() && (words.hand || words.mpi || words.torchrun))
      continue;
    RONDE_RETURN_IF_ERROR(word.status());
    *place = *word;
  }
  // Where mpirun or srun has started the agents, their variables stay in what an agent starts.
  if (words.torchrun && words.torchrun->by_agent) words.mpi.reset();
  return words;
}

// The word that counts, once no two contradict each other; nullptr: nobody says anything.
Result<const Word*> deciding(const Words& words) {
  std::vector<const Word*> inner;
  for (const auto* word : {&words.hand, &words.mpi, &words.torchrun}) {
    if (*word) inner.push_back(&**word);
  }
  const auto& tf = words.tf_config;
  const bool beside = tf && (tf->of_more_than_ranks || !tf->no_member.empty());
  if (tf && (inner.empty() || !beside)) inner.push_back(&*tf);
  for (std::size_t i = 0; i < inner.size(); ++i) {
    for (std::size_t j = i + 1; j < inner.size(); ++j) {
      if (contradict(*inner[i], *inner[j])) return contradiction(*inner[i], *inner[j]);
    }
  }
  if (!inner.empty()) return inner.front();
  return words.slurm ? &*words.slurm : nullptr;
}

// The meeting point of a job of several ranks whose deciding word is no MPI's.
Result<MeetingPoint> point_for(const Word& word, const Words& words,
                               const std::optional<MeetingPoint>& chosen) {
  if (chosen) return *chosen;
  if (word.point) return *word.point;
  for (const auto* other : {&words.torchrun, &words.tf_config}) {
    if (*other && (*other)->point) return *(*other)->point;
  }
  return refused_identity(word.launcher + " started " + std::to_string(word.size) + " ranks (" +
                          word.said + "), but " + word.no_point);
}

}  // namespace

Result<Identity> identity_of(std::span<const std::string> environment) {
  RONDE_ASSIGN_OR_RETURN(const auto words, words_of(environment));
  RONDE_ASSIGN_OR_RETURN(const auto chosen, chosen_point(environment));
  RONDE_ASSIGN_OR_RETURN(const Word* const word, deciding(words));
  if (word == nullptr) {
    if (!chosen) return Identity();
    return refused_identity(
        "RONDE_MEET=" + text_of(*chosen) +
        " names a meeting point, but nothing says which rank this process is: set "
        "RONDE_RANK and RONDE_SIZE");
  }
  Identity identity{Introduced::kByNobody, word->launcher, word->said, word->rank, word->size, {}};
  const bool mpi = words.mpi && word == &*words.mpi;
  if (mpi) {
    if (chosen) {
      return refused_identity(
          "RONDE_MEET=" + text_of(*chosen) + " names a meeting point, but " + word->launcher +
          " (" + word->said +
          ") introduces the ranks itself: unset RONDE_MEET, or set RONDE_RANK and "
          "RONDE_SIZE too");
    }
    identity.introduced = Introduced::kByMpi;
    return identity;
  }
  if (!word->no_member.empty()) {
    return refused_identity(word->no_member + "; RONDE_MPI=off makes this process a job of one");
  }
  if (word->size == 1) return identity;
  RONDE_ASSIGN_OR_RETURN(identity.point, point_for(*word, words, chosen));
  identity.introduced = Introduced::kAtAMeeting;
  identity.point.one_host = identity.point.one_host || is_loopback(identity.point.host);
  return identity;
}

Status check_launch(const Identity& identity, std::int64_t ranks, const std::string& mpi) {
  if (ranks != 1 || identity.size <= 1) return {};
  return Status::error(
      Code::kUnsupported,
      std::to_string(identity.size) + " processes were started by " + identity.launcher + " (" +
          identity.said + "), but Ronde's MPI (" + mpi +
          ") knows of this one alone, so each would be a job of its own: start them with the "
          "mpirun of that MPI (srun: --mpi=pmix), or set RONDE_MPI=off if they are meant to be "
          "alone");
}

}  // namespace ronde::runtime
