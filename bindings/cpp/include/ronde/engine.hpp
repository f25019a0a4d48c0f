// SPDX-License-Identifier: Apache-2.0
// The engine of the C++ facade. Included by ronde.hpp.
#pragma once

#include <ronde/ronde.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <ronde/local_job.hpp>
#include <ronde/messages.hpp>
#include <ronde/prepared.hpp>
#include <ronde/range.hpp>
#include <ronde/requests.hpp>
#include <ronde/store.hpp>
#include <ronde/types.hpp>
#include <ronde/work.hpp>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace ronde {
namespace detail {

struct EngineDeleter {
  // The waiters of works that fail get the error; a destructor cannot report it to anybody else.
  void operator()(ronde_engine* engine) const { ronde_engine_close(engine, nullptr); }
};

}  // namespace detail

// A rank's part of the runtime. Operations come in two forms: allreduce(...) and its like return a
// Work at once; ..._blocking(...) waits. They take one-dimensional tensors as ranges that stay
// where they are (TensorRange: a vector with a name, a span, no temporary vector), and a name that
// is the same on all ranks and on this rank is in flight once at a time. `where` is the place
// of the call, for error texts: leave it out.
//
// Ownership: the Engine closes itself in its destructor, and drops what that reports; close()
// throws it. Works and Buffers may outlive it. The memory of spans belongs to the engine until the
// operation is done.
//
// Errors: all operations throw Error with the submit codes of ronde.h, the blocking forms with the
// work codes too; RONDE_INVALID_ARGUMENT also where input and output lengths do not fit. Everything
// throws std::logic_error after close().
//
// Thread safety: any number of threads may use an Engine at once; constructor, move, close() and
// destructor are one thread's, while no other is inside.
class Engine : public detail::MessageCalls<Engine> {
 public:
  // Joins the job of whatever started this process (ronde_engine_open of ronde.h says which; over
  // MPI it starts MPI if the program has not); alone it is a job of one. Blocks until every rank
  // has opened its engine, at most RONDE_START_TIMEOUT_SECONDS. This and the other constructors
  // throw Error: the codes of ronde_engine_open.
  Engine() {
    ronde_engine_options options;
    ronde_engine_options_init(&options);
    open(options);
  }
  // The same, of a process that has several engines: those of one name meet, in whatever order its
  // threads open them. Engines without a name are opened in one order on all ranks, and never two
  // at the same time.
  explicit Engine(const std::string& name) {
    ronde_engine_options options;
    ronde_engine_options_init(&options);
    options.name = name.c_str();
    open(options);
  }
  // Joins the job that the options name. ronde::mpi::open() names a communicator in them.
  explicit Engine(const ronde_engine_options& options) { open(options); }
  // Joins, as `rank` of `size`, the ranks that meet over a store of the program, whatever has
  // started them. Throws what the store throws, too.
  Engine(Store& store, int rank, int size) {
    const detail::StoreFunctions functions(store);
    ronde_engine_options options;
    ronde_engine_options_init(&options);
    options.store = functions.get();
    options.rank = rank;
    options.size = size;
    try {
      open(options);
    } catch (const Error&) {
      functions.rethrow();
      throw;
    }
  }
  // Joins a job in this process as `rank`.
  Engine(const LocalJob& job, int rank) {
    ronde_engine_options options;
    ronde_engine_options_init(&options);
    options.local_job = job.get();
    options.local_job_rank = rank;
    open(options);
  }

  // This rank and the number of ranks, in the job and on this host; ranks count from 0.
  [[nodiscard]] int rank() const { return ronde_rank(get()); }
  [[nodiscard]] int size() const { return ronde_size(get()); }
  [[nodiscard]] int local_rank() const { return ronde_local_rank(get()); }
  [[nodiscard]] int local_size() const { return ronde_local_size(get()); }

  // Operations that return a Work take memory of a device, too (DeviceSpan); they throw
  // RONDE_UNSUPPORTED where no plug-in serves it. Work::wait(stream) has a stream wait for them,
  // and results that they own are memory of the device. Out of place the stream and the event are
  // those of the input.

  // Reduces `data` of all ranks, element by element, in place.
  //   ronde::Work work = engine.allreduce("fc1/weight", gradient, ronde::average);
  template <OutputSpan R>
  Work allreduce(const std::string& name, R&& data, Op op = average,
                 const AllreduceOptions& options = {},
                 std::source_location where = std::source_location::current()) {
    return start(ronde_allreduce_async,
                 detail::Vector(name, detail::span_of(data), where).reduced(op, options).request);
  }
  // The same out of place. The two spans have the same length and do not overlap.
  template <TensorSpan In, OutputRange Out>
    requires detail::Fit<In, Out>
  Work allreduce(const std::string& name, In&& input, Out&& output, Op op,
                 const AllreduceOptions& options = {},
                 std::source_location where = std::source_location::current()) {
    detail::require_same_length(detail::span_of(input).size(), std::ranges::size(output));
    detail::Vector vector(name, detail::read_only(detail::span_of(input)), where);
    vector.request.output = std::ranges::data(output);
    return start(ronde_allreduce_async, vector.reduced(op, options).request);
  }
  // In place, and waits.
  template <OutputRange R>
  void allreduce_blocking(const std::string& name, R&& data, Op op = average,
                          const AllreduceOptions& options = {},
                          std::source_location where = std::source_location::current()) {
    finish(ronde_allreduce,
           detail::Vector(name, detail::span_of(data), where).reduced(op, options).request);
  }

  // Copies `data` of rank `root` into `data` of every rank.
  //   engine.broadcast("fc1/weight", weights, 0).wait();
  template <OutputSpan R>
  Work broadcast(const std::string& name, R&& data, int root = 0,
                 std::source_location where = std::source_location::current()) {
    return start(ronde_broadcast_async,
                 detail::Vector(name, detail::span_of(data), where).rooted(root).request);
  }
  template <OutputRange R>
  void broadcast_blocking(const std::string& name, R&& data, int root = 0,
                          std::source_location where = std::source_location::current()) {
    finish(ronde_broadcast,
           detail::Vector(name, detail::span_of(data), where).rooted(root).request);
  }

  // Concatenates `data` of all ranks, in rank order; lengths may differ. The result is
  // Work::output<T>(); the blocking form returns a copy of it.
  //   std::vector<float> all = engine.allgather_blocking("losses", losses);
  template <TensorSpan R>
  Work allgather(const std::string& name, R&& data,
                 std::source_location where = std::source_location::current()) {
    return start(ronde_allgather_async,
                 detail::Vector(name, detail::read_only(detail::span_of(data)), where).request);
  }
  template <TensorRange R>
  std::vector<std::ranges::range_value_t<R>> allgather_blocking(
      const std::string& name, R&& data,
      std::source_location where = std::source_location::current()) {
    const Work done =
        fetch(ronde_allgather,
              detail::Vector(name, detail::read_only(detail::span_of(data)), where).request);
    return values_of<std::ranges::range_value_t<R>>(done);
  }

  // Reduces `input` and leaves this rank its share of the result: options.splits says how many
  // elements each rank gets, the same on every rank; without them the shares are even, and the
  // first ranks get one more when there is a rest. In place when `output` is this rank's share of
  // `input`, otherwise the two do not overlap.
  //   engine.reduce_scatter("grad", gradient, mine, ronde::sum).wait();
  template <TensorSpan In, OutputRange Out>
    requires detail::Fit<In, Out>
  Work reduce_scatter(const std::string& name, In&& input, Out&& output, Op op = average,
                      const ReduceScatterOptions& options = {},
                      std::source_location where = std::source_location::current()) {
    require_share(detail::span_of(input).size(), options.splits, std::ranges::size(output));
    detail::Vector vector(name, detail::read_only(detail::span_of(input)), where);
    vector.request.output = std::ranges::data(output);
    return start(ronde_reduce_scatter_async,
                 vector.reduced(op, options).split(options.splits).request);
  }
  template <TensorRange In, OutputRange Out>
    requires detail::Fit<In, Out>
  void reduce_scatter_blocking(const std::string& name, In&& input, Out&& output, Op op = average,
                               const ReduceScatterOptions& options = {},
                               std::source_location where = std::source_location::current()) {
    require_share(std::ranges::size(input), options.splits, std::ranges::size(output));
    detail::Vector vector(name, detail::read_only(detail::span_of(input)), where);
    vector.request.output = std::ranges::data(output);
    finish(ronde_reduce_scatter, vector.reduced(op, options).split(options.splits).request);
  }

  // Sends splits[r] of the elements to rank r, in order; they may differ from rank to rank and from
  // call to call. Without splits every rank gets the same number. The result is Work::output<T>(),
  // and Work::received_splits() says how many came from each rank.
  //   const ronde::Work done = engine.all_to_all_blocking("tokens", std::span(tokens), {3, 1});
  template <TensorSpan R>
  Work all_to_all(const std::string& name, R&& data, const std::vector<std::int64_t>& splits = {},
                  std::source_location where = std::source_location::current()) {
    return start(ronde_all_to_all_async,
                 detail::Vector(name, detail::read_only(detail::span_of(data)), where)
                     .split(splits)
                     .request);
  }
  // Waits, and returns a Work that is done and holds the result.
  template <TensorRange R>
  Work all_to_all_blocking(const std::string& name, R&& data,
                           const std::vector<std::int64_t>& splits = {},
                           std::source_location where = std::source_location::current()) {
    return fetch(ronde_all_to_all,
                 detail::Vector(name, detail::read_only(detail::span_of(data)), where)
                     .split(splits)
                     .request);
  }

  // Several tensors as one unit, in place: executed together once all of them are ready on all
  // ranks, as one Work; if one of them is refused, none is submitted. Every rank gives the same
  // names in the same order; at least one.
  //   engine.grouped_allreduce<float>({{"fc1/weight", w1}, {"fc1/bias", b1}}, ronde::sum).wait();
  template <typename T>
  Work grouped_allreduce(const std::vector<NamedSpan<T>>& tensors, Op op = average,
                         const AllreduceOptions& options = {},
                         std::source_location where = std::source_location::current()) {
    return start(ronde_grouped_allreduce_async, detail::Group(tensors, where).reduced(op, options));
  }
  template <typename T>
  void grouped_allreduce_blocking(const std::vector<NamedSpan<T>>& tensors, Op op = average,
                                  const AllreduceOptions& options = {},
                                  std::source_location where = std::source_location::current()) {
    finish(ronde_grouped_allreduce, detail::Group(tensors, where).reduced(op, options));
  }
  template <typename T>
  Work grouped_broadcast(const std::vector<NamedSpan<T>>& tensors, int root = 0,
                         std::source_location where = std::source_location::current()) {
    return start(ronde_grouped_broadcast_async, detail::Group(tensors, where).rooted(root));
  }
  template <typename T>
  void grouped_broadcast_blocking(const std::vector<NamedSpan<T>>& tensors, int root = 0,
                                  std::source_location where = std::source_location::current()) {
    finish(ronde_grouped_broadcast, detail::Group(tensors, where).rooted(root));
  }

  // Is done when every rank has called it with this name.
  //   engine.barrier_blocking("epoch");
  Work barrier(const std::string& name = "barrier",
               std::source_location where = std::source_location::current()) {
    return start(ronde_barrier_async, detail::named(name, where));
  }
  void barrier_blocking(const std::string& name = "barrier",
                        std::source_location where = std::source_location::current()) {
    finish(ronde_barrier, detail::named(name, where));
  }

  // ---- prepared operations ----
  // Collective, each with the arguments of its ordinary form, in place: agrees once on what is run
  // again and again, on the same memory. deadline: how long each call may take; one in lines that
  // takes longer ends the operation on all ranks, and the engine lives on; 0:
  // RONDE_STALL_FAILURE_SECONDS. Throw Error: submit and work codes.
  //   ronde::Prepared sum = engine.prepare_allreduce("loss", loss, ronde::sum);
  template <OutputRange R>
  Prepared prepare_allreduce(const std::string& name, R&& data, Op op = average,
                             const AllreduceOptions& options = {},
                             std::chrono::nanoseconds deadline = {},
                             std::source_location where = std::source_location::current()) {
    return prepare(RONDE_ALLREDUCE,
                   detail::Vector(name, detail::span_of(data), where).reduced(op, options).request,
                   deadline);
  }
  template <OutputRange R>
  Prepared prepare_broadcast(const std::string& name, R&& data, int root = 0,
                             std::chrono::nanoseconds deadline = {},
                             std::source_location where = std::source_location::current()) {
    return prepare(RONDE_BROADCAST,
                   detail::Vector(name, detail::span_of(data), where).rooted(root).request,
                   deadline);
  }
  template <TensorRange R>
  Prepared prepare_allgather(const std::string& name, R&& data,
                             std::chrono::nanoseconds deadline = {},
                             std::source_location where = std::source_location::current()) {
    return prepare(RONDE_ALLGATHER,
                   detail::Vector(name, detail::read_only(detail::span_of(data)), where).request,
                   deadline);
  }
  template <TensorRange In, OutputRange Out>
    requires detail::Fit<In, Out>
  Prepared prepare_reduce_scatter(const std::string& name, In&& input, Out&& output,
                                  Op op = average, const ReduceScatterOptions& options = {},
                                  std::chrono::nanoseconds deadline = {},
                                  std::source_location where = std::source_location::current()) {
    require_share(std::ranges::size(input), options.splits, std::ranges::size(output));
    detail::Vector vector(name, detail::read_only(detail::span_of(input)), where);
    vector.request.output = std::ranges::data(output);
    return prepare(RONDE_REDUCE_SCATTER, vector.reduced(op, options).split(options.splits).request,
                   deadline);
  }
  Prepared prepare_barrier(const std::string& name = "barrier",
                           std::chrono::nanoseconds deadline = {},
                           std::source_location where = std::source_location::current()) {
    return prepare(RONDE_BARRIER, detail::named(name, where), deadline);
  }

  // This rank has no more steps, where others have: it takes part with neutral elements in what
  // they do until all have joined, and may then go on. Returns the last rank to join, the same on
  // all. ronde_join_async of ronde.h says what becomes of each operation.
  //   while (auto batch = next_batch()) step(*batch);
  //   engine.join();
  int join() {
    std::int32_t last = -1;
    detail::ErrorSlot error;
    error.throw_if(ronde_join(get(), &last, &error));
    return last;
  }

  // ---- groups and barriers of a device ----
  template <typename T>
  Work grouped_allreduce(const std::vector<NamedDeviceSpan<T>>& tensors, Op op = average,
                         const AllreduceOptions& options = {},
                         std::source_location where = std::source_location::current()) {
    return start(ronde_grouped_allreduce_async, detail::Group(tensors, where).reduced(op, options));
  }
  template <typename T>
  Work grouped_broadcast(const std::vector<NamedDeviceSpan<T>>& tensors, int root = 0,
                         std::source_location where = std::source_location::current()) {
    return start(ronde_grouped_broadcast_async, detail::Group(tensors, where).rooted(root));
  }
  // Begins after what is in the stream of `where_it_begins`, whose elements are not used; every
  // rank names a device.
  template <typename T>
  Work barrier(const std::string& name, const DeviceSpan<T>& where_it_begins,
               std::source_location where = std::source_location::current()) {
    ronde_request request = detail::named(name, where);
    detail::Memory(where_it_begins).set_device(request);
    return start(ronde_barrier_async, request);
  }

  // ---- process sets ----
  // The engine of some of these ranks, numbered anew in ascending order; ronde_engine_subset has
  // all about it. Every one of them calls it and waits for the others. On other ranks it returns
  // at once, an Engine of size 0 that refuses every operation by name.
  //   ronde::Engine pair = engine.subset({0, 2}, "pair");
  // deadline: how long the others may take; 0: RONDE_STALL_FAILURE_SECONDS.
  [[nodiscard]] Engine subset(const std::vector<int>& ranks, const std::string& name,
                              std::chrono::nanoseconds deadline = {},
                              std::source_location where = std::source_location::current()) {
    ronde_engine* set = nullptr;
    detail::ErrorSlot error;
    error.throw_if(ronde_engine_subset(get(), ranks.data(), static_cast<std::int32_t>(ranks.size()),
                                       name.c_str(), deadline.count(), where.file_name(),
                                       static_cast<std::int32_t>(where.line()), &set, &error));
    return Engine(set);
  }
  // Every rank calls it: those of one color get the process set "<name>.<color>", and those of a
  // color below 0 an Engine of size 0.
  //   ronde::Engine row = engine.split(engine.rank() / 4, "row");
  [[nodiscard]] Engine split(std::int64_t color, const std::string& name,
                             std::source_location where = std::source_location::current()) {
    ronde_engine* set = nullptr;
    detail::ErrorSlot error;
    error.throw_if(ronde_engine_split(get(), color, name.c_str(), where.file_name(),
                                      static_cast<std::int32_t>(where.line()), &set, &error));
    return Engine(set);
  }
  // Which rank of the job is `rank` in this process set.
  [[nodiscard]] int rank_of_job(int rank) const { return ronde_rank_of_job(get(), rank); }

  // What this rank has done since it opened; ronde_statistics has the units.
  [[nodiscard]] ronde_statistics statistics() const {
    ronde_statistics statistics;
    ronde_statistics_init(&statistics);
    detail::ErrorSlot error;
    error.throw_if(ronde_engine_statistics(get(), &statistics, &error));
    return statistics;
  }
  // Who was late with what, the worst in total first; on rank 0 only. ronde_late has the rules.
  [[nodiscard]] std::vector<ronde_late> late() const {
    std::vector<ronde_late> rows;
    std::size_t count = 0;
    do {
      rows.resize(count);
      detail::ErrorSlot error;
      error.throw_if(ronde_engine_late(get(), rows.data(), rows.size(), &count, &error));
    } while (count > rows.size());
    return rows;
  }

  // The table of ranks as text: where each of them runs, and what it talks to over which transport;
  // ronde_engine_describe has an example. Asks no other rank.
  //   std::puts(engine.describe().c_str());
  [[nodiscard]] std::string describe() const {
    const char* text = nullptr;
    detail::ErrorSlot error;
    error.throw_if(ronde_engine_describe(get(), &text, &error));
    return text;
  }

  // Writes what this rank does from now on into a trace file that all ranks of the host share, for
  // chrome://tracing or ui.perfetto.dev; ronde.h has what is in it. Ends with stop_timeline() or
  // close(). Throws Error: the codes of ronde_engine_start_timeline.
  void start_timeline(const std::string& path) {
    detail::ErrorSlot error;
    error.throw_if(ronde_engine_start_timeline(get(), path.c_str(), 0, &error));
  }
  // Throws Error where the file could not be written (RONDE_SYSTEM).
  void stop_timeline() {
    detail::ErrorSlot error;
    error.throw_if(ronde_engine_stop_timeline(get(), &error));
  }
  // Marks this moment in the timeline; MarkedSpan marks how long something takes.
  void mark(const std::string& name) {
    detail::ErrorSlot error;
    error.throw_if(ronde_engine_mark(get(), RONDE_MARK_INSTANT, name.c_str(), &error));
  }

  // Completes what can be completed within RONDE_SHUTDOWN_TIMEOUT_SECONDS and fails the rest. The
  // engine is gone afterwards, whatever this throws. Throws Error: the codes of ronde_engine_close,
  // if works failed meanwhile, or before and nobody has waited for them, or the job had failed.
  // Call it before MPI_Finalize. Does nothing the second time.
  void close() {
    detail::ErrorSlot error;
    error.throw_if(ronde_engine_close(engine_.release(), &error));
  }

  // The handle of the C ABI, which the Engine keeps.
  [[nodiscard]] ronde_engine* get() const {
    if (engine_ == nullptr) throw std::logic_error("ronde::Engine has been closed");
    return engine_.get();
  }

 private:
  explicit Engine(ronde_engine* opened) : engine_(opened) {}
  void open(const ronde_engine_options& options) {
    detail::ErrorSlot error;
    ronde_engine* engine = nullptr;
    error.throw_if(ronde_engine_open(&options, &engine, &error));
    engine_.reset(engine);
  }

  void require_share(std::size_t input, const std::vector<std::int64_t>& splits,
                     std::size_t output) const {
    const auto ranks = static_cast<std::size_t>(size());
    const auto mine = static_cast<std::size_t>(rank());
    // The call itself refuses splits that are wrong, and says more about them.
    if (ranks == 0) return;
    if (!splits.empty() && (splits.size() != ranks || splits[mine] < 0)) return;
    const std::size_t share = splits.empty() ? input / ranks + (mine < input % ranks ? 1U : 0U)
                                             : static_cast<std::size_t>(splits[mine]);
    detail::require_same_length(share, output, "the share of rank " + std::to_string(rank()));
  }

  using AsyncCall = ronde_status(ronde_engine*, const ronde_request*, ronde_work**, ronde_error**);
  using BlockingCall = ronde_status(ronde_engine*, const ronde_request*, ronde_error**);
  using GroupCall = ronde_status(ronde_engine*, const ronde_request*, std::int32_t, ronde_work**,
                                 ronde_error**);
  using BlockingGroupCall = ronde_status(ronde_engine*, const ronde_request*, std::int32_t,
                                         ronde_error**);

  Work start(AsyncCall* call, const ronde_request& request) {
    return detail::start(call, get(), &request);
  }
  void finish(BlockingCall* call, const ronde_request& request) {
    detail::ErrorSlot error;
    error.throw_if(call(get(), &request, &error));
  }
  // A call that waits hands out the work all the same if it holds the result.
  Work fetch(AsyncCall* call, const ronde_request& request) { return start(call, request); }

  Work start(GroupCall* call, const detail::Group& group) {
    return detail::start(call, get(), group.requests.data(), group.count());
  }
  void finish(BlockingGroupCall* call, const detail::Group& group) {
    detail::ErrorSlot error;
    error.throw_if(call(get(), group.requests.data(), group.count(), &error));
  }

  Prepared prepare(ronde_operation_kind operation, ronde_request request,
                   std::chrono::nanoseconds deadline) {
    request.deadline_ns = deadline.count();
    detail::ErrorSlot error;
    ronde_prepared* prepared = nullptr;
    error.throw_if(ronde_prepare(get(), operation, &request, &prepared, &error));
    return Prepared(prepared, static_cast<ronde_dtype>(request.dtype));
  }

  template <typename T>
  static std::vector<T> values_of(const Work& done) {
    const std::span<const T> result = done.output<T>();
    return {result.begin(), result.end()};
  }

  std::unique_ptr<ronde_engine, detail::EngineDeleter> engine_;
};

}  // namespace ronde
