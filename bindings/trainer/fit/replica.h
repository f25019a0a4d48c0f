// SPDX-License-Identifier: Apache-2.0
// One of the processes that train together, as the loop sees it.
#pragma once

#include <cstdint>
#include <ronde/ronde.hpp>
#include <span>
#include <string>
#include <vector>

namespace ronde::trainer {

// Since some fixed point, never backwards.
[[nodiscard]] double steady_seconds();

enum class Reduction : std::uint8_t { kSum, kMax };

// A rank of a Ronde job. The calls but rank(), size() and is_chief() are collective: every replica
// makes them in the same order, with the same name and count. They block, and throw ronde::Error
// where the job fails.
//
// Thread safety: belongs to one thread.
class Replica {
 public:
  // The engine must outlive this object, and be open. Where ranks share memory (the variables of
  // CentralStorage) a broadcast writes nothing that is there already. Of tasks that share variables
  // on servers, each a job of its own, one is the chief.
  explicit Replica(Engine& engine, bool shares_memory = false, bool may_be_chief = true)
      : engine_(engine),
        rank_(engine.rank()),
        size_(engine.size()),
        shares_memory_(shares_memory),
        is_chief_(rank_ == 0 && may_be_chief) {}
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  // The chief initialises, prints and saves; the others follow.
  [[nodiscard]] bool is_chief() const noexcept { return is_chief_; }

  // In place, the same result on every replica.
  void allreduce(const std::string& name, std::span<double> numbers, Reduction how);
  void allreduce(const std::string& name, std::span<float> numbers, Reduction how);
  // The bytes of every replica, by rank; their counts may differ.
  [[nodiscard]] std::vector<char> allgather(const std::string& name, std::span<const char> mine);
  void broadcast(const std::string& name, std::span<float> numbers, int root);
  void barrier(const std::string& name);
  // How long this replica has stood still in the calls above since it was made, in seconds.
  [[nodiscard]] double waited_seconds() const noexcept { return waited_seconds_; }
  // How long tensors have been on their way since the job began, in seconds.
  [[nodiscard]] double transfer_seconds() const;

 private:
  template <typename Call>
  auto timed(const Call& call);

  Engine& engine_;
  int rank_;
  int size_;
  bool shares_memory_;
  bool is_chief_;
  double waited_seconds_ = 0.0;
};

}  // namespace ronde::trainer
