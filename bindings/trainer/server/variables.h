// SPDX-License-Identifier: Apache-2.0
// The variables of a group where they live: values, moments, tables of rows, and their optimiser.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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
  // Not learned by a gradient: a push brings its value, a round's average is the new one, and
  // outside of rounds that of worker 0 is. After those that are learned.
  bool statistic = false;
};

// Rows of `width` numbers, of which only those that are used travel. Uniform from -scale to scale
// at first, by seed and the row's number in the whole table.
struct TableSpec {
  std::string name;
  std::size_t rows = 0;  // here
  std::size_t width = 0;
  double scale = 0.05;
  std::uint64_t seed = 1;
  std::size_t first = 0;  // row i here is row first + i * stride of the whole table
  std::size_t stride = 1;
};

// The text of kCreate. The floats are the values of the variables or, with `whole`, all of
// state(), with the updates that they have seen.
struct VariableSpecs {
  std::vector<VariableSpec> variables;
  std::vector<TableSpec> tables;
  RuleOptions optimizer;
  ModeOptions mode;
  double clip = 0.0;  // the largest norm of a round's average, over all groups; 0: whatever it is
  bool whole = false;
  std::uint64_t steps = 0;

  [[nodiscard]] std::string text() const;
  // Throws TrainerError for what is no such text.
  [[nodiscard]] static VariableSpecs of(const std::string& text);
};

// The rows in the ids of a pull or push: for each table {table, count, row...}; the floats hold the
// variables first, then `width` numbers for each row.
struct TableRows {
  std::size_t table = 0;
  std::span<const std::int64_t> rows;
};

// Thread safety: belongs to one thread.
class Variables {
 public:
  // Throws TrainerError where the floats do not fit the specs.
  Variables(const VariableSpecs& specs, const Floats& floats);

  // Whether the ids name rows that are there, and `floats` numbers belong to them (pushes).
  [[nodiscard]] bool fits(std::span<const std::int64_t> ids, std::size_t floats) const;
  [[nodiscard]] bool fits(std::span<const std::int64_t> ids) const { return rows_of(ids, nullptr); }

  // One update by the average of these gradients, by weight, of which 0 counts for nothing; rows
  // that came more than once are summed. Each must fit.
  void update(std::span<const Message* const> pushes, double rate);
  // Where a round is clipped it is an update in two parts: the average, whose squared norm this
  // returns, and then its application, when the norm over all groups is known.
  [[nodiscard]] bool clips() const noexcept { return clip_ > 0.0; }
  [[nodiscard]] double prepare(std::span<const Message* const> pushes);
  void apply(double rate, double squared_norm);
  // Variables and rows as they are now: the variables where they lie. An update leaves them there
  // as long as somebody reads them.
  [[nodiscard]] Floats values(std::span<const std::int64_t> ids);
  // All numbers: values and tables, then each kind of moments, in this order.
  [[nodiscard]] std::vector<StateTensor> state();
  [[nodiscard]] Floats whole();

  // Numbers in the variables and tables.
  [[nodiscard]] std::size_t size() const;

  // The updates so far.
  [[nodiscard]] std::uint64_t version() const noexcept { return dense_->steps(); }

 private:
  [[nodiscard]] bool rows_of(std::span<const std::int64_t> ids, std::vector<TableRows>* rows) const;
  void average(std::span<const Message* const> pushes, double weight);
  void make_room();
  void step_by_average(double rate);
  void update_statistics(std::span<const Message* const> pushes, double weight);
  void update_rows(std::span<const Message* const> pushes, double weight, double rate);

  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::unique_ptr<Parameter>> tables_;
  std::unique_ptr<UpdateRule> dense_;
  std::vector<std::unique_ptr<UpdateRule>> sparse_;  // one for each table
  std::size_t size_ = 0;                             // of all variables
  std::size_t learned_ = 0;                          // of these by a gradient
  bool rounds_ = false;
  double clip_ = 0.0;
  std::vector<float> average_;  // of a round's pushes
  Loan loan_;                   // of the variables
};

}  // namespace ronde::trainer::server
