// SPDX-License-Identifier: Apache-2.0
// The guides' office: 10,000 sheets of 128 products each. Multipliers (workers) take the sheets in
// turn and multiply; adders (servers) share the 128 columns, and add what they are handed. The
// total is exact: a column's sum is kept as three digits of base 4096, since a float counts to 2^24
// alone. TOUR.md has the commands.
#include <chrono>
#include <cstdio>
#include <ronde/parameter_server.hpp>
#include <ronde/trainer.hpp>
#include <thread>

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

namespace {

constexpr std::size_t kProducts = 128;
constexpr std::size_t kDigits = 3;
constexpr std::int64_t kDone = kProducts;  // the key of how many sheets have been added
constexpr std::uint64_t kBase = 4096;

// The rule of the rows, on the adders: whole numbers below 2^24 all the way.
void add(std::span<float> row, std::span<const float> digits, double /*rate*/) {
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    carry += static_cast<std::uint64_t>(row[i]) + static_cast<std::uint64_t>(digits[i]);
    row[i] = static_cast<float>(carry % kBase);
    carry /= kBase;
  }
}

std::vector<float> digits_of(const std::vector<std::uint64_t>& numbers) {
  std::vector<float> digits;
  for (std::uint64_t number : numbers) {
    for (std::size_t i = 0; i < kDigits; ++i, number /= kBase) {
      digits.push_back(static_cast<float>(number % kBase));
    }
  }
  return digits;
}

std::uint64_t sum_of(const std::vector<float>& digits) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    sum += static_cast<std::uint64_t>(digits[i]) << (12 * (i % kDigits));
  }
  return sum;
}

std::vector<std::uint64_t> multiply(std::uint64_t sheet) {
  std::vector<std::uint64_t> products(kProducts);
  Generator generator(5, sheet);
  for (std::uint64_t& one : products) {
    const std::uint64_t price = generator.below(1000);
    one = price * generator.below(1000);
  }
  return products;
}

void work(const server::Tasks& tasks, const server::ParameterServerOptions& options,
          std::uint64_t sheets) {
  server::Store store(tasks, options);
  std::vector<std::int64_t> columns(kProducts);
  for (std::size_t i = 0; i < kProducts; ++i) columns[i] = static_cast<std::int64_t>(i);
  (void)store.pull({kDone});  // which the chief's makes
  for (std::uint64_t sheet = tasks.index; sheet < sheets; sheet += tasks.workers.size()) {
    store.push(columns, digits_of(multiply(sheet)), 1.0);
    store.push({kDone}, digits_of({1}), 1.0);
  }
  if (tasks.is_chief()) {
    const double end = steady_seconds() + 60.0;
    while (sum_of(store.pull({kDone})) < sheets) {
      if (steady_seconds() > end) throw TrainerError("another multiplier has not added its sheets");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::uint64_t directly = 0;
    for (std::uint64_t sheet = 0; sheet < sheets; ++sheet) {
      for (const std::uint64_t product : multiply(sheet)) directly += product;
    }
    std::printf("multipliers=%zu adders=%zu sheets=%ju total=%ju directly=%ju\n",
                tasks.workers.size(), tasks.servers.size(), std::uintmax_t{sheets},
                std::uintmax_t{sum_of(store.pull(columns))}, std::uintmax_t{directly});
  }
  store.finish();
}

}  // namespace

int main(int argc, char** argv) {
  server::TaskFlags task;
  std::uint64_t sheets = 10'000;
  FlagTable flags("sheets", "Multiplies on workers, and adds on servers, to the exact total.");
  server::add_task_flags(flags, task);
  flags.add({{"sheets", whole(sheets, 1, 50'000), "sheets of 128 products"}});
  return report_errors(flags.program(), [&] {
    if (!flags.parse(argc, argv)) return 0;
    const std::optional<server::Tasks> tasks = server::tasks_of(task);
    if (!tasks) throw UsageError("name --ps-hosts, --worker-hosts, --job-name and --task-index");
    const server::ParameterServerOptions options{.mode = server::mode_of("async"),
                                                 .tables = {{.name = "sums",
                                                             .rows = kProducts + 1,
                                                             .width = kDigits,
                                                             .scale = 0.0,
                                                             .rule = "add"}},
                                                 .rules = {{"add", add}}};
    if (tasks->role == server::Role::kServer) return server::serve(*tasks, options), 0;
    return work(*tasks, options, sheets), 0;
  });
}
