// SPDX-License-Identifier: Apache-2.0
// The variables of a group on its server: values, moments, tables of rows, and their optimiser.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bindings/trainer/optim/update_rule.h"
#include "bindings/trainer/server/protocol.h"
#include "bindings/trainer/tensor/parameter.h"

namespace ronde::trainer::server {

struct VariableSpec {
  std::string name;
  Shape shape;
  // Not learned by a gradient: a push brings its value. In sync the average of a round's values is
  // the new one, in other modes that of worker 0. Statistics come after all other variables.
  bool statistic = false;
};

// A table of rows of `width` numbers: only the rows that a step uses travel. First values are
// uniform from -scale to scale, by the seed and the row's number in the whole table.
// One that grows has a row for every number from 0, which its first push makes.
struct TableSpec {
  std::string name;
  std::size_t rows = 0;  // here
  std::size_t width = 0;
  double scale = 0.05;
  std::uint64_t seed = 1;
  std::size_t first = 0;  // row i here is row first + i * stride of the whole table
  std::size_t stride = 1;
  bool grows = false;  // `rows` is then not used
  std::string rule{};  // of RowRules; empty: the optimiser
};

// The text of kCreate. Its floats are the values of the variables or, with `whole`, all of state()
// after `steps` updates.
struct VariableSpecs {
  std::vector<VariableSpec> variables;
  std::vector<TableSpec> tables;
  RuleOptions optimizer;
  ModeOptions mode;
  double clip = 0.0;  // the largest norm of a round's average, over all groups; 0: no limit
  bool whole = false;
  std::uint64_t steps = 0;

  [[nodiscard]] std::string text() const;
  // Throws TrainerError for any other text.
  [[nodiscard]] static VariableSpecs of(const std::string& text);
};

// The ids of a pull or push are {table, count, row...} for each table; its floats are the
// variables, then `width` numbers for each row.
struct TableRows {
  std::size_t table = 0;
  std::span<const std::int64_t> rows;
};

// Thread safety: belongs to one thread.
class Variables {
 public:
  // Throws TrainerError if the floats do not fit the specs, and for a rule that is not there.
  Variables(const VariableSpecs& specs, const Floats& floats, const RowRules& rules = {});

  // Whether the ids name rows of these tables and, for a push, belong to so many floats.
  [[nodiscard]] bool fits(std::span<const std::int64_t> ids, std::size_t floats) const;
  [[nodiscard]] bool fits(std::span<const std::int64_t> ids) const { return rows_of(ids, nullptr); }

  // One update by the average of these gradients, by weight; gradients of the same row are summed.
  // Each push must fit.
  void update(std::span<const Message* const> pushes, double rate);
  // A clipped round is an update in two parts: prepare() makes the average, and returns its squared
  // norm; apply() updates by it, once the norm over all groups is known.
  [[nodiscard]] bool clips() const noexcept { return clip_ > 0.0; }
  [[nodiscard]] double prepare(std::span<const Message* const> pushes);
  void apply(double rate, double squared_norm);
  // The variables, not copied, and the rows. An update does not change numbers that are still
  // referred to.
  [[nodiscard]] Floats values(std::span<const std::int64_t> ids);
  // All numbers but those of tables that grow: values and tables, then each kind of moments, in
  // this order.
  [[nodiscard]] std::vector<StateTensor> state();
  [[nodiscard]] Floats whole();

  // Numbers in the variables and tables.
  [[nodiscard]] std::size_t size() const;

  // The updates so far.
  [[nodiscard]] std::uint64_t version() const noexcept { return dense_->steps(); }

 private:
  struct Table {
    TableSpec spec;
    std::unique_ptr<Parameter> rows;  // of one that grows: more than are used
    std::unique_ptr<UpdateRule> optimizer;
    RowRule rule;
    std::map<std::int64_t, std::size_t> places{};  // of the rows of one that grows

    [[nodiscard]] std::span<float> at(std::size_t place) const {
      return rows->value().subspan(place * spec.width, spec.width);
    }
    [[nodiscard]] std::optional<std::size_t> place_of(std::int64_t id) const;
  };

  void add_table(const TableSpec& spec, const VariableSpecs& specs, const RowRules& rules);
  std::size_t place_for(Table& table, std::int64_t id) const;
  [[nodiscard]] bool rows_of(std::span<const std::int64_t> ids, std::vector<TableRows>* rows) const;
  void average(std::span<const Message* const> pushes, double weight);
  void make_room();
  void step_by_average(double rate);
  void update_statistics(std::span<const Message* const> pushes, double weight);
  void update_rows(std::span<const Message* const> pushes, double weight, double rate);

  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<Table> tables_;
  RuleOptions optimizer_;
  std::unique_ptr<UpdateRule> dense_;
  std::size_t size_ = 0;     // of all variables
  std::size_t learned_ = 0;  // of all but statistics
  bool rounds_ = false;
  double clip_ = 0.0;
  std::vector<float> average_;  // of a round's pushes
  Loan loan_;                   // of the variables
};

}  // namespace ronde::trainer::server
