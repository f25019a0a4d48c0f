// SPDX-License-Identifier: Apache-2.0
// Matching the groups of all ranks by their order, and computing their results on the CPU.
#include "test/device/cuda/fake_hub.h"

#include <cstring>
#include <optional>

#include "collectives/kernels/reduce.h"

namespace ronde::fake {

namespace {

using Kind = Operation::Kind;
using Groups = std::vector<const Group*>;

struct Outcome {
  std::byte* to;
  std::vector<std::byte> bytes;
};

bool is_collective(const Operation& one) {
  return one.kind != Kind::kSend && one.kind != Kind::kReceive;
}

// The n-th one that fits, or nothing.
template <class Fits>
const Operation* find(const Group& group, std::size_t n, Fits fits) {
  for (const Operation& one : group) {
    if (fits(one) && n-- == 0) return &one;
  }
  return nullptr;
}

std::vector<std::byte> bytes_of(const Operation& one) {
  return {one.from, one.from + one.elements * base::size_of(one.dtype)};
}

bool fit_together(const Operation& a, const Operation& b) {
  return a.kind == b.kind && a.elements == b.elements && a.dtype == b.dtype && a.op == b.op &&
         a.multiplier == b.multiplier && a.peer == b.peer;
}

std::optional<Outcome> collective(const Groups& groups, const Operation& mine, int rank,
                                  std::size_t number) {
  std::vector<const std::byte*> sources;
  std::vector<std::byte> bytes;
  for (std::size_t of = 0; of < groups.size(); ++of) {
    const Operation* const its = find(*groups[of], number, is_collective);
    if (its == nullptr || !fit_together(*its, mine)) return std::nullopt;
    sources.push_back(its->from);
    if (its->kind == Kind::kBroadcast && static_cast<int>(of) == its->peer) bytes = bytes_of(*its);
  }
  if (mine.kind == Kind::kBroadcast) return Outcome{mine.to, std::move(bytes)};
  if (mine.kind == Kind::kReduce && mine.peer != rank) return Outcome{nullptr, {}};
  bytes.resize(static_cast<std::size_t>(mine.elements * base::size_of(mine.dtype)));
  std::byte* const to = bytes.data();
  const collectives::Reduction what{
      .dtype = mine.dtype, .op = mine.op, .prescale = mine.multiplier};
  collectives::kernels_for(mine.dtype, mine.op)
      .of_host(sources, {&to, 1}, mine.elements,
               collectives::scaling_of(what, static_cast<int>(sources.size())));
  return Outcome{mine.to, std::move(bytes)};
}

std::optional<Outcome> received(const Groups& groups, const Operation& mine, int rank,
                                std::size_t number) {
  const Group& other = *groups[static_cast<std::size_t>(mine.peer)];
  const Operation* const its = find(other, number, [rank](const Operation& one) {
    return one.kind == Kind::kSend && one.peer == rank;
  });
  if (its == nullptr || its->elements != mine.elements) return std::nullopt;
  return Outcome{mine.to, bytes_of(*its)};
}

// What this rank gets; nothing if the groups do not fit together.
std::optional<std::vector<Outcome>> outcomes(const Groups& groups, int rank) {
  std::vector<Outcome> all;
  std::size_t collectives = 0;
  std::map<int, std::size_t> receives;
  for (const Operation& one : *groups[static_cast<std::size_t>(rank)]) {
    if (one.kind == Kind::kSend) continue;
    auto outcome = one.kind == Kind::kReceive ? received(groups, one, rank, receives[one.peer]++)
                                              : collective(groups, one, rank, collectives++);
    if (!outcome) return std::nullopt;
    all.push_back(std::move(*outcome));
  }
  return all;
}

}  // namespace

bool Hub::run(int rank, std::uint64_t number, const Group& group) {
  std::unique_lock lock(mutex_);
  const auto me = static_cast<std::size_t>(rank);
  if (gone_[me] != 0) return true;
  Meeting& meeting = meetings_[number];
  meeting.groups.resize(static_cast<std::size_t>(size_));
  meeting.groups[me] = &group;
  ++meeting.come;
  changed_.notify_all();
  changed_.wait(lock, [&] { return gone_[me] != 0 || meeting.come == size_; });
  if (meeting.come != size_) {
    // Nobody else will find all there: what this rank brought may go with it.
    meeting.groups[me] = nullptr;
    --meeting.come;
    return true;
  }
  lock.unlock();
  const auto results = outcomes(meeting.groups, rank);
  lock.lock();
  // All have come, so all will have computed: nobody leaves while others read its inputs.
  ++meeting.computed;
  changed_.notify_all();
  changed_.wait(lock, [&] { return meeting.computed == size_; });
  if (++meeting.gone == size_) meetings_.erase(number);
  lock.unlock();
  if (!results) return false;
  for (const Outcome& result : *results) {
    if (result.to != nullptr) std::memcpy(result.to, result.bytes.data(), result.bytes.size());
  }
  return true;
}

void Hub::leave(int rank) {
  {
    const std::lock_guard lock(mutex_);
    gone_[static_cast<std::size_t>(rank)] = 1;
  }
  changed_.notify_all();
}

}  // namespace ronde::fake
