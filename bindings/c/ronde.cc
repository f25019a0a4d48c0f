// SPDX-License-Identifier: Apache-2.0
// The C ABI over the runtime's engine: errors, engines and works. The operations are in
// operations.cc.
#include <ronde/ronde.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/process/environment.h"
#include "base/status.h"
#include "bindings/c/handles.h"
#include "bindings/c/request.h"
#include "collectives/transport/program.h"
#include "runtime/engine/engine.h"
#include "runtime/job/job.h"
#include "runtime/job/local_job.h"
#include "runtime/meet/store.h"
#include "runtime/start/identity.h"

using ronde::base::Code;
using ronde::base::Result;
using ronde::base::Status;
using ronde::bindings::defaults_of;
using ronde::bindings::engine_of;
using ronde::bindings::guarded;
using ronde::bindings::init_sized;
using ronde::bindings::null_argument;
using ronde::bindings::read_struct;
using ronde::collectives::MpiFamily;
using ronde::collectives::ProgramCommunicator;
using ronde::runtime::Engine;

// The codes of the C ABI and of the runtime must have the same values.
static_assert(RONDE_INTERNAL == static_cast<int>(Code::kInternal));
static_assert(RONDE_CLOSED == static_cast<int>(Code::kClosed));
static_assert(RONDE_MPI_OPEN_MPI == static_cast<int>(MpiFamily::kOpenMpi));
static_assert(RONDE_MPI_MPICH == static_cast<int>(MpiFamily::kMpich));

namespace {

Status done_well(const ronde_work& work) {
  if (!work.work->completion.done()) {
    return Status::error(Code::kInvalidArgument, "the work is not done: wait for it first");
  }
  return Engine::result(*work.work);
}

using WaitUntil = ronde::base::Result<bool> (Engine::*)(ronde::runtime::Work&,
                                                        ronde::base::Instant);
// Waits so long at most, in that way, and says whether the work is done.
Status wait_for(ronde_work* work, int64_t timeout_ns, int32_t* done, WaitUntil wait) {
  if (work == nullptr) return null_argument("work");
  if (done == nullptr) return null_argument("done");
  const auto timeout = std::chrono::nanoseconds(std::max<int64_t>(0, timeout_ns));
  const auto deadline = work->engine->clock().after(timeout);
  RONDE_ASSIGN_OR_RETURN(const auto waited, ((*work->engine).*wait)(*work->work, deadline));
  *done = waited ? 1 : 0;
  return waited ? Engine::result(*work->work) : Status();
}

// The place of a device's result is known as soon as streams can wait for it.
Status has_output(const ronde_work& work) {
  if (work.work->of_device && work.work->issued.done() && !work.work->completion.done()) return {};
  return done_well(work);
}

// What <ronde/mpi.h> has put into the options; nothing stands for MPI_COMM_WORLD.
using Communicator = std::optional<ProgramCommunicator>;
Result<Communicator> communicator_of(const ronde_engine_options& options) {
  if (options.mpi_communicator == 0 && options.mpi_family == 0) return Communicator();
  if (options.mpi_family == 0) {
    return Status::error(
        Code::kInvalidArgument,
        "mpi_communicator is set, but not by ronde_engine_options_set_communicator of "
        "<ronde/mpi.h>: use that");
  }
  return Communicator(
      ProgramCommunicator{static_cast<MpiFamily>(options.mpi_family), options.mpi_communicator});
}

// The store of a program as the runtime takes it.
class ProgramStore final : public ronde::runtime::Store {
 public:
  explicit ProgramStore(const ronde_store& store) : store_(store) {}

  Status set(const std::string& key, std::span<const std::byte> bytes) override {
    return status_of(store_.set(store_.context, key.c_str(), bytes.data(), bytes.size()), "set",
                     key);
  }
  Result<std::vector<std::byte>> get(const std::string& key,
                                     ronde::base::Nanoseconds timeout) override {
    std::optional<std::vector<std::byte>> bytes;
    const auto take = [](void* taker, const void* from, std::size_t size) {
      const auto* const first = static_cast<const std::byte*>(from);
      static_cast<std::optional<std::vector<std::byte>>*>(taker)->emplace(first, first + size);
    };
    const Status got = status_of(
        store_.get(store_.context, key.c_str(), timeout.count(), take, &bytes), "get", key);
    RONDE_RETURN_IF_ERROR(got);
    if (bytes) return std::move(*bytes);
    return Status::error(Code::kInvalidArgument,
                         "get of '" + key + "' returned RONDE_OK, but took no value");
  }

 private:
  [[nodiscard]] Status status_of(ronde_status status, const char* what,
                                 const std::string& key) const {
    if (status == RONDE_OK) return {};
    const bool known = status > RONDE_OK && status <= RONDE_INTERNAL;
    const char* const words = store_.failure == nullptr ? nullptr : store_.failure(store_.context);
    return Status::error(known ? static_cast<Code>(status) : Code::kInvalidArgument,
                         (words == nullptr || *words == '\0' ? "" : words + std::string(": ")) +
                             what + " of '" + key + "' returned " +
                             std::to_string(static_cast<int>(status)) + " (" +
                             ronde_status_name(status) + ")");
  }

  const ronde_store store_;
};

// The job that the options put this process into; nothing if they leave it to what started it.
using MaybeOwnJob = std::optional<ronde::runtime::OwnJob>;
Result<MaybeOwnJob> own_job_of(const ronde_engine_options& options) {
  const auto refused = [](const char* text) { return Status::error(Code::kInvalidArgument, text); };
  if (options.size == 0) {
    if (options.rank == 0 && options.meet == nullptr && options.store == nullptr) {
      return MaybeOwnJob();
    }
    return refused(
        "the options of the engine give a rank, a meeting point or a store: set size too");
  }
  if (options.local_job != nullptr || options.mpi_family != 0) {
    return refused(
        "the options of the engine give rank and size, and a communicator or a local job too: give "
        "one of them");
  }
  ronde::runtime::OwnJob own;
  own.rank = options.rank;
  own.size = options.size;
  if (options.meet != nullptr) own.meet = options.meet;
  if (options.name != nullptr) own.name = options.name;
  if (options.store == nullptr) return MaybeOwnJob(std::move(own));
  RONDE_ASSIGN_OR_RETURN(const auto store, read_struct(options.store, "ronde_store"));
  if (store.set == nullptr || store.get == nullptr) return null_argument("set or get of the store");
  own.store = std::make_shared<ProgramStore>(store);
  return MaybeOwnJob(std::move(own));
}

}  // namespace

extern "C" {

const char* ronde_version(void) { return "0.1.0"; }

const char* ronde_status_name(ronde_status status) {
  return ronde::base::code_name(static_cast<Code>(status));
}

// ---- errors ----

const char* ronde_error_message(const ronde_error* error) {
  return error == nullptr ? "" : error->message.c_str();
}
const char* ronde_error_place(const ronde_error* error) {
  return error == nullptr ? "" : error->place.c_str();
}
ronde_status ronde_error_status(const ronde_error* error) {
  return error == nullptr ? RONDE_OK : error->status;
}
int32_t ronde_error_rank(const ronde_error* error) { return error == nullptr ? -1 : error->rank; }
void ronde_error_release(ronde_error* error) { delete error; }

// ---- jobs in one process ----

ronde_status ronde_require_alone(ronde_error** error) {
  return guarded(error, [&]() -> Status {
    RONDE_ASSIGN_OR_RETURN(const auto identity, ronde::runtime::identity_of_this_process());
    return ronde::runtime::check_alone(identity);
  });
}

ronde_status ronde_local_job_create(int32_t size, ronde_local_job** job, ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (job == nullptr) return null_argument("job");
    RONDE_ASSIGN_OR_RETURN(auto created, ronde::runtime::LocalJob::create(size));
    *job = new ronde_local_job{std::move(created)};
    return {};
  });
}

void ronde_local_job_release(ronde_local_job* job) { delete job; }

// ---- engines ----

void ronde_store_init_sized(ronde_store* store, size_t struct_size) {
  init_sized(store, struct_size);
}

void ronde_engine_options_init_sized(ronde_engine_options* options, size_t struct_size) {
  init_sized(options, struct_size);
}

ronde_status ronde_engine_open(const ronde_engine_options* given, ronde_engine** engine,
                               ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    auto options = defaults_of<ronde_engine_options>();
    if (given != nullptr) {
      RONDE_ASSIGN_OR_RETURN(options, read_struct(given, "ronde_engine_options"));
    }
    if (options.flags != 0) return Status::error(Code::kUnsupported, "unknown flags: use 0");
    RONDE_ASSIGN_OR_RETURN(const auto communicator, communicator_of(options));
    RONDE_ASSIGN_OR_RETURN(const auto own, own_job_of(options));
    // This keeps the job: the caller may release it while the engine opens.
    const auto local = options.local_job != nullptr ? options.local_job->job : nullptr;
    const auto open_job = [&](const ronde::base::Config& config, const ronde::base::Clock& clock) {
      if (own.has_value()) return ronde::runtime::open_own_job(*own, config, clock);
      return local != nullptr ? local->join(options.local_job_rank, config, clock)
                              : ronde::runtime::open_process_job(
                                    communicator.has_value() ? &*communicator : nullptr,
                                    options.name == nullptr ? "" : options.name, config, clock);
    };
    RONDE_ASSIGN_OR_RETURN(auto opened, Engine::open(open_job, ronde::base::process_environment(),
                                                     std::make_shared<ronde::base::SteadyClock>()));
    *engine = new ronde_engine{std::move(opened), ::getpid()};
    return {};
  });
}

ronde_status ronde_engine_close(ronde_engine* engine, ronde_error** error) {
  if (engine == nullptr) return RONDE_OK;
  // A forked child has no background thread to join, so it leaves its copy as it is.
  if (engine->pid != ::getpid()) return RONDE_OK;
  const std::unique_ptr<ronde_engine> owner(engine);
  if (owner->engine == nullptr) return RONDE_OK;
  return guarded(error, [&] { return owner->engine->close(); });
}

int32_t ronde_rank(const ronde_engine* engine) {
  if (engine == nullptr) return -1;
  return engine->engine == nullptr ? -1 : engine->engine->rank();
}
int32_t ronde_size(const ronde_engine* engine) {
  if (engine == nullptr) return -1;
  return engine->engine == nullptr ? 0 : engine->engine->size();
}
int32_t ronde_local_rank(const ronde_engine* engine) {
  if (engine == nullptr) return -1;
  return engine->engine == nullptr ? -1 : engine->engine->local_rank();
}
int32_t ronde_local_size(const ronde_engine* engine) {
  if (engine == nullptr) return -1;
  return engine->engine == nullptr ? 0 : engine->engine->local_size();
}

void ronde_statistics_init_sized(ronde_statistics* statistics, size_t struct_size) {
  init_sized(statistics, struct_size);
}

ronde_status ronde_engine_statistics(const ronde_engine* engine, ronde_statistics* statistics,
                                     ronde_error** error) {
  return guarded(error, [&]() -> Status {
    RONDE_ASSIGN_OR_RETURN(Engine* const asked, engine_of(engine));
    const auto read = read_struct(statistics, "ronde_statistics");
    RONDE_RETURN_IF_ERROR(read.status());
    const ronde::runtime::Statistics now = asked->statistics();
    ronde_statistics result{};
    result.struct_size = statistics->struct_size;
    result.batches = now.batches;
    result.tensors = now.tensors;
    result.payload_bytes = now.payload_bytes;
    result.control_bytes = now.control_bytes;
    result.full_requests = now.full_requests;
    result.planned_requests = now.planned_requests;
    result.background_wakes = now.background_wakes;
    result.execution_nanoseconds = static_cast<std::uint64_t>(now.execution.count());
    result.in_place_bytes = now.in_place_bytes;
    std::memcpy(statistics, &result, std::min(result.struct_size, sizeof(result)));
    return {};
  });
}

ronde_status ronde_engine_describe(const ronde_engine* engine, const char** text,
                                   ronde_error** error) {
  return guarded(error, [&]() -> Status {
    RONDE_ASSIGN_OR_RETURN(Engine* const asked, engine_of(engine));
    if (text == nullptr) return null_argument("text");
    RONDE_ASSIGN_OR_RETURN(*text, asked->describe());
    return {};
  });
}

// ---- works ----

ronde_status ronde_work_wait(ronde_work* work, ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (work == nullptr) return null_argument("work");
    return work->engine->wait(*work->work);
  });
}

ronde_status ronde_work_wait_for(ronde_work* work, int64_t timeout_ns, int32_t* done,
                                 ronde_error** error) {
  return guarded(error, [&] { return wait_for(work, timeout_ns, done, &Engine::wait_until); });
}

ronde_status ronde_work_wait_slice(ronde_work* work, int64_t slice_ns, int32_t* done,
                                   ronde_error** error) {
  return guarded(error, [&] { return wait_for(work, slice_ns, done, &Engine::wait_slice); });
}

ronde_status ronde_work_finish(ronde_work** work, int64_t timeout_ns, const void* output,
                               ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (work == nullptr) return null_argument("work");
    int32_t done = 0;
    RONDE_RETURN_IF_ERROR(wait_for(*work, timeout_ns, &done, &Engine::wait_until));
    const bool elsewhere = output != nullptr && (*work)->work->output.data() != output;
    if (done == 1 && !elsewhere) delete std::exchange(*work, nullptr);
    return {};
  });
}

ronde_status ronde_work_wait_stream(ronde_work* work, void* stream, ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (work == nullptr) return null_argument("work");
    return work->engine->let_stream_wait(*work->work, stream);
  });
}

int32_t ronde_work_poll(const ronde_work* work) {
  return work != nullptr && work->engine->poll(*work->work) ? 1 : 0;
}

ronde_status ronde_work_output(const ronde_work* work, const void** data, const int64_t** shape,
                               int32_t* dimensions, int32_t* dtype, ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (work == nullptr) return null_argument("work");
    if (data == nullptr || shape == nullptr || dimensions == nullptr || dtype == nullptr) {
      return null_argument("data, shape, dimensions or dtype");
    }
    RONDE_RETURN_IF_ERROR(has_output(*work));
    if (work->work->output_shape.empty()) {
      return Status::error(Code::kInvalidArgument,
                           "only an allgather and an all-to-all have an output of their own; "
                           "others write to the request's output");
    }
    *data = work->work->output.data();
    *shape = work->work->output_shape.data();
    *dimensions = ronde::base::narrow<int32_t>(work->work->output_shape.size());
    *dtype = static_cast<int32_t>(work->work->output_dtype);
    return {};
  });
}

ronde_status ronde_work_received_splits(const ronde_work* work, const int64_t** splits,
                                        int32_t* count, ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (work == nullptr) return null_argument("work");
    if (splits == nullptr || count == nullptr) return null_argument("splits or count");
    RONDE_RETURN_IF_ERROR(has_output(*work));
    const auto& received = work->work->received_splits;
    if (received.empty()) {
      return Status::error(Code::kInvalidArgument, "only an all-to-all has received splits");
    }
    *splits = received.data();
    *count = ronde::base::narrow<int32_t>(received.size());
    return {};
  });
}

void ronde_work_release(ronde_work* work) { delete work; }

void ronde_work_settle(ronde_work* work, int64_t grace_ns) {
  if (work == nullptr) return;
  const std::unique_ptr<ronde_work> owner(work);
  guarded(nullptr, [&]() -> Status {
    std::optional<ronde::base::Nanoseconds> grace;
    if (grace_ns >= 0) grace = std::chrono::nanoseconds(grace_ns);
    work->engine->settle(*work->work, grace);
    return {};
  });
}

}  // extern "C"
