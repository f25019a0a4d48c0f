// SPDX-License-Identifier: Apache-2.0
// The promises that a simulated negotiation is checked against; part of negotiator_simulation.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "test/property/negotiator_simulation.h"

namespace ronde::runtime {

inline void Simulation::check_batch(const BatchDecision& batch) {
  if (batch.sequence != ++sequence_) problem("the sequence numbers of the batches have a gap");
  if (batch.items.empty()) problem("a batch is empty");
  if (!departed_.empty()) problem("a batch comes after a rank has departed");
  base::Bytes bytes;
  for (const BatchItem& item : batch.items) {
    if (item.entry >= 0 && !plan_.contains(item.entry)) {
      return problem("a batch names entry " + std::to_string(item.entry) + ", which is not bound");
    }
    const std::string& name = item.entry >= 0 ? plan_[item.entry].name : item.name;
    const AgreedTensor& tensor = item.entry >= 0 ? plan_[item.entry].tensor : item.tensor;
    bytes += payload_of(tensor);
    check_item(name, tensor);
  }
  if (batch.items.size() > 1 && bytes > workload_.limit) problem("a batch is above the limit");
}

inline void Simulation::check_item(const std::string& name, const AgreedTensor& tensor) {
  std::set<std::size_t> times;
  for (const Rank& rank : ranks_) {
    if (std::ranges::binary_search(tensor.absent, index_of(rank))) continue;
    const auto found = rank.in_flight.find(name);
    if (found == rank.in_flight.end()) {
      return problem(name + " is in a batch, but not ready on rank " +
                     std::to_string(index_of(rank)));
    }
    times.insert(found->second);
  }
  if (times.size() != 1) return problem(name + " is batched across steps");
  for (const std::int32_t rank : tensor.absent) {
    if (!is_absent(at(rank), name, *times.begin())) {
      problem(name + " goes on without rank " + std::to_string(rank) + ", which takes part");
    }
  }
  if (!batched_.insert({name, *times.begin()}).second) problem(name + " is batched twice");
}

inline void Simulation::check_end() {
  const bool anyone_closed = !workload_.may_close.empty() || !workload_.may_force.empty();
  for (Rank& rank : ranks_) {
    const std::string who = "rank " + std::to_string(index_of(rank));
    if (!rank.in_flight.empty())
      problem(who + " waits for ever for " + rank.in_flight.begin()->first);
    if (rank.closing && !rank.departed) problem(who + " closed its engine and never departs");
    if (rank.joined && !rank.all_joined) problem(who + " has joined, and waits for ever");
    for (const auto& [what, by] : rank.answers) {
      const auto& [name, time] = what;
      const bool executed = std::holds_alternative<BatchDecision>(log_[by]);
      const bool disagree = workload_.disagree[tensor_of(name)][time];
      if (executed && disagree) problem(name + " is executed although the ranks disagree");
      const Signature& is = submitted_signature(name, time, index_of(rank));
      const bool without_root =
          is.operation == Operation::kBroadcast && is_absent(at(is.root), name, time);
      if (executed && without_root) problem(name + " is executed although its root has joined");
      if (!executed && !disagree && !anyone_closed && !without_root) {
        problem(name + " fails without a reason");
      }
      // Closing ranks miss what is decided after they closed.
      if (!executed && anyone_closed) continue;
      for (const Rank& other : ranks_) {
        if (is_absent(other, name, time)) continue;
        const auto theirs = other.answers.find(what);
        if (theirs == other.answers.end() || theirs->second != by) {
          problem(name + ", time " + std::to_string(time) + ", has another answer on rank " +
                  std::to_string(index_of(other)) + " than on " + who);
        }
      }
    }
  }
}

inline std::string Simulation::key() const {
  std::string text = history_ + '|' + words_.text();
  for (const Rank& rank : ranks_) {
    text += '|' + std::to_string(rank.delivered) + (rank.closing ? "c" : "") +
            (rank.forced ? "f" : "") + (rank.joined ? "j" : "");
    for (const auto& [name, time] : rank.in_flight) text += name + '.' + std::to_string(time) + ' ';
    for (const std::size_t count : rank.submitted) text += std::to_string(count) + ' ';
    for (const auto& bytes : rank.announcements) {
      text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
  }
  for (const std::int32_t entry : ready_queue_) text += '#' + std::to_string(entry);
  return text;
}

}  // namespace ronde::runtime
