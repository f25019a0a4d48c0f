// SPDX-License-Identifier: Apache-2.0
// Process sets of the C ABI.
#include <ronde/ronde.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "bindings/c/handles.h"
#include "bindings/c/request.h"
#include "runtime/engine/engine.h"

using ronde::base::Status;
using ronde::bindings::engine_of;
using ronde::bindings::guarded;
using ronde::bindings::null_argument;
using ronde::runtime::Engine;

namespace {

std::string place_text(const char* file, int32_t line) {
  if (file == nullptr || *file == '\0') return "";
  const char* const slash = std::strrchr(file, '/');
  return std::string(slash == nullptr ? file : slash + 1) + ":" + std::to_string(line);
}

// A rank outside of the set gets a handle, too.
Status hand_out(ronde::base::Result<std::shared_ptr<Engine>> opened, const std::string& name,
                ronde_engine** set) {
  RONDE_RETURN_IF_ERROR(opened.status());
  const bool outside = *opened == nullptr;
  *set = new ronde_engine{std::move(*opened), ::getpid(), outside ? name : ""};
  return {};
}

}  // namespace

extern "C" {

ronde_status ronde_engine_subset(ronde_engine* engine, const int32_t* ranks, int32_t count,
                                 const char* name, int64_t deadline_ns, const char* file,
                                 int32_t line, ronde_engine** set, ronde_error** error) {
  return guarded(error, [&]() -> Status {
    RONDE_ASSIGN_OR_RETURN(Engine* const whole, engine_of(engine));
    if (ranks == nullptr && count > 0) return null_argument("ranks");
    if (name == nullptr) return null_argument("name");
    if (set == nullptr) return null_argument("set");
    RONDE_ASSIGN_OR_RETURN(const auto deadline, ronde::bindings::deadline_of(name, deadline_ns));
    std::vector<int32_t> listed;
    if (count > 0) listed.assign(ranks, ranks + count);
    return hand_out(whole->subset(std::move(listed), name, place_text(file, line), deadline), name,
                    set);
  });
}

ronde_status ronde_engine_split(ronde_engine* engine, int64_t color, const char* name,
                                const char* file, int32_t line, ronde_engine** set,
                                ronde_error** error) {
  return guarded(error, [&]() -> Status {
    RONDE_ASSIGN_OR_RETURN(Engine* const whole, engine_of(engine));
    if (name == nullptr) return null_argument("name");
    if (set == nullptr) return null_argument("set");
    return hand_out(whole->split(color, name, place_text(file, line)), name, set);
  });
}

int32_t ronde_rank_of_job(const ronde_engine* engine, int32_t rank) {
  if (engine == nullptr || engine->engine == nullptr || rank < 0 ||
      rank >= engine->engine->size()) {
    return -1;
  }
  const std::vector<int32_t>& ranks = engine->engine->ranks_of_job();
  return ranks.empty() ? rank : ranks[static_cast<std::size_t>(rank)];
}

}  // extern "C"
