// SPDX-License-Identifier: Apache-2.0
// Who has a directory: at most one training at a time, also in one process, on other hosts, and on
// file systems without locks.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "bindings/trainer/keep/file_system.h"

namespace ronde::trainer {

// How long a start waits for what it cannot know.
struct OwnerPatience {
  std::chrono::milliseconds ending = std::chrono::seconds(10);   // another that is about to end
  std::chrono::milliseconds silence = std::chrono::seconds(30);  // of one on another host
  // How long a silent owner on another host may have the lock: a file server keeps it for a host
  // that died.
  std::chrono::milliseconds lease = std::chrono::seconds(120);
  std::chrono::milliseconds look = std::chrono::milliseconds(100);
};

// The file `lock` is locked while its owner lives, where the file system has locks. Besides, each
// owner makes a file `owner-<term>`, of a higher term than all before; the highest one tells who
// has the directory, or that it is free, and is never removed but by the next. Since a term is made
// with O_EXCL, two starts cannot have the same. What an owner has left is taken over when
// - it says "free", or its process is dead, or
// - it had the lock, which bites here too (the same kernel), and now this start has it, or
// - it has not changed for `silence`: its owner calls beat() three times as often.
// An owner that was taken for dead and was not finds its file gone: holds() is false. Of two starts
// at the same moment one has the directory; without locks it may be that both are refused.
//
// Thread safety: any thread may call beat() and holds().
class Owner {
 public:
  // Throws DataError where another one has the directory (which, and what to do), and FileError.
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

  // What the latest owner has last said, which changes while it lives; empty: there is none now.
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
