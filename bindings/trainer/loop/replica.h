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

// The calls but rank(), size() and is_chief() are collective: every replica makes them in the same
// order, with the same name and count. They block, and throw ronde::Error where the job fails.
//
// Thread safety: belongs to one thread.
class Replica {
 public:
  Replica() = default;
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;
  virtual ~Replica() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  // The chief initialises, prints and saves; the others follow.
  [[nodiscard]] bool is_chief() const { return rank() == 0; }

  // In place, the same result on every replica.
  virtual void allreduce(const std::string& name, std::span<double> numbers, Reduction how) = 0;
  virtual void allreduce(const std::string& name, std::span<float> numbers, Reduction how) = 0;
  // The bytes of every replica, by rank; their counts may differ.
  [[nodiscard]] virtual std::vector<char> allgather(const std::string& name,
                                                    std::span<const char> mine) = 0;
  virtual void broadcast(const std::string& name, std::span<float> numbers, int root) = 0;
  virtual void barrier(const std::string& name) = 0;
  // How long this replica has stood still in the calls above since it was made, in seconds.
  [[nodiscard]] virtual double waited_seconds() const = 0;
  // How long tensors have been on their way since the job began, in seconds.
  [[nodiscard]] virtual double transfer_seconds() const = 0;
};

// A rank of a Ronde job.
class EngineReplica final : public Replica {
 public:
  // The engine must outlive this object, and be open. Where ranks share memory (the variables of
  // CentralStorage) a broadcast writes nothing that is there already.
  explicit EngineReplica(Engine& engine, bool shares_memory = false)
      : engine_(engine),
        rank_(engine.rank()),
        size_(engine.size()),
        shares_memory_(shares_memory) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  void allreduce(const std::string& name, std::span<double> numbers, Reduction how) override;
  void allreduce(const std::string& name, std::span<float> numbers, Reduction how) override;
  [[nodiscard]] std::vector<char> allgather(const std::string& name,
                                            std::span<const char> mine) override;
  void broadcast(const std::string& name, std::span<float> numbers, int root) override;
  void barrier(const std::string& name) override;
  [[nodiscard]] double waited_seconds() const override { return waited_seconds_; }
  [[nodiscard]] double transfer_seconds() const override;

 private:
  template <typename Call>
  auto timed(const Call& call);

  Engine& engine_;
  int rank_;
  int size_;
  bool shares_memory_;
  double waited_seconds_ = 0.0;
};

}  // namespace ronde::trainer
