// SPDX-License-Identifier: Apache-2.0
// Milliseconds a step of a LibTorch training on the ranks of this host: with ronde::torch's hooks,
// with the same averages begun only after backward, with c10d's Reducer over Gloo (which is what
// DistributedDataParallel is in C++), and without any average. They take turns.
//
//   torch_step_bench FOLDER [mlp|cnn] [RANKS [STEPS [ROUNDS]]]      (FOLDER: a new one, for stores)
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <ronde/torch.hpp>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kFirstBucketBytes = 1 << 20;  // those of DistributedDataParallel
constexpr std::size_t kBucketBytes = 25 << 20;
constexpr int kBatch = 64;

struct Plan {
  std::string folder, model = "mlp";
  int ranks = 2, steps = 200, rounds = 5;
};

torch::nn::Sequential make_model(const std::string& name) {
  torch::manual_seed(1);
  if (name == "mlp") {
    return torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(784, 128),
                                 torch::nn::ReLU(), torch::nn::Linear(128, 10));
  }
  return torch::nn::Sequential(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 32, 3)), torch::nn::ReLU(),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(32, 64, 3)), torch::nn::ReLU(),
      torch::nn::MaxPool2d(2), torch::nn::Flatten(), torch::nn::Linear(9216, 128),
      torch::nn::ReLU(), torch::nn::Linear(128, 10));
}

// What a mode does around backward; `seconds` are those in which nothing but averaging went on.
struct Mode {
  std::function<void()> before_forward = [] {};
  std::function<void()> before_backward = [] {};
  std::function<void()> after_backward = [] {};
};

struct Times {
  double step_ms = 0.0;  // medians
  double wait_ms = 0.0;  // from the end of backward to the end of the averages
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

double milliseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

Times train(torch::nn::Sequential& model, const Mode& mode, int steps) {
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const torch::Tensor images = torch::randn({kBatch, 1, 28, 28});
  const torch::Tensor classes = torch::randint(10, {kBatch}, torch::kLong);
  std::vector<double> whole;
  std::vector<double> waits;
  for (int step = -steps / 10 - 2; step < steps; ++step) {
    const auto began = Clock::now();
    mode.before_forward();
    optimizer.zero_grad();
    const auto loss = torch::nn::functional::cross_entropy(model->forward(images), classes);
    mode.before_backward();
    loss.backward();
    const auto computed = Clock::now();
    mode.after_backward();
    const auto averaged = Clock::now();
    optimizer.step();
    if (step < 0) continue;  // warm-up
    whole.push_back(milliseconds(began, Clock::now()));
    waits.push_back(milliseconds(computed, averaged));
  }
  return {median(whole), median(waits)};
}

Times with_hooks(ronde::Engine& engine, const Plan& plan) {
  torch::nn::Sequential model = make_model(plan.model);
  ronde::torch::broadcast_parameters(engine, *model);
  ronde::torch::GradientAverager averager(engine, *model);
  Mode mode;
  mode.after_backward = [&] { averager.wait(); };
  return train(model, mode, plan.steps);
}

Times after_backward(ronde::Engine& engine, const Plan& plan) {
  torch::nn::Sequential model = make_model(plan.model);
  Mode mode;
  mode.after_backward = [&] {
    std::vector<ronde::Work> works;
    for (const auto& one : model->named_parameters()) {
      works.push_back(engine.allreduce(
          "after/" + one.key(), ronde::torch::detail::span_of<float>(one.value().mutable_grad()),
          ronde::average));
    }
    for (ronde::Work& work : works) work.wait();
  };
  return train(model, mode, plan.steps);
}

Times with_reducer(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const Plan& plan) {
  torch::nn::Sequential model = make_model(plan.model);
  const std::vector<at::Tensor> parameters = model->parameters();
  auto [buckets, limits] =
      c10d::compute_bucket_assignment_by_size(parameters, {kFirstBucketBytes, kBucketBytes});
  std::reverse(buckets.begin(), buckets.end());
  std::reverse(limits.begin(), limits.end());
  c10d::Reducer reducer(parameters, buckets, limits, group,
                        std::vector<bool>(parameters.size(), false), kBucketBytes, false, false, {},
                        kFirstBucketBytes);
  Mode mode;
  mode.before_forward = [&] {
    reducer.rebuild_buckets();
    reducer.prepare_for_forward();
  };
  mode.before_backward = [&] { reducer.prepare_for_backward({}); };
  return train(model, mode, plan.steps);
}

Times without(const Plan& plan) {
  torch::nn::Sequential model = make_model(plan.model);
  return train(model, {}, plan.steps);
}

// The store of c10d as Ronde's.
class FileStore final : public ronde::Store {
 public:
  FileStore(const std::string& path, int ranks) : store_(path, ranks) {}
  void set(const std::string& key, std::span<const std::byte> value) override {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(value.data());
    store_.set(key, std::vector<std::uint8_t>(bytes, bytes + value.size()));
  }
  std::optional<std::vector<std::byte>> get(const std::string& key,
                                            std::chrono::nanoseconds timeout) override {
    const auto deadline = Clock::now() + timeout;
    while (!store_.check({key})) {
      if (Clock::now() > deadline) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    const std::vector<std::uint8_t> value = store_.get(key);
    const auto* const bytes = reinterpret_cast<const std::byte*>(value.data());
    return std::vector<std::byte>(bytes, bytes + value.size());
  }

 private:
  c10d::FileStore store_;
};

void run_rank(const Plan& plan, int rank) {
  torch::set_num_threads(1);
  FileStore store(plan.folder + "/ronde", plan.ranks);
  ronde::Engine engine(store, rank, plan.ranks);
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
  options->threads = 2;
  const auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<c10d::FileStore>(plan.folder + "/gloo", plan.ranks), rank, plan.ranks,
      options);
  const std::map<std::string, std::function<Times()>> modes = {
      {"gloo", [&] { return with_reducer(gloo, plan); }},
      {"none", [&] { return without(plan); }},
      {"ronde", [&] { return with_hooks(engine, plan); }},
      {"ronde_after_backward", [&] { return after_backward(engine, plan); }}};
  std::map<std::string, std::vector<double>> steps;
  std::map<std::string, std::vector<double>> waits;
  for (int round = 0; round < plan.rounds; ++round) {
    for (const auto& [name, run] : modes) {
      engine.barrier_blocking("turn");
      const Times times = run();
      steps[name].push_back(times.step_ms);
      waits[name].push_back(times.wait_ms);
      if (rank == 0)
        std::printf("round %d %-21s %8.3f ms a step\n", round, name.c_str(), times.step_ms);
    }
  }
  engine.close();
  if (rank != 0) return;
  const double hooks = median(waits["ronde"]);
  const double late = median(waits["ronde_after_backward"]);
  std::printf("model=%s ranks=%d", plan.model.c_str(), plan.ranks);
  for (const auto& [name, values] : steps) std::printf(" %s_ms=%.3f", name.c_str(), median(values));
  std::printf(" ronde_over_gloo=%.2f wait_ms=%.3f wait_after_backward_ms=%.3f overlap=%.2f\n",
              median(steps["ronde"]) / median(steps["gloo"]), hooks, late, 1.0 - hooks / late);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FOLDER [mlp|cnn] [RANKS [STEPS [ROUNDS]]]\n", argv[0]);
    return 2;
  }
  Plan plan;
  plan.folder = argv[1];
  if (argc > 2) plan.model = argv[2];
  if (argc > 3) plan.ranks = std::atoi(argv[3]);
  if (argc > 4) plan.steps = std::atoi(argv[4]);
  if (argc > 5) plan.rounds = std::atoi(argv[5]);
  std::filesystem::create_directories(plan.folder);  // for which c10d's store would wait
  std::vector<pid_t> others;
  for (int rank = 1; rank < plan.ranks; ++rank) {
    others.push_back(fork());
    if (others.back() == 0) {
      run_rank(plan, rank);
      return 0;
    }
  }
  run_rank(plan, 0);
  int failed = 0;
  for (const pid_t other : others) {
    int status = 0;
    if (waitpid(other, &status, 0) != other || status != 0) failed = 1;
  }
  return failed;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
