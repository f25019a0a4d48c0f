// SPDX-License-Identifier: Apache-2.0
// A disk in memory, and processes that use it: each call may fail, end its process, or be the last
// before the power goes.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/trainer/keep/file_system.h"

namespace ronde::trainer {

// What is on the disk, now and after a power cut: names and bytes last once they are synced. A copy
// is a disk of its own, with the same files open.
class DiskModel {
 public:
  struct Node {
    bool is_directory = false;
    std::string bytes;
    std::string synced_bytes;
    std::map<std::string, std::shared_ptr<Node>> entries;
    std::map<std::string, std::shared_ptr<Node>> synced_entries;
    int locked_by = -1;  // an open file
  };
  struct Open {
    std::shared_ptr<Node> node;
    std::string path;
    std::size_t at = 0;
    int process = 0;
  };

  DiskModel() : root_(std::make_shared<Node>()) { root_->is_directory = true; }
  DiskModel(const DiskModel& other)
      : open_files(other.open_files), next_random(other.next_random), has_locks(other.has_locks) {
    std::map<const Node*, std::shared_ptr<Node>> copies;
    root_ = copy_of(other.root_, copies);
    for (auto& [file, open] : open_files) open.node = copy_of(open.node, copies);
  }
  DiskModel& operator=(const DiskModel&) = delete;

  // Null: there is none.
  [[nodiscard]] std::shared_ptr<Node> find(const std::string& path) const {
    std::shared_ptr<Node> node = root_;
    for (const std::string& name : split(path)) {
      if (!node->is_directory) return nullptr;
      const auto next = node->entries.find(name);
      if (next == node->entries.end()) return nullptr;
      node = next->second;
    }
    return node;
  }
  static std::vector<std::string> split(const std::string& path) {
    std::vector<std::string> names;
    for (std::size_t at = 0; at < path.size();) {
      const std::size_t end = std::min(path.find('/', at), path.size());
      if (end > at) names.push_back(path.substr(at, end - at));
      at = end + 1;
    }
    return names;
  }
  // The directory that is to have the name; null where it is missing.
  [[nodiscard]] std::pair<std::shared_ptr<Node>, std::string> place(const std::string& path) const {
    const std::size_t slash = path.rfind('/');
    return {find(path.substr(0, slash)), path.substr(slash + 1)};
  }

  // As where a process has ended.
  void close_files_of(int process) {
    for (auto open = open_files.begin(); open != open_files.end();) {
      open = open->second.process == process ? close(open) : std::next(open);
    }
  }
  std::map<int, Open>::iterator close(std::map<int, Open>::iterator open) {
    if (open->second.node->locked_by == open->first) open->second.node->locked_by = -1;
    return open_files.erase(open);
  }
  void cut_power() { forget(*root_); }

  // Whether the locks are shown as they are, or as if all who have one had ended.
  enum class Locks : std::uint8_t { kHeld, kOpened };

  // What can be seen of all files, as text, and what would be after a power cut.
  [[nodiscard]] std::string shown(Locks locks = Locks::kHeld) const {
    std::string text;
    show(*root_, "", locks, text);
    return text;
  }
  [[nodiscard]] std::string synced() const {
    std::string text;
    show_synced(*root_, "", text);
    return text;
  }
  [[nodiscard]] std::string shown_with_synced() const {
    return shown() + "--- synced\n" + synced();
  }

  std::map<int, Open> open_files;
  std::uint64_t next_random = 1;
  bool has_locks = true;

 private:
  static std::shared_ptr<Node> copy_of(const std::shared_ptr<Node>& node,
                                       std::map<const Node*, std::shared_ptr<Node>>& copies) {
    auto& copy = copies[node.get()];
    if (copy) return copy;
    const auto made = copy = std::make_shared<Node>(*node);
    for (auto& [name, entry] : made->entries) entry = copy_of(entry, copies);
    for (auto& [name, entry] : made->synced_entries) entry = copy_of(entry, copies);
    return made;
  }
  static void forget(Node& node) {
    node.bytes = node.synced_bytes;
    node.entries = node.synced_entries;
    node.locked_by = -1;
    for (const auto& [name, entry] : node.entries) forget(*entry);
  }
  static void show(const Node& node, const std::string& path, Locks locks, std::string& text) {
    show_itself(node, node.bytes, path, text);
    if (node.locked_by >= 0 && locks == Locks::kHeld) text += "locked\n";
    for (const auto& [name, entry] : node.entries) show(*entry, path + '/' + name, locks, text);
  }
  static void show_synced(const Node& node, const std::string& path, std::string& text) {
    show_itself(node, node.synced_bytes, path, text);
    for (const auto& [name, entry] : node.synced_entries)
      show_synced(*entry, path + '/' + name, text);
  }
  static void show_itself(const Node& node, const std::string& bytes, const std::string& path,
                          std::string& text) {
    text += node.is_directory ? path + "/\n" : path + '=' + bytes + '\n';
  }

  std::shared_ptr<Node> root_;
};

// Thrown out of the call in which a process is killed.
struct Killed {};

// A call that is about to be made, and what becomes of it.
struct Call {
  const char* name;
  const std::string& path;
};
struct Fate {
  int error = 0;  // fails with this, an errno
  bool kill = false;
  bool cut_power = false;  // kills as well
  bool halves = false;     // a write takes half of its bytes, and says so
};

// A mistake of the protocol, which its model must find.
enum class Mistake : std::uint8_t {
  kNone,
  kNoSync,         // what is written is not synced before it gets its name
  kNotExclusive,   // two may make the same owner's file
  kUnreadableGone  // what may not be read is taken for missing
};

// The disk as one process sees it. Once it is killed its calls do nothing, so that what unwinds
// leaves no traces.
class ProcessModel final : public FileSystem {
 public:
  using Decide = std::function<Fate(const Call&)>;
  using Lives = std::function<Life(int process)>;

  ProcessModel(DiskModel& disk, int number, Decide decide, Lives lives,
               Mistake mistake = Mistake::kNone)
      : disk_(disk),
        number_(number),
        decide_(std::move(decide)),
        lives_(std::move(lives)),
        mistake_(mistake) {}

  int open(const std::string& path, int flags) override {
    if (mistake_ == Mistake::kNotExclusive) flags &= ~O_EXCL;
    const int error = before("open", path);
    if (error == -EACCES && mistake_ == Mistake::kUnreadableGone) return -ENOENT;
    if (error != 0) return error;
    auto node = disk_.find(path);
    if (node && (flags & O_EXCL) != 0) return -EEXIST;
    if (!node && (flags & O_CREAT) == 0) return -ENOENT;
    if (!node) {
      const auto [directory, name] = disk_.place(path);
      if (!directory) return -ENOENT;
      node = directory->entries[name] = std::make_shared<DiskModel::Node>();
    }
    if ((flags & O_DIRECTORY) != 0 && !node->is_directory) return -ENOTDIR;
    if ((flags & O_TRUNC) != 0) node->bytes.clear();
    int file = number_ * 1000;
    while (disk_.open_files.contains(file)) ++file;
    disk_.open_files[file] = {node, path, 0, number_};
    return file;
  }
  std::int64_t size(int file) override {
    if (const int error = before("size", file)) return error;
    return static_cast<std::int64_t>(opened(file).node->bytes.size());
  }
  std::int64_t read(int file, char* bytes, std::size_t size) override {
    if (const int error = before("read", file)) return error;
    DiskModel::Open& one = opened(file);
    const std::string_view rest = std::string_view(one.node->bytes).substr(one.at).substr(0, size);
    std::copy(rest.begin(), rest.end(), bytes);
    one.at += rest.size();
    return static_cast<std::int64_t>(rest.size());
  }
  // A disk that is full takes half of it.
  std::int64_t write(int file, std::string_view bytes) override {
    halves_ = false;
    const int error = before("write", file);
    if (error != 0 && error != -ENOSPC) return error;
    if (error == -ENOSPC || halves_) bytes = bytes.substr(0, bytes.size() / 2);
    DiskModel::Open& one = opened(file);
    std::string& all = one.node->bytes;
    all.replace(std::min(one.at, all.size()), bytes.size(), bytes);
    one.at += bytes.size();
    return error != 0 ? error : static_cast<std::int64_t>(bytes.size());
  }
  int sync(int file) override {
    DiskModel::Node* const node = dead_ ? nullptr : opened(file).node.get();
    const bool directory = node != nullptr && node->is_directory;
    if (const int error = before(directory ? "sync of a directory" : "sync", file)) return error;
    if (mistake_ == Mistake::kNoSync && !directory) return 0;
    node->synced_bytes = node->bytes;
    node->synced_entries = node->entries;
    return 0;
  }
  int close(int file) override {
    if (dead_ || file < 0) return 0;
    int error = 0;
    try {
      error = before("close", file);
    } catch (const Killed&) {  // in a destructor, from which nothing is thrown
      return 0;
    }
    disk_.close(disk_.open_files.find(file));
    return error;
  }
  int make_directory(const std::string& path) override {
    if (const int error = before("mkdir", path)) return error;
    if (disk_.find(path)) return -EEXIST;
    const auto [directory, name] = disk_.place(path);
    if (!directory) return -ENOENT;
    auto node = std::make_shared<DiskModel::Node>();
    node->is_directory = true;
    directory->entries[name] = std::move(node);
    return 0;
  }
  int rename(const std::string& from, const std::string& to) override {
    if (const int error = before("rename", from)) return error;
    const auto node = disk_.find(from);
    if (!node) return -ENOENT;
    const auto there = disk_.find(to);
    if (there && there->is_directory && !there->entries.empty()) return -ENOTEMPTY;
    const auto [old_place, old_name] = disk_.place(from);
    const auto [new_place, new_name] = disk_.place(to);
    old_place->entries.erase(old_name);
    new_place->entries[new_name] = node;
    return 0;
  }
  int remove(const std::string& path) override {
    if (const int error = before("remove", path)) return error;
    const auto node = disk_.find(path);
    if (!node) return -ENOENT;
    if (!node->entries.empty()) return -ENOTEMPTY;
    const auto [directory, name] = disk_.place(path);
    directory->entries.erase(name);
    return 0;
  }
  int list(const std::string& path, std::vector<std::string>& names) override {
    names.clear();
    if (const int error = before("list", path)) return error;
    const auto node = disk_.find(path);
    if (!node) return -ENOENT;
    for (const auto& [name, entry] : node->entries) names.push_back(name);
    return 0;
  }
  int lock(int file) override {
    if (const int error = before("lock", file)) return error;
    if (!disk_.has_locks) return -ENOLCK;
    int& owner = opened(file).node->locked_by;
    if (owner >= 0 && owner != file) return -EAGAIN;
    owner = file;
    return 0;
  }

  static std::string name_of(int process) {
    return "host " + std::to_string(process) + " 0 kernel";
  }
  std::string process() override { return name_of(number_); }
  Life life(const std::string& process) override {
    const std::size_t blank = process.find(' ');
    return blank == std::string::npos ? Life::kUnknown : lives_(std::stoi(process.substr(blank)));
  }
  void pause(std::chrono::milliseconds /*span*/) override {
    static_cast<void>(before("pause", std::string()));
  }
  std::uint64_t random() override { return disk_.next_random++; }

  // The process has ended, with its files still open or not.
  void die() {
    dead_ = true;
    disk_.close_files_of(number_);
  }
  [[nodiscard]] int calls() const { return calls_; }

 private:
  DiskModel::Open& opened(int file) { return disk_.open_files.at(file); }
  int before(const char* name, int file) {
    return dead_ ? -EIO : before(name, std::string(opened(file).path));
  }
  int before(const char* name, const std::string& path) {
    if (dead_) return -EIO;
    ++calls_;
    const Fate fate = decide_({name, path});
    halves_ = fate.halves;
    if (fate.kill || fate.cut_power) {
      die();
      if (fate.cut_power) disk_.cut_power();
      throw Killed{};
    }
    return -fate.error;
  }

  DiskModel& disk_;
  const int number_;
  const Decide decide_;
  const Lives lives_;
  const Mistake mistake_;
  int calls_ = 0;
  bool dead_ = false;
  bool halves_ = false;
};

}  // namespace ronde::trainer
