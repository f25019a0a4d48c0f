// SPDX-License-Identifier: Apache-2.0
// A rank of a job that does everything in cases.h through libronde.so: what the façade can say all
// at once and in an order of its own, then everything through the C ABI one by one, blocking.
//
// usage: facade_worker [leaders=R,R,...|single] [seed=N]
// leaders: for each rank the lowest rank on its host; single: every rank counts as a host; without
// either all ranks share one.
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <optional>
#include <random>
#include <ronde/ronde.hpp>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/conformance/cases.h"
#include "test/support/words.h"

// In a program that links test/e2e/mpi_calls/mpi_call_counter.h.
[[gnu::weak, gnu::visibility("default")]] std::string take_mpi_calls();

namespace {

using ronde::base::DType;
using ronde::base::Operation;
using ronde::conformance::Case;
using ronde::conformance::Running;

// Memory on the board is f32's.
using BoardMemory = ronde::Buffer<float>;

// ---- through the façade ----

// Calls body.operator()<T>() with the type of the façade.
template <typename Body>
auto with_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kU8:
      return body.template operator()<std::uint8_t>();
    case DType::kI8:
      return body.template operator()<std::int8_t>();
    case DType::kU16:
      return body.template operator()<std::uint16_t>();
    case DType::kI16:
      return body.template operator()<std::int16_t>();
    case DType::kU32:
      return body.template operator()<std::uint32_t>();
    case DType::kI32:
      return body.template operator()<std::int32_t>();
    case DType::kU64:
      return body.template operator()<std::uint64_t>();
    case DType::kI64:
      return body.template operator()<std::int64_t>();
    case DType::kF16:
      return body.template operator()<ronde::Float16>();
    case DType::kBf16:
      return body.template operator()<ronde::BFloat16>();
    case DType::kF32:
      return body.template operator()<float>();
    case DType::kF64:
      return body.template operator()<double>();
    case DType::kBool:
      return body.template operator()<bool>();
  }
  throw std::logic_error("no such dtype");
}

template <typename Options>
Options options_of(const Case& of) {
  const ronde::collectives::Reduction& what = of.what;
  Options options;
  if (of.weighted) options.weight = of.tensors.front().weight;
  options.prescale = what.prescale;
  options.postscale = what.postscale;
  options.compression = static_cast<ronde::Compression>(what.compression);
  return options;
}

ronde::Work start_group(ronde::Engine& engine, Running& running) {
  const Case& of = running.of();
  std::vector<std::string> names;
  for (std::size_t i = 0; i < of.tensors.size(); ++i) {
    names.push_back(of.name + ": " + std::to_string(i));
  }
  std::vector<ronde::NamedSpan<float>> named;
  for (std::size_t i = 0; i < names.size(); ++i) {
    named.push_back({names[i], std::span(reinterpret_cast<float*>(running.output(i)),
                                         static_cast<std::size_t>(of.elements(i)))});
  }
  if (of.operation == Operation::kBroadcast) return engine.grouped_broadcast(named, of.root);
  return engine.grouped_allreduce(named, static_cast<ronde::Op>(of.what.op),
                                  options_of<ronde::AllreduceOptions>(of));
}

ronde::Work start(ronde::Engine& engine, Running& running, std::optional<BoardMemory>& board) {
  const Case& of = running.of();
  if (of.is_group()) return start_group(engine, running);
  const auto op = static_cast<ronde::Op>(of.what.op);
  return with_type(of.dtype(), [&]<typename T>() {
    const auto elements = static_cast<std::size_t>(of.elements(0));
    std::span<const T> input(reinterpret_cast<const T*>(running.input(0)), elements);
    std::span<T> output(reinterpret_cast<T*>(running.output(0)),
                        of.tensors[0].expected.size() / sizeof(T));
    if (of.memory == Case::Memory::kOnBoard) {
      board.emplace(engine, elements);
      T* const here = reinterpret_cast<T*>(board->span().data());
      std::copy(input.begin(), input.end(), here);
      input = {here, elements};
      if (!of.makes_result()) output = {here + of.first, output.size()};
    }
    switch (of.operation) {
      case Operation::kBroadcast:  // in place alone
        std::copy(input.begin(), input.end(), output.begin());
        return engine.broadcast(of.name, output, of.root);
      case Operation::kAllgather:
        return engine.allgather(of.name, input);
      case Operation::kAllToAll:
        return engine.all_to_all(of.name, input, of.splits);
      case Operation::kReduceScatter: {
        auto options = options_of<ronde::ReduceScatterOptions>(of);
        options.splits = of.splits;
        return engine.reduce_scatter(of.name, input, output, op, options);
      }
      default:
        break;
    }
    const auto options = options_of<ronde::AllreduceOptions>(of);
    if (of.is_in_place()) return engine.allreduce(of.name, output, op, options);
    return engine.allreduce(of.name, input, output, op, options);
  });
}

void finish(ronde::Work& work, Running& running, const std::optional<BoardMemory>& board) {
  work.wait();
  const Case& of = running.of();
  if (of.memory == Case::Memory::kOnBoard) {
    const auto got = std::as_bytes(board->span());
    std::copy(got.begin(), got.end(), running.output_block(0).begin());
  }
  if (!of.makes_result()) return;
  const auto got =
      with_type(of.dtype(), [&]<typename T>() { return std::as_bytes(work.output<T>()); });
  running.result.assign(got.begin(), got.end());
  if (of.operation == Operation::kAllToAll) running.received = work.received_splits();
}

// ---- through the C ABI ----

void must(ronde_status status, ronde_error* error) {
  if (status != RONDE_OK) throw std::runtime_error(ronde_error_message(error));
}

void do_by_c(ronde_engine* engine, Running& running) {
  const Case& of = running.of();
  std::vector<std::string> names;
  std::vector<ronde::base::Shape> shapes;
  for (std::size_t i = 0; i < of.tensors.size(); ++i) {
    names.push_back(of.name + " by C, " + std::to_string(i));
    shapes.push_back(of.shape(i));
  }
  std::vector<ronde_request> requests(of.tensors.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    ronde_request& request = requests[i];
    ronde_request_init(&request);
    request.name = names[i].c_str();
    request.dtype = static_cast<std::int32_t>(of.dtype());
    request.op = static_cast<std::int32_t>(of.what.op);
    request.shape = shapes[i].data();
    request.dimensions = static_cast<std::int32_t>(shapes[i].size());
    const bool named_once = of.operation == Operation::kBroadcast && of.is_in_place();
    request.input = named_once ? nullptr : running.input(i);
    request.output = of.makes_result() ? nullptr : running.output(i);
    request.root = of.root;
    request.prescale = of.what.prescale;
    request.weight = of.tensors[i].weight;
    if (of.weighted) request.flags |= RONDE_FLAG_WEIGHTED;
    request.postscale = of.what.postscale;
    request.compression = static_cast<std::int32_t>(of.what.compression);
    if (of.splits.empty()) continue;
    request.splits = of.splits.data();
    request.split_count = static_cast<std::int32_t>(of.splits.size());
  }
  const auto count = static_cast<std::int32_t>(requests.size());
  ronde_request* const first = requests.data();
  ronde_error* error = nullptr;
  ronde_work* work = nullptr;
  switch (of.operation) {
    case Operation::kBroadcast:
      return must(of.is_group() ? ronde_grouped_broadcast(engine, first, count, &error)
                                : ronde_broadcast(engine, first, &error),
                  error);
    case Operation::kReduceScatter:
      return must(ronde_reduce_scatter(engine, first, &error), error);
    case Operation::kAllgather:
      must(ronde_allgather(engine, first, &work, &error), error);
      break;
    case Operation::kAllToAll:
      must(ronde_all_to_all(engine, first, &work, &error), error);
      break;
    default:
      return must(of.is_group() ? ronde_grouped_allreduce(engine, first, count, &error)
                                : ronde_allreduce(engine, first, &error),
                  error);
  }
  const void* data = nullptr;
  const std::int64_t* shape = nullptr;
  std::int32_t dimensions = 0;
  std::int32_t dtype = -1;
  must(ronde_work_output(work, &data, &shape, &dimensions, &dtype, &error), error);
  const auto* const bytes = static_cast<const std::byte*>(data);
  running.result.assign(bytes, bytes + shape[0] * of.width * ronde::base::size_of(of.dtype()));
  if (of.operation == Operation::kAllToAll) {
    const std::int64_t* received = nullptr;
    must(ronde_work_received_splits(work, &received, &dimensions, &error), error);
    running.received.assign(received, received + dimensions);
  }
  ronde_work_release(work);
}

// ---- the rounds ----

void check(const ronde::Engine& engine, Running& running, const std::string& when) {
  const std::string wrong = running.difference();
  if (wrong.empty()) return;
  throw std::runtime_error("rank " + std::to_string(engine.rank()) + ", " + when + ": " +
                           running.of().name + ": " + wrong);
}

// All of them in flight together, in an order that no two ranks and no two rounds share.
void run_round(ronde::Engine& engine, std::vector<Running>& all, std::uint64_t round) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].of().width == 1) order.push_back(i);  // the façade's spans have no rows
  }
  std::mt19937_64 random(round * 100 + static_cast<std::uint64_t>(engine.rank()));
  std::shuffle(order.begin(), order.end(), random);
  std::vector<std::optional<BoardMemory>> boards(all.size());
  std::vector<ronde::Work> works(all.size());
  for (const std::size_t i : order) {
    all[i].prepare();
    works[i] = start(engine, all[i], boards[i]);
  }
  std::shuffle(order.begin(), order.end(), random);
  for (const std::size_t i : order) {
    // In the first round by asking.
    while (round == 1 && !works[i].poll()) {
      static_cast<void>(works[i].wait_for(std::chrono::microseconds(50)));
    }
    finish(works[i], all[i], boards[i]);
    check(engine, all[i], "round " + std::to_string(round));
  }
}

void run_by_c(ronde::Engine& engine, std::vector<Running>& all) {
  for (Running& running : all) {
    running.prepare();
    do_by_c(engine.get(), running);
    check(engine, running, "by C");
  }
}

// The clock is the same for every process of the machine, in whichever network namespace.
std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// Returns only when all ranks have called it.
void check_barrier(ronde::Engine& engine) {
  for (int late = 0; late < engine.size(); ++late) {
    if (engine.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    std::int64_t came = now_ns();
    engine.barrier_blocking();
    std::int64_t left = now_ns();
    engine.allreduce_blocking("came", std::span(&came, 1), ronde::max);
    engine.allreduce_blocking("left", std::span(&left, 1), ronde::min);
    if (left < came) {
      throw std::runtime_error("a rank left the barrier " + std::to_string(came - left) +
                               " ns before the last, rank " + std::to_string(late) + ", had come");
    }
  }
}

// Operations that are agreed once, and calls of an open line where there is one.
void run_prepared(ronde::Engine& engine) {
  std::vector<float> data(1);
  ronde::Prepared sum = engine.prepare_allreduce("prepared", data, ronde::sum);
  ronde_line* line = nullptr;
  if (ronde_line_open(engine.get(), "line", &line, nullptr) != RONDE_OK) {
    throw std::runtime_error("a line cannot be opened");
  }
  ronde_line_call call{sizeof call, 1, RONDE_ALLREDUCE, RONDE_F32,  RONDE_SUM,
                       0,           1, data.data(),     data.data()};
  for (int i = 0; i < 100; ++i) {
    data[0] = 1.0F;
    sum.run();
    std::int32_t met = line == nullptr ? 1 : 0;
    if (line != nullptr) data[0] = 1.0F;
    if (line != nullptr) ronde_line_start(line, &call, nullptr);
    while (met == 0 && ronde_line_wait_for(line, 1'000'000'000, &met, nullptr) == RONDE_OK) {
    }
    if (met != 1 || data[0] != static_cast<float>(engine.size())) {
      throw std::runtime_error("a prepared sum is " + std::to_string(data[0]));
    }
  }
  ronde_line_release(line);
}

// Where MPI's calls are counted: those of the phase that ends here.
void report(int rank, const char* phase, std::chrono::seconds rest = {}) {
  if (&take_mpi_calls == nullptr) return;
  std::this_thread::sleep_for(rest);
  std::printf("rank %d %s: %s\n", rank, phase, take_mpi_calls().c_str());
  std::fflush(stdout);
}

// ---- the job ----

struct Settings {
  std::vector<std::int32_t> leaders;
  bool single = false;
  std::uint64_t seed = 1;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  using Value = const std::string&;
  ronde::testing::read_words(argc, argv,
                             {{"leaders",
                               [&](Value value) {
                                 std::istringstream list(value);
                                 for (std::string leader; std::getline(list, leader, ',');) {
                                   settings.leaders.push_back(std::stoi(leader));
                                 }
                               }},
                              {"single", [&](Value) { settings.single = true; }},
                              {"seed", [&](Value value) { settings.seed = std::stoul(value); }}});
  return settings;
}

void run(Settings settings) {
  std::vector<Case> cases;
  std::vector<Running> all;  // its memory outlives the engine
  ronde::Engine engine;
  if (settings.leaders.empty()) settings.leaders.resize(static_cast<std::size_t>(engine.size()));
  if (settings.single) std::iota(settings.leaders.begin(), settings.leaders.end(), 0);
  if (std::cmp_not_equal(settings.leaders.size(), engine.size())) {
    throw std::invalid_argument("leaders= is not of " + std::to_string(engine.size()) + " ranks");
  }
  if (engine.rank() == 0) std::puts(engine.describe().c_str());
  report(engine.rank(), "opening");
  cases = ronde::conformance::Cases(ronde::conformance::hosts_of(settings.leaders), engine.rank(),
                                    settings.seed)
              .all(3001, 3 << 20);
  for (const Case& one : cases) all.emplace_back(one);
  constexpr std::uint64_t kRounds = 2;  // by name, then by the plan
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    run_round(engine, all, round);
    check_barrier(engine);
  }
  const ronde_statistics statistics = engine.statistics();
  if (statistics.planned_requests == 0 || statistics.batches >= statistics.tensors) {
    throw std::runtime_error("the plan or the batches were never used");
  }
  run_by_c(engine, all);
  run_prepared(engine);
  std::uint64_t bits = 0;
  // Without the averages by weights, which are checked like all others: the recorded bits are
  // older.
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!cases[i].weighted) bits = bits * 31 + all[i].bits();
  }
  const int rank = engine.rank();
  report(rank, "working", std::chrono::seconds(1));  // what an engine that rests calls, too
  engine.close();
  report(rank, "closing");
  std::printf("rank %d has the bits %016" PRIx64 "\n", rank, bits);
  std::printf("%zu operations are right\n", cases.size());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parse(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "facade_worker: %s\n", error.what());
    return 1;
  }
}
