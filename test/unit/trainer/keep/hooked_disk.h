// SPDX-License-Identifier: Apache-2.0
// The real disk, which can be made to fail, to hang, and to let time pass at once.
#pragma once

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/trainer/keep/file_system.h"

namespace ronde::trainer {

// Thread safety: any thread may call.
class HookedDisk final : public FileSystem {
 public:
  // Called before each system call, with its name ("open", "write", "sync", ..., and "pause", which
  // passes at once); what it returns is the errno with which the call fails, or 0. It may block.
  using Hook = std::function<int(std::string_view call, const std::string& path)>;

  explicit HookedDisk(Hook hook) : hook_(std::move(hook)) {}
  HookedDisk(const HookedDisk&) = delete;
  HookedDisk& operator=(const HookedDisk&) = delete;
  // Waits for threads that were left alone with an open file.
  ~HookedDisk() override {
    std::unique_lock lock(mutex_);
    all_closed_.wait(lock, [this] { return paths_.empty(); });
  }

  int open(const std::string& path, int flags) override {
    if (const int error = hook_("open", path)) return -error;
    const int file = disk().open(path, flags);
    const std::lock_guard lock(mutex_);
    if (file >= 0) paths_[file] = path;
    return file;
  }
  std::int64_t size(int file) override { return disk().size(file); }
  std::int64_t read(int file, char* bytes, std::size_t size) override {
    if (const int error = hook_("read", path_of(file))) return -error;
    return disk().read(file, bytes, size);
  }
  std::int64_t write(int file, std::string_view bytes) override {
    if (const int error = hook_("write", path_of(file))) return -error;
    return disk().write(file, bytes);
  }
  int sync(int file) override {
    if (const int error = hook_("sync", path_of(file))) return -error;
    return disk().sync(file);
  }
  int close(int file) override {
    const std::lock_guard lock(mutex_);
    paths_.erase(file);
    const int result = disk().close(file);
    if (paths_.empty()) all_closed_.notify_all();
    return result;
  }
  int make_directory(const std::string& path) override {
    if (const int error = hook_("make_directory", path)) return -error;
    return disk().make_directory(path);
  }
  int rename(const std::string& from, const std::string& to) override {
    if (const int error = hook_("rename", to)) return -error;
    return disk().rename(from, to);
  }
  int remove(const std::string& path) override {
    if (const int error = hook_("remove", path)) return -error;
    return disk().remove(path);
  }
  int list(const std::string& path, std::vector<std::string>& names) override {
    if (const int error = hook_("list", path)) return -error;
    return disk().list(path, names);
  }
  int lock(int file) override {
    if (const int error = hook_("lock", path_of(file))) return -error;
    return disk().lock(file);
  }
  std::string process() override { return disk().process(); }
  Life life(const std::string& process) override { return disk().life(process); }
  std::uint64_t random() override { return disk().random(); }
  void pause(std::chrono::milliseconds /*span*/) override { hook_("pause", ""); }

 private:
  std::string path_of(int file) {
    const std::lock_guard lock(mutex_);
    return paths_[file];
  }

  const Hook hook_;
  std::mutex mutex_;
  std::condition_variable all_closed_;
  std::map<int, std::string> paths_;  // of open files
};

// A disk on which all is well, but for the time: a wait is over at once.
inline int nothing_fails(std::string_view /*call*/, const std::string& /*path*/) { return 0; }

}  // namespace ronde::trainer
