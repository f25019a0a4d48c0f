// SPDX-License-Identifier: Apache-2.0
// A trainer on LightGBM's C API: each process has a part of the rows, and they find each other over
// sockets: trees MODEL RANK PORT PORT...
#include <lightgbm_c_api.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

static void check(int code) {
  if (code == 0) return;
  std::fprintf(stderr, "%s\n", LGBM_GetLastError());
  std::exit(1);
}

static void join(int rank, int size, char** ports) {
  std::string machines;
  for (int i = 0; i < size; ++i)
    machines += std::string(i > 0 ? "," : "") + "127.0.0.1:" + ports[i];
  check(LGBM_NetworkInit(machines.c_str(), std::atoi(ports[rank]), 1, size));
}

int main(int argc, char** argv) {
  constexpr int kRows = 2000, kColumns = 10, kTrees = 20;
  const int rank = std::atoi(argv[2]), size = argc - 3;
  join(rank, size, argv + 3);
  const std::string model = std::string(argv[1]) + "." + std::to_string(rank);
  std::vector<double> rows;
  std::vector<float> labels;
  unsigned state = 1;
  for (int row = 0; row < kRows; ++row) {
    double sum = 0;
    for (int column = 0; column < kColumns; ++column) {
      state = state * 1664525U + 1013904223U;
      const double value = (state >> 8) / 16777216.0 - 0.5;
      sum += value * (column % 3 - 1) + value * value;
      if (row % size == rank) rows.push_back(value);
    }
    if (row % size == rank) labels.push_back(sum > 0.8 ? 1 : 0);
  }
  const std::string options =
      "objective=binary tree_learner=data num_threads=1 deterministic=true verbosity=-1 "
      "num_machines=" +
      std::to_string(size);
  DatasetHandle data = nullptr;
  const auto count = static_cast<std::int32_t>(labels.size());
  check(LGBM_DatasetCreateFromMat(rows.data(), C_API_DTYPE_FLOAT64, count, kColumns, 1,
                                  options.c_str(), nullptr, &data));
  check(LGBM_DatasetSetField(data, "label", labels.data(), count, C_API_DTYPE_FLOAT32));
  BoosterHandle booster = nullptr;
  check(LGBM_BoosterCreate(data, options.c_str(), &booster));
  for (int tree = 0; tree < kTrees; ++tree) {
    int finished = 0;
    check(LGBM_BoosterUpdateOneIter(booster, &finished));
  }
  check(LGBM_BoosterSaveModel(booster, 0, -1, 0, model.c_str()));
  check(LGBM_BoosterFree(booster));
  check(LGBM_DatasetFree(data));
  check(LGBM_NetworkFree());
}
