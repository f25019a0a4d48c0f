// SPDX-License-Identifier: Apache-2.0
// The timeline of a rank: what its tensors and batches do, and what the program marks, written into
// one trace file by all ranks of a host while the job runs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status.h"
#include "collectives/board/board.h"
#include "collectives/transport/batch_times.h"
#include "runtime/timeline/clock_offset.h"
#include "runtime/timeline/trace.h"
#include "runtime/timeline/trace_file.h"

namespace ronde::runtime {

// While it is off it costs one load for each thing that might be recorded. While it is on events go
// into memory; a thread of its own writes them to the file every so often. What there is no room
// for is lost, and the file says how many events were.
//
// Thread safety: any thread; stop() before the destructor.
class Timeline {
 public:
  struct Place {
    std::int32_t rank = 0;
    std::int32_t host = 0;
    std::int32_t hosts = 1;
    std::string host_name;
  };
  // Which names the file of each host but the first get: "trace.json.host1".
  [[nodiscard]] static std::string path_on(const std::string& path, std::int32_t host);

  // What is passed by reference must outlive the timeline.
  Timeline(Place place, const collectives::Board& board, const base::Clock& clock,
           const base::Log& log);
  ~Timeline() { stop().ignore(); }
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // How far the clock of the first host is ahead of this one's; nothing: it is the same clock. What
  // is recorded from now on goes by that.
  void adjust(const ClockOffset& offset);
  // The phases of batches are measured here; nullptr: nowhere. Before start().
  void set_times(collectives::BatchTimes* times) { times_ = times; }

  // Begins the file, or goes on with that of this job, which other ranks may have begun. Nothing
  // happens where the timeline is on with this path; with another one it is an error
  // (kInvalidArgument). So it is if the file cannot be written; then the timeline stays off.
  // cycles: the beginning of each batch gets a mark of Horovod's name.
  base::Status start(const std::string& path, bool cycles);
  // Writes what has been recorded, and closes the file; ok where it is off. The error if the file
  // could not be written, which has been logged.
  base::Status stop();

  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }
  // Records, if the timeline is on.
  void add(Traced traced);

 private:
  // How many events wait for the writer at most.
  static constexpr std::size_t kMostEvents = std::size_t{1} << 16;

  void run();
  bool take(std::vector<Traced>& events, std::uint64_t& lost);
  base::Status write(const std::vector<Traced>& events, std::uint64_t lost);
  base::Status put_text();
  [[nodiscard]] std::string first_line() const;
  void introduce(std::string& text, const ClockOffset& offset) const;
  base::Status end() RONDE_REQUIRES(starting_);

  const Place place_;
  const collectives::Board& board_;
  const base::Clock& clock_;
  const base::Log& log_;
  collectives::BatchTimes* times_ = nullptr;
  std::atomic<bool> on_{false};

  base::Mutex starting_;  // start() and stop(); taken before the other one
  std::thread writer_ RONDE_GUARDED_BY(starting_);
  // The writer's, while there is one.
  std::optional<TraceFile> file_;
  std::optional<TraceLines> lines_;
  std::string text_;  // lines that are not in the file yet
  base::Status failure_;

  base::Mutex mutex_;
  std::condition_variable_any wake_;
  std::vector<Traced> events_ RONDE_GUARDED_BY(mutex_);
  std::uint64_t lost_ RONDE_GUARDED_BY(mutex_) = 0;
  ClockOffset offset_ RONDE_GUARDED_BY(mutex_);
  bool stopping_ RONDE_GUARDED_BY(mutex_) = false;
};

}  // namespace ronde::runtime
