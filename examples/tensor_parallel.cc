// SPDX-License-Identifier: Apache-2.0
// Tensor parallelism: two layers are split over two ranks, the first by columns and the second by
// rows, and two such pairs have half of a batch each: a process set for each pair, and one for the
// ranks with the same part, which sums gradients. A training on one rank has the same result.
#include <cstdio>
#include <ronde/trainer.hpp>
using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would
constexpr std::size_t kRows = 64, kWidth = 32, kHalf = 32, kInputs = kRows / 2 * kWidth;
struct Block {  // a block of a parameter of the whole network, or all of it
  const Parameter& whole;
  std::size_t row, column;
  Parameter mine;
  Block(const Parameter& of, Shape shape, std::size_t first_row = 0, std::size_t first_column = 0)
      : whole(of), row(first_row), column(first_column), mine(of.name(), std::move(shape)) {
    for (std::size_t i = 0; i < mine.size(); ++i) mine.value()[i] = in_whole(i);
  }
  [[nodiscard]] float in_whole(std::size_t i) const {
    const std::size_t wide = mine.shape().back();
    return whole.value()[(row + i / wide) * whole.shape().back() + column + i % wide];
  }
};
// In front of what is split: each rank's part gives its part of the gradient.
Tensor enter(ronde::Engine& pair, const Tensor& input) {
  return input.tape().record("enter", input.raw(), {input}, [&pair](Backward& back) {
    const Values mine = back.plain_gradient();
    Values sum = back.room(0);
    pair.allreduce("gradient", mine.plain(), sum.plain(), ronde::sum).wait();
    back.give(0, std::move(sum));
  });
}
// Behind it: the outputs are the sum of the parts'.
Tensor leave(ronde::Engine& pair, const Tensor& part) {
  Values sum = Values::make(part.tape().pool(), part.shape());
  pair.allreduce("outputs", part.values(), sum.plain(), ronde::sum).wait();
  return part.tape().record("leave", std::move(sum), {part},
                            [](Backward& back) { back.give(0, back.gradient()); });
}
int learn(Replica& here) {
  if (here.size() != 4) throw TrainerError("use four ranks, as mpirun -np 4 does");
  ronde::Engine pair = here.engine().split(here.rank() / 2, "pair");
  ronde::Engine same_part = here.engine().split(here.rank() % 2, "same_part");
  const auto whole =  // the network on one rank
      make_layers({dense(kWidth, relu), dense(2 * kHalf, relu), dense(kWidth)}, {kWidth}, 1);
  const auto all = whole->parameters();
  const std::size_t from = pair.rank() == 0 ? 0 : kHalf;
  std::array blocks{Block(*all[0], {kWidth, kWidth}),         Block(*all[1], {kWidth}),
                    Block(*all[2], {kWidth, kHalf}, 0, from), Block(*all[3], {kHalf}, 0, from),
                    Block(*all[4], {kHalf, kWidth}, from, 0), Block(*all[5], {kWidth})};
  std::vector<Parameter*> mine(blocks.size());
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = &blocks[i].mine;
  UpdateRule sgd({}, mine), sgd_of_whole({}, all);
  Tape tape;
  Generator random(1);
  double loss = 0.0, worst = 0.0;
  for (int step = 0; step < 20; ++step) {
    std::vector<float> batch(kRows * kWidth);
    for (float& one : batch) one = random.uniform(-1.0F, 1.0F);
    const auto samples = std::span(batch).subspan(same_part.rank() == 0 ? 0 : kInputs, kInputs);
    tape.begin({.global_batch = kRows});
    const auto use = [&](std::size_t i) { return tape.use(blocks[i].mine); };
    const Tensor input = relu(linear(tape.borrow({kRows / 2, kWidth}, samples), use(0), use(1)));
    const Tensor hidden = relu(linear(enter(pair, input), use(2), use(3)));
    const Tensor output = leave(pair, matmul(hidden, use(4))) + use(5);
    std::vector<ronde::Work> sums;
    tape.backward(mean_squared_error(output, samples).value, [&](Parameter& ready) {
      sums.push_back(same_part.allreduce(ready.name(), ready.gradient(), ronde::sum));
    });
    for (ronde::Work& one : sums) one.wait();
    tape.begin({.global_batch = kRows});  // the same on one rank
    const Loss right = mean_squared_error((*whole)(tape.borrow({kRows, kWidth}, batch)), batch);
    tape.backward(right.value);
    loss = right.value.item();
    for (UpdateRule* const rule : {&sgd, &sgd_of_whole}) {
      rule->step(0.1);
      for (Parameter* const one : rule->parameters()) one->begin_step();
    }
  }
  for (const Block& block : blocks)
    for (std::size_t i = 0; i < block.mine.size(); ++i)
      worst = std::max<double>(worst, std::abs(block.mine.value()[i] - block.in_whole(i)));
  here.allreduce("worst", {&worst, 1}, Reduction::kMax);
  if (here.is_chief()) std::printf("loss=%.4f difference=%.2g\n", loss, worst);
  return worst <= 1e-6 ? 0 : 1;
}
int main(int argc, char** argv) {
  FlagTable flags("tensor_parallel", "Trains a network with layers that are split over two ranks.");
  return run_program(argc, argv, flags, [](Strategy& strategy) {
    return Strategy::local_results(strategy.run(learn)).front();
  });
}
