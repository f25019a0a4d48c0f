// SPDX-License-Identifier: Apache-2.0
// Which cases are measured, with which memory, and which contenders are left out.
#include "examples/perf/session.h"

#include <algorithm>
#include <utility>

#include "examples/perf/contenders/agreement.h"

namespace ronde::perf {

namespace {

Key key_of(const Case& shape, const std::string& model) {
  Key key;
  key.operation = name_of(shape.operation);
  key.model = model;
  key.bytes = shape.bytes();
  key.count = shape.count;
  key.dtype = shape.dtype->name;
  key.op = shape.op->name;
  key.root = shape.row().has_root != 0 ? shape.root : -1;
  key.in_place = shape.in_place;
  return key;
}

Task task_for(const Case& shape, const Buffers& buffers) {
  Task task;
  task.shape = shape;
  task.input = buffers.first();
  task.scratch = buffers.second();
  task.device = &buffers.device();
  task.output = shape.in_place ? buffers.first() : buffers.second();
  if (shape.in_place && shape.row().output == RONDE_BLOCK) {
    // In place, the output is the rank's own block of the input.
    task.output += static_cast<std::size_t>(shape.rank) * shape.count * shape.dtype->size;
  }
  return task;
}

// Places the gradients one after another, each at the start of a cache line, as allocators do.
std::vector<Place> places_of(const std::string& model, const DType& dtype) {
  const std::size_t line = 64 / dtype.size;
  std::vector<Place> places;
  std::size_t next = 0;
  for (const Gradient& gradient : gradients_of(model)) {
    places.push_back({"perf/" + model + "/" + gradient.name, next, gradient.elements});
    next += (gradient.elements + line - 1) / line * line;
  }
  return places;
}

std::vector<bool> places_wanted(const Options& options) {
  std::vector<bool> in_place;
  if (options.out_of_place) in_place.push_back(false);
  if (options.in_place) in_place.push_back(true);
  return in_place;
}

}  // namespace

Session::Session(Engine& engine, const Options& options, Device& device, MpiPeers* peers,
                 Watchdog& watchdog, std::ostream* table)
    : engine_(engine),
      options_(options),
      device_(device),
      measurement_(engine, options, watchdog),
      table_(table) {
  const bool model = options.operation == Operation::kModel;
  contenders_.push_back(make_ronde(engine, model ? "ronde-flat" : kRonde, options.prepared));
  for (const std::string& name : options.against) {
    contenders_.push_back(name == "memcpy"  ? make_memcpy()
                          : name == "floor" ? make_floor(engine)
                          : name == "line"  ? make_line(engine)
                                            : peers->make(name));
  }
  if (model) one_by_one_ = make_ronde_one_by_one(engine);
}

Results Session::run() {
  const bool reduced = row_of(options_.operation).reduces != 0;
  for (const DType* dtype : options_.dtypes) {
    for (const Op* op : options_.ops) {
      if (reduced && !valid(*dtype, *op)) continue;  // "all" names ops that this dtype lacks
      if (reduced && options_.device == "cuda" && !valid_on_gpu(*dtype, *op)) continue;
      if (options_.operation == Operation::kModel) {
        run_model(*dtype, *op);
      } else {
        run_sizes(*dtype, *op);
      }
      if (!reduced) break;  // the op does not matter
    }
  }
  if (table_ != nullptr) write_table_foot(*table_, results_.summaries);
  return std::move(results_);
}

void Session::run_sizes(const DType& dtype, const Op& op) {
  const std::vector<std::size_t> sizes = sizes_of(options_);
  std::vector<Case> cases;
  std::size_t longest = 64;  // even an empty result needs an address
  for (const std::size_t size : sizes) {
    Case shape = make_case(options_.operation, dtype, op, size, options_.root, engine_.rank(),
                           engine_.size());
    // Small sizes may round to the same number of elements.
    if (!cases.empty() && cases.back().count == shape.count) continue;
    longest = std::max(longest, shape.bytes());
    cases.push_back(shape);
  }
  const Pattern pattern(dtype, *cases.front().op, engine_.size());
  const std::unique_ptr<Buffers> buffers = take_memory(longest);
  for (const Case& shape : cases) run_case(shape, pattern, *buffers);
}

std::unique_ptr<Buffers> Session::take_memory(std::size_t bytes) {
  std::unique_ptr<Buffers> buffers;
  on_every_rank(engine_, [&] { buffers = std::make_unique<Buffers>(device_, engine_, bytes); });
  return buffers;
}

void Session::run_case(const Case& shape, const Pattern& pattern, const Buffers& buffers) {
  std::vector<Summary> rows;
  for (const bool in_place : places_wanted(options_)) {
    Case placed = shape;
    placed.in_place = in_place;
    if (!contenders_.front()->lacks(placed).empty()) continue;
    std::vector<Entry> entries;
    for (const auto& contender : contenders_) {
      if (!contender->lacks(placed).empty()) continue;
      entries.push_back({contender.get(), task_for(placed, buffers), &pattern});
    }
    const std::vector<Summary> more = measure(key_of(placed, ""), entries);
    rows.insert(rows.end(), more.begin(), more.end());
    if (shape.moves_nothing()) break;  // it has no place
  }
  note_absent(shape, rows);
  if (table_ != nullptr) write_table_rows(*table_, options_, rows);
}

void Session::note_absent(const Case& shape, const std::vector<Summary>& rows) {
  if (table_ == nullptr) return;
  for (const auto& contender : contenders_) {
    const std::string name = contender->name();
    const bool measured = std::any_of(
        rows.begin(), rows.end(), [&name](const Summary& row) { return row.contender == name; });
    if (measured) continue;
    Case placed = shape;
    placed.in_place = !options_.out_of_place;
    const std::string note = name + " has no " + contender->lacks(placed) + ": it is left out";
    if (notes_.insert(note).second) *table_ << "# " << note << "\n";
  }
}

void Session::run_model(const DType& dtype, const Op& op) {
  const std::vector<Place> places = places_of(options_.model, dtype);
  std::size_t elements = 0;
  for (const Place& place : places) elements += place.elements;
  const std::size_t spread = places.back().first + places.back().elements;
  const Pattern pattern(dtype, op, engine_.size());
  const std::unique_ptr<Buffers> buffers = take_memory(spread * dtype.size);

  Case flat = make_case(Operation::kModel, dtype, op, elements * dtype.size, 0, engine_.rank(),
                        engine_.size());
  // A trainer averages its gradients where they are.
  flat.in_place = options_.in_place;
  Task task = task_for(flat, *buffers);
  std::vector<Entry> entries;
  task.tensors = places;
  task.shape.count = spread;
  entries.push_back({one_by_one_.get(), task, &pattern});
  for (const auto& contender : contenders_) {
    if (!contender->lacks(flat).empty()) continue;
    entries.push_back({contender.get(), task_for(flat, *buffers), &pattern});
  }
  const std::vector<Summary> rows = measure(key_of(flat, options_.model), entries);
  note_absent(flat, rows);
  if (table_ != nullptr) write_model(*table_, rows);
}

std::vector<Summary> Session::measure(const Key& key, const std::vector<Entry>& entries) {
  const std::vector<Sample> samples = measurement_.measure(key, entries);
  const std::vector<Summary> summaries = summarize(samples);
  results_.samples.insert(results_.samples.end(), samples.begin(), samples.end());
  results_.summaries.insert(results_.summaries.end(), summaries.begin(), summaries.end());
  return summaries;
}

}  // namespace ronde::perf
