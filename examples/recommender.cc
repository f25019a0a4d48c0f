// SPDX-License-Identifier: Apache-2.0
// A recommender on generated clicks: a key-value store of rows for users and items, under dense
// layers that are averaged by ring. Where servers are named the store is there: it grows by whom it
// meets, and only the rows of a batch travel. Without servers each rank has all of it.
//   hosts="--ps_hosts 127.0.0.1:2222 --worker_hosts 127.0.0.1:1,127.0.0.1:2"
//   recommender $hosts --job_name ps
//   mpirun -n 2 recommender $hosts --job_name worker     (rank i is worker i)
#include <cmath>
#include <cstdio>
#include <optional>
#include <ronde/parameter_server.hpp>
#include <ronde/trainer.hpp>

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would
namespace {

// The rule of the rows, on the servers.
void descend(std::span<float> row, std::span<const float> gradient, double rate) {
  for (std::size_t i = 0; i < row.size(); ++i) row[i] -= static_cast<float>(rate) * gradient[i];
}
struct Settings {
  server::TaskFlags task;
  server::ParameterServerOptions store{.mode = server::mode_of("sync")};
  server::TableSpec rows{.name = "rows", .width = 8, .scale = 0.5, .rule = "descend"};
  std::uint64_t users = 2000;
  std::uint64_t items = 1000;
  std::size_t steps = 1000;
  std::size_t batch = 64;  // of a worker
  double learning_rate = 1.0;
};

// Users and items have hidden tastes; who clicks is drawn by how well they fit.
struct Clicks {
  std::vector<std::int64_t> keys;  // the user of each sample, and then the items, in one table
  std::vector<std::uint8_t> labels{};
};
float taste(std::uint64_t thing, std::size_t which) {
  return Generator(7, thing * 4 + which).uniform(-2.0F, 2.0F);
}
Clicks clicks(const Settings& settings, std::uint64_t first) {
  Clicks clicks{std::vector<std::int64_t>(2 * settings.batch)};
  for (std::size_t i = 0; i < settings.batch; ++i) {
    Generator generator(3, first + i);
    const std::uint64_t user = generator.below(settings.users);
    const std::uint64_t item = settings.users + generator.below(settings.items);
    const float fit = taste(user, 0) * taste(item, 0) + taste(user, 1) * taste(item, 1);
    clicks.keys[i] = static_cast<std::int64_t>(user);
    clicks.keys[settings.batch + i] = static_cast<std::int64_t>(item);
    clicks.labels.push_back(generator.uniform(0.0F, 1.0F) < 1.0F / (1.0F + std::exp(-2.0F * fit)));
  }
  return clicks;
}

void train(const Settings& all, const std::optional<server::Tasks>& tasks) {
  MultiWorkerMirrored strategy({.say = [](const std::string&) {}});
  const Scope scope(strategy);
  Replica& replica = strategy.replica(0);
  const auto rank = static_cast<std::size_t>(replica.rank());
  const std::size_t ranks = strategy.num_replicas_in_sync();
  // Whether a user clicks on an item, from their rows.
  Sequential model(
      {input({all.rows.width}), dense(16, relu).named("first"), dense(1).named("last")}, 1);
  Optimizer ring(model, sgd(all.learning_rate));
  server::Store store(replica, tasks, all.store);
  Tape tape;
  const std::size_t global = all.batch * ranks;
  const double start = steady_seconds();
  Metrics late;
  for (std::uint64_t step = 0; step < all.steps; ++step) {
    const Clicks mine = clicks(all, step * global + rank * all.batch);
    const std::vector<float> rows = store.pull(mine.keys);
    tape.begin({.global_batch = global});
    const auto half = std::span(rows).first(rows.size() / 2);
    const Tensor users = tape.variable({all.batch, all.rows.width}, half);
    const Tensor items =
        tape.variable({all.batch, all.rows.width}, std::span(rows).subspan(half.size()));
    const Loss loss = binary_cross_entropy(model(users * items), mine.labels);
    ring.backward(tape, loss);
    ring.step();
    std::vector<float> gradients = tape.gradient(users);
    const std::vector<float> by_items = tape.gradient(items);
    gradients.insert(gradients.end(), by_items.begin(), by_items.end());
    // The store takes the mean of the workers' gradients, and each is a part of the batch's.
    store.push(mine.keys, gradients, all.learning_rate * static_cast<double>(ranks));
    // Each sample is new, so that what is counted before it is learned is a test.
    if (step >= all.steps - all.steps / 10) late.add(metrics_of(loss));
  }
  const double seconds = steady_seconds() - start;
  const Metrics sums = over_ranks(replica, "late", late);
  store.finish();
  if (!replica.is_chief()) return;
  std::printf("rows=%s workers=%zu steps=%zu seconds=%.3f row_bytes_per_step=%.0f ",
              tasks ? "server" : "ring", ranks, all.steps, seconds,
              store.bytes() / static_cast<double>(all.steps));
  std::printf("loss=%.6f accuracy=%.4f\n", sums.loss(), sums.accuracy());
}

}  // namespace

int main(int argc, char** argv) {
  Settings all;
  FlagTable flags("recommender", "Learns who clicks on what, with rows on servers.");
  server::add_task_flags(flags, all.task);
  flags.add({{"standby", on_off(all.store.standby), "the next server has a copy of each: off, on"},
             {"users", whole(all.users, 1, UINT32_MAX), "rows of users"},
             {"items", whole(all.items, 1, UINT32_MAX), "rows of items"},
             {"steps", whole(all.steps, 1, UINT32_MAX), "steps of all workers"},
             {"batch", whole(all.batch, 1, 1'000'000), "clicks of a worker in a step"},
             {"learning-rate", positive(all.learning_rate, 100.0), "step size"}});
  return report_errors(flags.program(), [&] {
    if (!flags.parse(argc, argv)) return 0;
    const std::optional<server::Tasks> tasks = server::tasks_of(all.task);
    all.store.rules = {{"descend", descend}};
    all.rows.rows = all.users + all.items;
    all.rows.grows = tasks.has_value();
    all.store.tables = {all.rows};
    if (tasks && tasks->role == server::Role::kServer) return server::serve(*tasks, all.store), 0;
    return train(all, tasks), 0;
  });
}
