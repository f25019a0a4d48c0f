// SPDX-License-Identifier: Apache-2.0
// The opaque handles of the C ABI as they are inside, and how a Status becomes a ronde_status.
#pragma once

#include <ronde/ronde.h>
#include <sys/types.h>

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "base/status.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/open_line.h"
#include "runtime/engine/prepared.h"
#include "runtime/job/local_job.h"

struct ronde_error {
  ronde_status status;
  std::string message;
  std::string place;
  int32_t rank;
};

struct ronde_local_job {
  std::shared_ptr<ronde::runtime::LocalJob> job;
};

struct ronde_engine {
  std::shared_ptr<ronde::runtime::Engine> engine;  // nullptr on a rank outside of a process set
  pid_t pid;
  std::string outside_of{};  // there: the name of the set
};

struct ronde_buffer {
  std::unique_ptr<ronde::runtime::BoardBuffer> buffer;
};

struct ronde_prepared {
  std::unique_ptr<ronde::runtime::Prepared> prepared;
};

struct ronde_line {
  std::unique_ptr<ronde::runtime::OpenLine> line;
};

struct ronde_work {
  std::shared_ptr<ronde::runtime::Engine> engine;
  ronde::runtime::Engine::WorkPtr work;
};

namespace ronde::bindings {

// The engine of a handle that can be used.
inline base::Result<runtime::Engine*> engine_of(const ronde_engine* handle) {
  if (handle == nullptr) {
    return base::Status::error(base::Code::kInvalidArgument, "engine is a null pointer");
  }
  if (handle->engine != nullptr) return handle->engine.get();
  return base::Status::error(base::Code::kInvalidArgument,
                             "this rank is not in process set '" + handle->outside_of +
                                 "': only the ranks of the set may use it");
}

// Without memory for the text only the code is reported.
inline ronde_status report(const base::Status& status, ronde_error** error) noexcept {
  const auto code = static_cast<ronde_status>(status.code());
  if (status.ok() || error == nullptr) return code;
  try {
    *error = new ronde_error{code, status.message(), status.place(), status.rank().value_or(-1)};
  } catch (...) {
    *error = nullptr;
  }
  return code;
}

inline ronde_status report_thrown(base::Code code, const char* what, ronde_error** error) noexcept {
  if (error != nullptr) *error = nullptr;
  try {
    return report(base::Status::error(code, what), error);
  } catch (...) {  // no memory for the text
    return static_cast<ronde_status>(code);
  }
}

// No exception may leave through the C ABI. What it says goes with the code: the standard library
// throws, say, where no thread can be started.
template <typename F>
ronde_status guarded(ronde_error** error, F&& body) noexcept {
  try {
    return report(std::forward<F>(body)(), error);
  } catch (const std::bad_alloc&) {
    return report_thrown(base::Code::kOutOfMemory, "out of memory", error);
  } catch (const std::system_error& thrown) {
    return report_thrown(base::Code::kSystem, thrown.what(), error);
  } catch (const std::exception& thrown) {
    return report_thrown(base::Code::kInternal, thrown.what(), error);
  } catch (...) {
    return report_thrown(base::Code::kInternal, "what was thrown is no std::exception", error);
  }
}

}  // namespace ronde::bindings
