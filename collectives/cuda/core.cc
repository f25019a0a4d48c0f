// SPDX-License-Identifier: Apache-2.0
// How streams are made and drained, how the doorbell is rung from a stream, and the first failure.
#include "collectives/cuda/core.h"

#include <chrono>
#include <memory>
#include <thread>

namespace ronde::collectives::cuda {

using base::Status;

void Doorbell::ring() {
  const std::lock_guard lock(mutex_);
  if (!silent_) host_.ring(host_.context);
}

void Doorbell::log(int level, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (!silent_) host_.log(host_.context, level, text.c_str());
}

void Doorbell::silence() {
  const std::lock_guard lock(mutex_);
  silent_ = true;
}

bool Failure::give_up(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (given_up_.load()) return false;
  why_ = why;
  since_ = base::SteadyClock().now();
  given_up_.store(true);
  return true;
}

std::string Failure::why() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

Status Failure::status() const { return Status::error(base::Code::kPeerFailed, why()); }

void Failure::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_.store(true);
  }
  changed_.notify_all();
}

bool Failure::has_lasted(base::Nanoseconds time) const {
  if (!given_up_.load()) return false;
  const std::lock_guard lock(mutex_);
  return base::SteadyClock().now() - since_ >= time;
}

void Failure::wait_for_end(base::Nanoseconds longest) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, longest, [this] { return ended_.load(); });
}

Status Core::make_streams() {
  for (Stream* const stream : streams()) {
    RONDE_ASSIGN_OR_RETURN(*stream, cuda->make_stream());
  }
  return {};
}

Status Core::ring_after(Event done, Stream chime_of) {
  RONDE_RETURN_IF_ERROR(cuda->wait(chime_of, done));
  // The call of the host owns its doorbell, and leaks it if the device fails before the call is
  // made.
  auto owner = std::make_unique<std::shared_ptr<Doorbell>>(bell);
  RONDE_RETURN_IF_ERROR(cuda->call(
      chime_of,
      [](void* argument) {
        const std::unique_ptr<std::shared_ptr<Doorbell>> mine(
            static_cast<std::shared_ptr<Doorbell>*>(argument));
        (*mine)->ring();
      },
      owner.get()));
  [[maybe_unused]] const auto* const given = owner.release();
  return {};
}

bool Core::drain(base::Nanoseconds longest) {
  const base::SteadyClock clock;
  const base::Instant end = stuck_.load() ? clock.now() : clock.after(longest);
  for (Stream* const stream : streams()) {
    while (*stream != nullptr) {
      const auto idle = cuda->is_idle(*stream);
      // A stream that has failed runs nothing any more.
      if (!idle.ok() || *idle) break;
      if (clock.now() >= end) {
        stuck_.store(true);
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return true;
}

Core::~Core() {
  try {
    free_everything();
  } catch (...) {
    // There is no memory for the text of an error; what is left is freed with the process.
    stuck_.store(true);
  }
}

void Core::free_everything() {
  bell->silence();
  const DeviceScope scope(*cuda);
  // A copy under way writes into memory of the caller, so this rather waits than frees it.
  if (!scope.status().ok() || !drain(shutdown_timeout)) return;
  for (Stream* const stream : streams()) {
    if (*stream != nullptr) cuda->destroy_stream(*stream);
  }
  pools->clear();
}

}  // namespace ronde::collectives::cuda
