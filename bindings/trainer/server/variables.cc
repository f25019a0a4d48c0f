// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/server/variables.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "bindings/trainer/optim/clipping.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/random.h"

namespace ronde::trainer::server {

namespace {

using nlohmann::json;

[[noreturn]] void does_not_fit(std::size_t there, std::size_t wanted) {
  throw TrainerError("the chief sent " + std::to_string(there) + " numbers for variables of " +
                     std::to_string(wanted) + ": start all tasks with the same program");
}

void begin_row(const TableSpec& spec, std::size_t row, std::span<float> values) {
  const auto scale = static_cast<float>(spec.scale);
  Generator generator(spec.seed, spec.first + row * spec.stride);
  for (float& one : values) one = generator.uniform(-scale, scale);
}

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(VariableSpec, name, shape, statistic)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TableSpec, name, rows, width, scale, seed, first, stride, grows,
                                   rule)

std::string VariableSpecs::text() const {
  json all{{"whole", whole}, {"steps", steps}, {"clip", clip}, {"mode", text_of(mode)}};
  all["backup_workers"] = mode.backup_workers;
  all["scale_by_staleness"] = mode.scale_by_staleness;
  all["variables"] = variables;
  all["tables"] = tables;
  all["optimizer"] = {{"kind", static_cast<int>(optimizer.kind)},
                      {"momentum", optimizer.momentum},
                      {"nesterov", optimizer.nesterov},
                      {"beta1", optimizer.beta1},
                      {"beta2", optimizer.beta2},
                      {"epsilon", optimizer.epsilon}};
  if (optimizer.weight_decay) all["optimizer"]["weight_decay"] = *optimizer.weight_decay;
  return all.dump();
}

VariableSpecs VariableSpecs::of(const std::string& text) {
  try {
    const json all = json::parse(text);
    VariableSpecs specs;
    specs.whole = all.at("whole");
    specs.steps = all.at("steps");
    specs.clip = all.at("clip");
    specs.mode = mode_of(all.at("mode"));
    specs.mode.backup_workers = all.at("backup_workers");
    specs.mode.scale_by_staleness = all.at("scale_by_staleness");
    all.at("variables").get_to(specs.variables);
    all.at("tables").get_to(specs.tables);
    const json& how = all.at("optimizer");
    const int kind = how.at("kind");
    if (kind < 0 || kind > static_cast<int>(RuleOptions::Kind::kAdamW)) {
      throw TrainerError("there is no optimiser number " + std::to_string(kind));
    }
    specs.optimizer.kind = static_cast<RuleOptions::Kind>(kind);
    specs.optimizer.momentum = how.at("momentum");
    specs.optimizer.nesterov = how.at("nesterov");
    specs.optimizer.beta1 = how.at("beta1");
    specs.optimizer.beta2 = how.at("beta2");
    specs.optimizer.epsilon = how.at("epsilon");
    if (how.contains("weight_decay")) specs.optimizer.weight_decay = how.at("weight_decay");
    return specs;
  } catch (const json::exception& error) {
    throw TrainerError(std::string("the chief's description of the variables is not valid: ") +
                       error.what());
  }
}

Variables::Variables(const VariableSpecs& specs, const Floats& floats, const RowRules& rules)
    : optimizer_(specs.optimizer) {
  std::size_t all = 0;
  for (const VariableSpec& one : specs.variables) {
    const std::size_t elements = elements_of(one.shape);
    if (__builtin_add_overflow(all, elements, &all)) does_not_fit(floats.size(), elements);
  }
  // Before any memory is taken: a message cannot make a server allocate more than it brings.
  if (specs.whole ? floats.size() < all : floats.size() != all) does_not_fit(floats.size(), all);
  size_ = all;
  std::vector<Parameter*> dense;
  for (const VariableSpec& one : specs.variables) {
    parameters_.push_back(std::make_unique<Parameter>(one.name, one.shape));
    if (one.statistic) continue;
    learned_ += parameters_.back()->size();
    dense.push_back(parameters_.back().get());
  }
  clip_ = specs.clip;
  rounds_ = specs.mode.mode == Mode::kSync;
  dense_ = std::make_unique<UpdateRule>(specs.optimizer, dense);
  for (const TableSpec& one : specs.tables) add_table(one, specs, rules);
  dense_->set_steps(specs.steps);
  FloatReader reader(floats);
  for (const StateTensor& one : state()) {
    const std::size_t count = one.values.size();
    if (reader.left() < count) {
      if (specs.whole) does_not_fit(reader.left(), count);
      break;
    }
    reader.read(one.values);
    if (!specs.whole && reader.left() == 0) break;
  }
  if (reader.left() > 0) does_not_fit(reader.left(), 0);
}

void Variables::add_table(const TableSpec& spec, const VariableSpecs& specs,
                          const RowRules& rules) {
  const auto rule = rules.find(spec.rule);
  if (rule == rules.end() && !spec.rule.empty()) {
    throw TrainerError("table '" + spec.name + "' is updated by the rule '" + spec.rule +
                       "', which this server does not have: start all tasks with the same program");
  }
  const std::size_t rows = spec.grows ? 0 : spec.rows;
  tables_.push_back({.spec = spec,
                     .rows = std::make_unique<Parameter>(spec.name, Shape{rows, spec.width}),
                     .optimizer = nullptr,
                     .rule = rule == rules.end() ? RowRule() : rule->second});
  Table& table = tables_.back();
  for (std::size_t row = 0; row < rows; ++row) begin_row(spec, row, table.at(row));
  table.optimizer =
      std::make_unique<UpdateRule>(specs.optimizer, std::vector<Parameter*>{table.rows.get()});
  table.optimizer->set_steps(specs.steps);
}

std::optional<std::size_t> Variables::Table::place_of(std::int64_t id) const {
  if (!spec.grows) return static_cast<std::size_t>(id);
  const auto found = places.find(id);
  return found == places.end() ? std::nullopt : std::optional(found->second);
}

// Where a row is; one that is not there yet is made, with room for as many again as there are.
std::size_t Variables::place_for(Table& table, std::int64_t id) const {
  constexpr std::size_t kFirstRows = 64;
  if (const auto place = table.place_of(id)) return *place;
  const std::size_t place = table.places.size();
  if (place == table.rows->shape()[0]) {
    const Shape shape{std::max(kFirstRows, 2 * place), table.spec.width};
    auto rows = std::make_unique<Parameter>(table.spec.name, shape);
    auto optimizer = std::make_unique<UpdateRule>(optimizer_, std::vector<Parameter*>{rows.get()});
    optimizer->set_steps(table.optimizer->steps());
    std::ranges::copy(table.rows->value(), rows->value().begin());
    const std::vector<StateTensor> before = table.optimizer->state();
    const std::vector<StateTensor> after = optimizer->state();
    for (std::size_t i = 0; i < before.size(); ++i) {
      std::ranges::copy(before[i].values, after[i].values.begin());
    }
    table.rows = std::move(rows);
    table.optimizer = std::move(optimizer);
  }
  begin_row(table.spec, static_cast<std::size_t>(id), table.at(place));
  table.places.emplace(id, place);
  return place;
}

std::size_t Variables::size() const {
  std::size_t size = size_;
  for (const Table& table : tables_) size += table.rows->value().size();
  return size;
}

bool Variables::rows_of(std::span<const std::int64_t> ids, std::vector<TableRows>* rows) const {
  while (!ids.empty()) {
    if (ids.size() < 2 || ids[0] < 0 || ids[1] < 0) return false;
    const auto table = static_cast<std::size_t>(ids[0]);
    const auto count = static_cast<std::size_t>(ids[1]);
    if (table >= tables_.size() || count > ids.size() - 2) return false;
    const auto these = ids.subspan(2, count);
    const TableSpec& spec = tables_[table].spec;
    const auto holds = [&spec](std::int64_t id) {
      return id >= 0 && (spec.grows || static_cast<std::size_t>(id) < spec.rows);
    };
    if (!std::ranges::all_of(these, holds)) return false;
    if (rows != nullptr) rows->push_back({table, these});
    ids = ids.subspan(2 + count);
  }
  return true;
}

bool Variables::fits(std::span<const std::int64_t> ids, std::size_t floats) const {
  std::vector<TableRows> rows;
  if (!rows_of(ids, &rows)) return false;
  std::size_t wanted = size_;
  for (const TableRows& one : rows) wanted += one.rows.size() * tables_[one.table].spec.width;
  return floats == wanted;
}

namespace {

double weight_of(std::span<const Message* const> pushes) {
  double weight = 0.0;
  for (const Message* const push : pushes) weight += push->weight;
  return weight;
}

}  // namespace

// Values that are still being sent stay as they are: the next ones lie elsewhere.
void Variables::make_room() {
  if (loan_.ends_within({})) return;
  for (const auto& one : parameters_) one->move_value();
  loan_ = {};
}

void Variables::average(std::span<const Message* const> pushes, double weight) {
  average_.assign(learned_, 0.0F);
  for (const Message* const push : pushes) {
    if (push->weight == 0.0) continue;  // a push without samples
    const auto share = static_cast<float>(push->weight / weight);
    float* to = average_.data();
    FloatReader(push->floats).each(learned_, [&to, share](std::span<const float> from) {
      for (const float one : from) *to++ += share * one;
    });
  }
}

void Variables::update(std::span<const Message* const> pushes, double rate) {
  const double weight = weight_of(pushes);
  make_room();
  if (pushes.size() == 1 && weight > 0.0) {
    FloatReader reader(pushes[0]->floats);  // read from the received frames
    dense_->step_by([&reader](std::size_t most) { return reader.next(most); }, rate);
  } else {
    average(pushes, weight);
    step_by_average(rate);
  }
  if (learned_ != size_) update_statistics(pushes, weight);
  if (!tables_.empty()) update_rows(pushes, weight, rate);
}

void Variables::step_by_average(double rate) {
  std::span<const float> rest = average_;
  dense_->step_by(
      [&rest](std::size_t most) {
        const auto next = rest.first(most);
        rest = rest.subspan(most);
        return next;
      },
      rate);
}

double Variables::prepare(std::span<const Message* const> pushes) {
  const double weight = weight_of(pushes);
  average(pushes, weight);
  if (learned_ != size_) {
    make_room();
    update_statistics(pushes, weight);
  }
  double squares = 0.0;
  std::span<const float> rest = average_;
  for (const Parameter* const one : dense_->parameters()) {
    squares += sum_of_squares(rest.first(one->size()));
    rest = rest.subspan(one->size());
  }
  return squares;
}

void Variables::apply(double rate, double squared_norm) {
  const double norm = std::sqrt(squared_norm);
  if (norm > clip_) {
    const float factor = clipping_factor(clip_, norm);
    for (float& one : average_) one *= factor;
  }
  make_room();
  step_by_average(rate);
}

void Variables::update_statistics(std::span<const Message* const> pushes, double weight) {
  if (weight == 0.0 || (!rounds_ && pushes.front()->origin.index != 0)) return;
  std::vector<float> sums(size_ - learned_);
  for (const Message* const push : pushes) {
    if (push->weight == 0.0) continue;
    const auto share = static_cast<float>(push->weight / weight);
    FloatReader reader(push->floats);
    reader.each(learned_, [](auto) {});
    float* to = sums.data();
    reader.each(sums.size(), [&to, share](std::span<const float> from) {
      for (const float one : from) *to++ += share * one;
    });
  }
  const float* from = sums.data();
  std::size_t before = 0;
  for (const auto& one : parameters_) {
    before += one->size();
    if (before <= learned_) continue;
    std::copy_n(from, one->size(), one->value().begin());
    from += one->size();
  }
}

void Variables::update_rows(std::span<const Message* const> pushes, double weight, double rate) {
  std::vector<std::map<std::int64_t, std::vector<float>>> sums(tables_.size());
  for (const Message* const push : pushes) {
    std::vector<TableRows> rows;
    (void)rows_of(push->ids, &rows);  // they fit
    if (push->weight == 0.0) continue;
    const float share = pushes.size() == 1 ? 1.0F : static_cast<float>(push->weight / weight);
    FloatReader reader(push->floats);
    reader.each(size_, [](auto) {});
    std::vector<float> from;
    for (const TableRows& one : rows) {
      const std::size_t width = tables_[one.table].spec.width;
      for (const std::int64_t id : one.rows) {
        auto& sum = sums[one.table].try_emplace(id, width, 0.0F).first->second;
        from.resize(width);
        reader.read(from);
        for (std::size_t i = 0; i < width; ++i) sum[i] += share * from[i];
      }
    }
  }
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    Table& table = tables_[i];
    std::vector<std::int64_t> places;
    std::vector<float> gradients;
    for (const auto& [id, sum] : sums[i]) {
      const std::size_t place = place_for(table, id);
      if (table.rule) {
        table.rule(table.at(place), sum, rate);
        continue;
      }
      places.push_back(static_cast<std::int64_t>(place));
      gradients.insert(gradients.end(), sum.begin(), sum.end());
    }
    table.optimizer->step_rows(places, gradients, rate);
  }
}

Floats Variables::values(std::span<const std::int64_t> ids) {
  std::vector<Values> memory;
  memory.reserve(parameters_.size());
  for (const auto& one : parameters_) memory.push_back(one->value_values());
  const auto owner = loan_.owner(std::move(memory));
  Floats floats;
  for (const auto& one : parameters_) floats.add({owner, one->value()});
  std::vector<float> numbers;
  std::vector<TableRows> rows;
  (void)rows_of(ids, &rows);  // they fit
  for (const TableRows& one : rows) {
    const Table& table = tables_[one.table];
    for (const std::int64_t id : one.rows) {
      const std::size_t before = numbers.size();
      numbers.resize(before + table.spec.width);
      const auto to = std::span(numbers).subspan(before);
      if (const auto place = table.place_of(id)) {
        std::ranges::copy(table.at(*place), to.begin());
      } else {
        begin_row(table.spec, static_cast<std::size_t>(id), to);
      }
    }
  }
  floats.add(Floats::of(std::move(numbers)));
  return floats;
}

std::vector<StateTensor> Variables::state() {
  std::vector<StateTensor> all;
  all.reserve(parameters_.size() + tables_.size());
  for (const auto& one : parameters_) all.push_back({one->name(), one->shape(), one->value()});
  for (const Table& one : tables_) {
    if (one.spec.grows) continue;
    all.push_back({one.spec.name, one.rows->shape(), one.rows->value()});
  }
  for (const StateTensor& one : dense_->state()) all.push_back(one);
  for (const Table& one : tables_) {
    if (one.spec.grows) continue;
    for (const StateTensor& moment : one.optimizer->state()) all.push_back(moment);
  }
  return all;
}

Floats Variables::whole() {
  std::vector<float> all;
  for (const StateTensor& one : state()) {
    all.insert(all.end(), one.values.begin(), one.values.end());
  }
  return Floats::of(std::move(all));
}

}  // namespace ronde::trainer::server
