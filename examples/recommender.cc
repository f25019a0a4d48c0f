// SPDX-License-Identifier: Apache-2.0
// A recommender on generated clicks: a table of rows for users and items, and dense layers over
// them. With --rows server the rows lie on servers, of which only those of a batch travel, and the
// dense layers are averaged by ring, in one step; with --rows ring all gradients are summed by
// ring.
//
//   hosts="--ps_hosts 127.0.0.1:2222 --worker_hosts 127.0.0.1:1,127.0.0.1:2"
//   recommender $hosts --job_name ps
//   mpirun -n 2 recommender $hosts --job_name worker     (rank i is worker i)
//   mpirun -n 2 recommender --rows ring
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <ronde/parameter_server.hpp>
#include <ronde/trainer.hpp>
#include <span>
#include <string>
#include <vector>

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

namespace {

constexpr std::size_t kWidth = 8;  // of a row
constexpr std::uint64_t kSeed = 1;

struct Settings {
  server::TaskFlags task;
  bool by_server = true;
  std::uint64_t users = 2000;
  std::uint64_t items = 1000;
  std::uint64_t steps = 1000;
  std::uint64_t batch = 64;  // of a worker
  double learning_rate = 1.0;
};

// Users and items have hidden tastes; who clicks is drawn by how well they fit.
struct Clicks {
  std::vector<std::int64_t> rows;  // the user of each sample, and then the item, in one table
  std::vector<std::uint8_t> labels;
};

float taste(std::uint64_t thing, std::size_t which) {
  return Generator(7, thing * 4 + which).uniform(-2.0F, 2.0F);
}

Clicks clicks(const Settings& settings, std::uint64_t first, std::size_t count) {
  Clicks clicks{std::vector<std::int64_t>(2 * count), {}};
  for (std::uint64_t i = first; i < first + count; ++i) {
    Generator generator(3, i);
    const std::uint64_t user = generator.below(settings.users);
    const std::uint64_t item = settings.users + generator.below(settings.items);
    float fit = 0.0F;
    for (std::size_t k = 0; k < 2; ++k) fit += taste(user, k) * taste(item, k);
    const float share = 1.0F / (1.0F + std::exp(-2.0F * fit));
    clicks.rows[i - first] = static_cast<std::int64_t>(user);
    clicks.rows[count + i - first] = static_cast<std::int64_t>(item);
    clicks.labels.push_back(generator.uniform(0.0F, 1.0F) < share ? 1 : 0);
  }
  return clicks;
}

// The rows, wherever they are: what a step uses is pulled, and its gradients are pushed.
class Table {
 public:
  Table(const Settings& settings, const std::optional<server::Tasks>& tasks, Replica& replica)
      : settings_(settings), replica_(replica) {
    const std::size_t rows = settings.users + settings.items;
    if (settings.by_server) {
      options_.mode = server::mode_of("sync");
      options_.tables = {
          {.name = "rows", .rows = rows, .width = kWidth, .scale = kScale, .seed = kSeed}};
      servers_ =
          std::make_unique<server::ParameterServer>(*tasks, std::vector<Parameter*>{}, options_);
      return;
    }
    table_ = std::make_unique<Parameter>("rows", Shape{rows, kWidth});
    for (std::size_t row = 0; row < rows; ++row) {
      Generator generator(kSeed, row);
      for (std::size_t i = 0; i < kWidth; ++i) {
        table_->value()[row * kWidth + i] = generator.uniform(-kScale, kScale);
      }
    }
    sgd_ = std::make_unique<UpdateRule>(RuleOptions(), std::vector<Parameter*>{table_.get()});
  }
  // The values of these rows, one after the other.
  std::vector<float> pull(const std::vector<std::int64_t>& ids) {
    if (servers_) {
      rows_[0].ids = ids;
      servers_->pull(rows_);
      return rows_[0].values;
    }
    std::vector<float> values;
    for (const std::int64_t id : ids) {
      const auto row = table_->value().subspan(static_cast<std::size_t>(id) * kWidth, kWidth);
      values.insert(values.end(), row.begin(), row.end());
    }
    return values;
  }
  // Gradients by the rows of the last pull, of the mean over the samples of all workers.
  void push(const std::vector<std::int64_t>& ids, std::vector<float> gradients) {
    const auto workers = static_cast<float>(replica_.size());
    if (servers_) {
      for (float& one : gradients) one *= workers;  // servers average over the workers
      rows_[0].gradients = std::move(gradients);
      (void)servers_->push(static_cast<double>(settings_.batch), settings_.learning_rate, rows_);
      return;
    }
    const std::span<float> all = table_->gradient();
    std::ranges::fill(all, 0.0F);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      all[static_cast<std::size_t>(ids[i / kWidth]) * kWidth + i % kWidth] += gradients[i];
    }
    replica_.allreduce("rows", all, Reduction::kSum);
    bytes_ += 2.0 * static_cast<double>(all.size_bytes()) * (workers - 1.0F) / workers;
    sgd_->step(settings_.learning_rate);
  }
  [[nodiscard]] double bytes() const {
    return servers_ ? static_cast<double>(servers_->bytes()) : bytes_;
  }
  void finish() {
    if (servers_) (void)servers_->finish();
  }

 private:
  static constexpr float kScale = 0.5F;

  const Settings& settings_;
  Replica& replica_;
  server::ParameterServerOptions options_;
  std::unique_ptr<server::ParameterServer> servers_;
  std::vector<server::Rows> rows_{1};
  std::unique_ptr<Parameter> table_;
  std::unique_ptr<UpdateRule> sgd_;
  double bytes_ = 0.0;
};

void train(const Settings& settings, std::optional<server::Tasks> tasks) {
  MultiWorkerMirrored strategy({.say = [](const std::string&) {}});
  Replica& replica = strategy.replica(0);
  const auto rank = static_cast<std::size_t>(replica.rank());
  const auto ranks = static_cast<std::size_t>(replica.size());
  if (tasks) tasks->index = static_cast<std::uint32_t>(rank);
  if (settings.by_server && (!tasks || tasks->workers.size() != ranks)) {
    throw TrainerError("this job has " + std::to_string(ranks) +
                           " ranks: name as many --worker_hosts, or use --rows ring",
                       kExitConfiguration);
  }
  const Scope scope(strategy);
  // Whether a user clicks on an item, from their rows.
  Sequential model({input({kWidth}), dense(16, relu).named("first"), dense(1).named("last")},
                   kSeed);
  Optimizer ring(model, sgd(settings.learning_rate));
  Table table(settings, tasks, replica);
  Tape tape;
  const std::size_t global = settings.batch * ranks;
  const double start = steady_seconds();
  Metrics late;
  for (std::uint64_t step = 0; step < settings.steps; ++step) {
    const Clicks mine = clicks(settings, step * global + rank * settings.batch, settings.batch);
    const std::vector<float> values = table.pull(mine.rows);
    tape.begin({.global_batch = global});
    const auto half = [&](std::size_t i) {
      const std::size_t floats = values.size() / 2;
      return tape.variable({settings.batch, kWidth}, std::span(values).subspan(i * floats, floats));
    };
    const Tensor users = half(0);
    const Tensor items = half(1);
    const Loss loss = binary_cross_entropy(model(users * items), mine.labels);
    ring.backward(tape, loss);
    ring.step();
    std::vector<float> gradients = tape.gradient(users);
    const std::vector<float> by_items = tape.gradient(items);
    gradients.insert(gradients.end(), by_items.begin(), by_items.end());
    table.push(mine.rows, std::move(gradients));
    // Each sample is new, so that what is counted before it is learned is a test.
    if (step >= settings.steps - settings.steps / 10) {
      late.add(metrics_of(loss));
    }
  }
  const double seconds = steady_seconds() - start;
  const Metrics all = over_ranks(replica, "late", late);
  const double bytes = table.bytes() / static_cast<double>(settings.steps);
  table.finish();
  if (!replica.is_chief()) return;
  std::printf(
      "rows=%s workers=%zu steps=%ju seconds=%.3f row_bytes_per_step=%.0f loss=%.6f "
      "accuracy=%.4f\n",
      settings.by_server ? "server" : "ring", ranks, std::uintmax_t{settings.steps}, seconds, bytes,
      all.loss(), all.accuracy());
}

void add_flags(FlagTable& flags, Settings& all) {
  constexpr std::uint64_t kMany = 1'000'000'000;
  server::add_task_flags(flags, all.task);
  flags.add({{"rows", one_of(all.by_server, Choices<bool>{{"server", true}, {"ring", false}}),
              "where the rows lie: server, or ring (on each rank)"},
             {"users", whole(all.users, 1, kMany), "rows of users"},
             {"items", whole(all.items, 1, kMany), "rows of items"},
             {"steps", whole(all.steps, 1, kMany), "steps of all workers"},
             {"batch", whole(all.batch, 1, 1'000'000), "clicks of a worker in a step"},
             {"learning-rate", positive(all.learning_rate, 100.0), "step size"}});
}

}  // namespace

int main(int argc, char** argv) {
  Settings all;
  FlagTable flags("recommender", "Learns who clicks on what, with rows on servers.");
  add_flags(flags, all);
  return report_errors(flags.program(), [&] {
    if (!flags.parse(argc, argv)) return 0;
    const std::optional<server::Tasks> tasks = server::tasks_of(all.task);
    if (tasks && tasks->role == server::Role::kServer) return server::serve(*tasks, {}), 0;
    return train(all, tasks), 0;
  });
}
