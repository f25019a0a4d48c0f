// SPDX-License-Identifier: Apache-2.0
#include "runtime/timeline/timeline.h"

#include <chrono>
#include <utility>

#include "base/process/own_thread.h"

namespace ronde::runtime {

using base::MutexLock;
using base::Status;

namespace {

// How often the writer writes; sooner where half of the room is used.
constexpr auto kInterval = std::chrono::milliseconds(100);

// So much text is written at once: what SIGKILL cuts short is no more than that and what has been
// recorded since, and the memory of the text stays in the caches.
constexpr std::size_t kPiece = std::size_t{256} << 10;

}  // namespace

std::string Timeline::path_on(const std::string& path, std::int32_t host) {
  return host == 0 ? path : path + ".host" + std::to_string(host);
}

Timeline::Timeline(Place place, const collectives::Board& board, const base::Clock& clock,
                   const base::Log& log)
    : place_(std::move(place)), board_(board), clock_(clock), log_(log) {}

// The process of the leader names the job on this host: all ranks know it from the board, and no
// later process is the same.
std::string Timeline::first_line() const {
  const collectives::Presence leader = board_.presence(0);
  return R"({"name":"ronde_job","ph":"M","pid":0,"tid":0,"args":{"job":")" +
         std::to_string(leader.pid) + "-" + std::to_string(leader.start_time) + R"("}})";
}

void Timeline::introduce(std::string& text, const ClockOffset& offset) const {
  const auto about = [&](std::string_view kind, const std::string& arguments) {
    lines_->append_about(text, kind, arguments);
  };
  const std::string rank = std::to_string(place_.rank);
  about("process_name", "\"name\":" + json_text("rank " + rank + " on host " + place_.host_name));
  about("process_sort_index", "\"sort_index\":" + rank);
  const auto epoch = std::chrono::system_clock::now().time_since_epoch();
  about("start_time_since_epoch_in_micros",
        "\"value\":" +
            std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(epoch).count()));
  about("clock", "\"host\":" + std::to_string(place_.host) +
                     ",\"hosts\":" + std::to_string(place_.hosts) + "," + arguments_of(offset));
}

Status Timeline::start(const std::string& path, bool cycles) {
  const MutexLock lock(starting_);
  if (writer_.joinable() && on()) {
    if (file_->path() == path_on(path, place_.host)) return {};
    return Status::error(base::Code::kInvalidArgument,
                         "a timeline is being written to '" + file_->path() + "': stop it first");
  }
  if (writer_.joinable()) end().ignore();  // its file could not be written, which was logged
  RONDE_ASSIGN_OR_RETURN(file_, TraceFile::open(path_on(path, place_.host), first_line()));
  ClockOffset offset;
  {
    const MutexLock events(mutex_);
    events_.clear();
    lost_ = 0;
    stopping_ = false;
    offset = offset_;
  }
  lines_.emplace(place_.rank, offset.offset, cycles);
  failure_ = {};
  std::string text;
  introduce(text, offset);
  RONDE_RETURN_IF_ERROR(file_->append(text));
  RONDE_ASSIGN_OR_RETURN(writer_, base::start_thread("the timeline's thread", [this] { run(); }));
  if (times_ != nullptr) times_->measure_with(&clock_);
  on_.store(true, std::memory_order_relaxed);
  return {};
}

Status Timeline::stop() {
  const MutexLock lock(starting_);
  if (!writer_.joinable()) return {};
  return end();
}

Status Timeline::end() {
  on_.store(false, std::memory_order_relaxed);
  if (times_ != nullptr) times_->measure_with(nullptr);
  {
    const MutexLock events(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  writer_.join();
  file_.reset();
  return failure_;
}

void Timeline::adjust(const ClockOffset& offset) {
  {
    const MutexLock lock(mutex_);
    offset_ = offset;
  }
  add(TracedClocks{offset, clock_.now()});
}

void Timeline::add(Traced traced) {
  if (!on()) return;
  bool urgent = false;
  {
    const MutexLock lock(mutex_);
    if (events_.size() >= kMostEvents) {
      ++lost_;
      return;
    }
    events_.push_back(std::move(traced));
    urgent = events_.size() == kMostEvents / 2;
  }
  if (urgent) wake_.notify_one();
}

// ---- the writer's thread ----

void Timeline::run() {
  std::vector<Traced> events;
  std::uint64_t lost = 0;
  for (bool more = true; more;) {
    more = take(events, lost);
    const bool writes = failure_.ok();
    if (writes) failure_ = write(events, lost);
    events.clear();
    if (!writes || failure_.ok()) continue;
    on_.store(false, std::memory_order_relaxed);
    if (times_ != nullptr) times_->measure_with(nullptr);
    log_.error(failure_.message() + ": the timeline ends here, and the job goes on without it");
  }
}

// Waits for what there is to write; false: it is the last.
bool Timeline::take(std::vector<Traced>& events, std::uint64_t& lost) {
  const MutexLock lock(mutex_);
  if (!stopping_) wake_.wait_for(mutex_, kInterval);
  std::swap(events, events_);
  lost = std::exchange(lost_, 0);
  return !stopping_;
}

Status Timeline::write(const std::vector<Traced>& events, std::uint64_t lost) {
  for (const Traced& traced : events) {
    lines_->append(text_, traced);
    if (text_.size() >= kPiece) RONDE_RETURN_IF_ERROR(put_text());
  }
  if (lost > 0) lines_->append(text_, TracedLoss{lost, clock_.now()});
  return put_text();
}

Status Timeline::put_text() {
  Status written = file_->append(text_);
  text_.clear();
  return written;
}

}  // namespace ronde::runtime
