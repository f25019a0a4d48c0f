// SPDX-License-Identifier: Apache-2.0
// Taking a directory, and finding out whether its owner lives.
#include "bindings/trainer/keep/owner.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <locale>
#include <sstream>
#include <vector>

namespace ronde::trainer {

namespace {

using Life = FileSystem::Life;

constexpr std::string_view kPrefix = "owner-";
// How a record begins. All have one size, so that one write replaces another whole.
constexpr std::string_view kFree = "free  ";
constexpr std::string_view kLocked = "locked";
constexpr std::string_view kNoLock = "nolock";

// Ascending.
std::vector<std::uint64_t> terms_in(FileSystem& files, const std::string& directory) {
  std::vector<std::uint64_t> terms;
  for (const std::string& name : names_in(files, directory)) {
    std::uint64_t term = 0;
    if (!name.starts_with(kPrefix)) continue;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), term);
    if (name == std::string(kPrefix) + std::to_string(term)) terms.push_back(term);
  }
  std::ranges::sort(terms);
  return terms;
}

std::string owner_path(const std::string& directory, std::uint64_t term) {
  return directory + '/' + std::string(kPrefix) + std::to_string(term);
}

// The words of a record: "<state> <beats> <process>".
struct Record {
  explicit Record(const std::string& text) {
    std::istringstream words(text);
    words.imbue(std::locale::classic());
    std::string beats;
    std::getline(words >> begin >> beats >> std::ws, process);
  }
  std::string begin;
  std::string process;
};

// A file that a newer owner has removed is free.
std::string record_of(FileSystem& files, const std::string& path) {
  try {
    return read_file(files, path);
  } catch (const FileError& error) {
    if (error.number() == ENOENT) return std::string(kFree);
    throw;
  }
}

}  // namespace

Owner::Owner(FileSystem& files, const std::string& directory, const OwnerPatience& patience)
    : files_(files), directory_(directory) {
  bool made = false;
  try {
    take_lock(patience);
    while (!made) {
      const auto before = terms_in(files_, directory_);
      const std::uint64_t last = before.empty() ? 0 : before.back();
      const std::string dead = last == 0 ? "" : wait_for_death(last, patience);
      term_ = last + 1;
      const int file = files_.open(path(term_), O_WRONLY | O_CREAT | O_EXCL);
      if (file == -EEXIST) continue;  // another start was faster
      made = file >= 0;
      write(file, locked_ ? kLocked : kNoLock);
      // The earlier owner may live, though it was silent: both look after they have written.
      const std::string now = last == 0 ? dead : record_of(files_, path(last));
      if (now != dead && !now.starts_with(kFree)) refuse(now);
      if (!is_latest(patience)) refuse(sign_of_life(files_, directory_));
      for (const std::uint64_t term : before) remove_path(files_, path(term));
    }
  } catch (...) {
    if (made) static_cast<void>(files_.remove(path(term_)));
    if (lock_ >= 0) files_.close(lock_);
    throw;
  }
}

Owner::~Owner() {
  try {
    if (const int file = files_.open(path(term_), O_WRONLY); file >= 0) write(file, kFree);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the next start finds this process dead
  }
  files_.close(lock_);
}

// This term may be free again because the owner of a later term has removed it; or an owner that
// took this start for dead is about to see that it lives.
bool Owner::is_latest(const OwnerPatience& patience) {
  for (auto waited = std::chrono::milliseconds(0);; waited += patience.look) {
    if (terms_in(files_, directory_).back() == term_) return true;
    if (waited >= patience.ending) return false;
    files_.pause(patience.look);
  }
}

void Owner::take_lock(const OwnerPatience& patience) {
  const std::string path = directory_ + "/lock";
  lock_ = files_.open(path, O_RDWR | O_CREAT);
  if (lock_ < 0) throw FileError(path, -lock_);
  const std::string first = sign_of_life(files_, directory_);
  for (auto waited = std::chrono::milliseconds(0);; waited += patience.look) {
    const int result = files_.lock(lock_);
    locked_ = result == 0;
    if (result != -EAGAIN && result != -EACCES) return;  // or this file system has no locks
    const std::string now = sign_of_life(files_, directory_);
    const bool silent =
        !now.empty() && now == first && files_.life(Record(now).process) == Life::kUnknown;
    if (waited >= (silent ? patience.lease : patience.ending)) refuse(now);
    files_.pause(patience.look);
  }
}

// Returns once the owner of this term has ended, with its last record; throws where it lives.
std::string Owner::wait_for_death(std::uint64_t term, const OwnerPatience& patience) {
  const std::string first = record_of(files_, path(term));
  auto waited = std::chrono::milliseconds(0);
  for (std::string now = first;; now = record_of(files_, path(term))) {
    if (now.starts_with(kFree)) return now;
    const Record record(now);
    const Life life = files_.life(record.process);
    if (life == Life::kDead) return now;
    if (life == Life::kOfThisKernel && record.begin == kLocked && locked_) return now;
    if (life != Life::kAlive && waited >= patience.silence) return now;
    if (life == Life::kAlive ? waited >= patience.ending : now != first) refuse(now);
    files_.pause(patience.look);
    waited += patience.look;
  }
}

void Owner::beat() {
  ++beats_;
  const int file = files_.open(path(term_), O_WRONLY);
  if (file != -ENOENT) write(file, locked_ ? kLocked : kNoLock);
}

bool Owner::holds() {
  const int file = files_.open(path(term_), O_RDONLY);
  if (file == -ENOENT) return false;
  if (file < 0) throw FileError(path(term_), -file);
  files_.close(file);
  return true;
}

std::string Owner::sign_of_life(FileSystem& files, const std::string& directory) {
  const auto terms = terms_in(files, directory);
  const std::string record =
      terms.empty() ? std::string(kFree) : record_of(files, owner_path(directory, terms.back()));
  return record.starts_with(kFree) ? "" : record;
}

// Writes the record of this process, and closes the file.
void Owner::write(int file, std::string_view begin) {
  if (file < 0) throw FileError(path(term_), -file);
  constexpr std::uint64_t kOfOneSize = 1'000'000'000;
  const std::string record = std::string(begin) + ' ' + std::to_string(kOfOneSize + beats_) + ' ' +
                             files_.process() + '\n';
  std::int64_t written = files_.write(file, record);
  if (written >= 0 && written < static_cast<std::int64_t>(record.size())) written = -ENOSPC;
  const std::int64_t error = std::min<std::int64_t>(written, files_.close(file));
  if (error < 0) throw FileError(path(term_), static_cast<int>(-error));
}

std::string Owner::path(std::uint64_t term) const { return owner_path(directory_, term); }

void Owner::refuse(const std::string& by) const {
  std::istringstream words(Record(by).process);
  words.imbue(std::locale::classic());
  std::string host;
  std::string number;
  words >> host >> number;
  throw DataError(directory_ + " is held by another training" +
                      (number.empty() ? "" : " (process " + number + " on host " + host + ')') +
                      ": end that one, or name another directory",
                  kExitConfiguration);
}

}  // namespace ronde::trainer
