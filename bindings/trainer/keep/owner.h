// SPDX-License-Identifier: Apache-2.0
// The owner of a directory: at most one training at a time, also in one process, on other hosts,
// and on file systems without locks.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "bindings/trainer/keep/file_system.h"

namespace ronde::trainer {

// How long a start waits to find out whether another owner lives.
struct OwnerPatience {
  std::chrono::milliseconds ending = std::chrono::seconds(10);   // for an owner that may end now
  std::chrono::milliseconds silence = std::chrono::seconds(30);  // for an owner on another host
  // How long a silent owner on another host may have the lock: a file server keeps it for a host
  // that died.
  std::chrono::milliseconds lease = std::chrono::seconds(120);
  std::chrono::milliseconds look = std::chrono::milliseconds(100);
};

// The file `lock` is locked while its owner lives, where the file system has locks. Besides, each
// owner makes a file `owner-<term>`, of a higher term than all before; the highest one names the
// owner, or is "free", and only the next owner removes it. Since a term is made with O_EXCL, two
// starts cannot have the same. A start takes the directory of an earlier owner if
// - its file is "free", or its process is dead, or
// - it had the lock, of this same kernel, and now this start has it, or
// - its file has not changed for `silence`: a living owner calls beat() three times as often.
// A living owner that was taken for dead finds its file gone: holds() is false. If two start at the
// same moment, one gets the directory; without locks both may be refused.
//
// Thread safety: any thread may call beat() and holds().
class Owner {
 public:
  // Throws DataError, which names the owner, if another one has the directory; and FileError.
  Owner(FileSystem& files, const std::string& directory, const OwnerPatience& patience = {});
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner();

  static constexpr std::chrono::seconds kBetweenBeats{10};
  void beat();
  [[nodiscard]] bool holds();
  // Unique among all owners of this directory.
  [[nodiscard]] std::uint64_t term() const noexcept { return term_; }
  [[nodiscard]] bool locked() const noexcept { return locked_; }

  // The latest owner's record, which changes while the owner lives; empty: there is no owner now.
  [[nodiscard]] static std::string sign_of_life(FileSystem& files, const std::string& directory);

 private:
  void take_lock(const OwnerPatience& patience);
  [[nodiscard]] bool is_latest(const OwnerPatience& patience);
  std::string wait_for_death(std::uint64_t term, const OwnerPatience& patience);
  void write(int file, std::string_view begin);
  [[nodiscard]] std::string path(std::uint64_t term) const;
  [[noreturn]] void refuse(const std::string& by) const;

  FileSystem& files_;
  const std::string directory_;
  int lock_ = -1;
  bool locked_ = false;
  std::uint64_t term_ = 0;
  std::uint64_t beats_ = 0;
};

}  // namespace ronde::trainer
