// SPDX-License-Identifier: Apache-2.0
// The part of LightGBM's C API that trees.cc uses, for PyPI's wheel has the library without its
// header.
#pragma once

#include <cstdint>

using DatasetHandle = void*;
using BoosterHandle = void*;
using Reduce = void (*)(const char* input, char* output, int type_bytes, std::int32_t bytes);

inline constexpr int C_API_DTYPE_FLOAT32 = 0;
inline constexpr int C_API_DTYPE_FLOAT64 = 1;

extern "C" {
const char* LGBM_GetLastError();
int LGBM_NetworkInit(const char* machines, int port, int minutes, int size);
int LGBM_NetworkInitWithFunctions(int size, int rank, void* reduce_scatter, void* allgather);
int LGBM_NetworkFree();
int LGBM_DatasetCreateFromMat(const void* data, int type, std::int32_t rows, std::int32_t columns,
                              int row_major, const char* options, DatasetHandle reference,
                              DatasetHandle* result);
int LGBM_DatasetSetField(DatasetHandle data, const char* name, const void* values, int count,
                         int type);
int LGBM_DatasetFree(DatasetHandle data);
int LGBM_BoosterCreate(DatasetHandle data, const char* options, BoosterHandle* result);
int LGBM_BoosterUpdateOneIter(BoosterHandle booster, int* finished);
int LGBM_BoosterSaveModel(BoosterHandle booster, int first, int count, int importance,
                          const char* file);
int LGBM_BoosterFree(BoosterHandle booster);
}
