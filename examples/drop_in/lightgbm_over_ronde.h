// SPDX-License-Identifier: Apache-2.0
// LightGBM's two collectives over an engine. What they reduce, and how, LightGBM says with a
// function of its own: the blocks go to their ranks as bytes, and each rank reduces what it gets,
// in rank order.
#pragma once

#include <lightgbm_c_api.h>
#include <algorithm>
#include <cstdint>
#include <ronde/ronde.hpp>
#include <span>

namespace lightgbm_over_ronde {

inline ronde::Engine* engine =
    nullptr;  // LightGBM calls the functions without a word of who they serve

inline std::span<const std::uint8_t> bytes(const char* data, std::int32_t size) {
  return {reinterpret_cast<const std::uint8_t*>(data), static_cast<std::size_t>(size)};
}

inline void reduce_scatter(char* input, std::int32_t size, int type_bytes,
                           const std::int32_t* /*starts*/, const std::int32_t* lengths, int ranks,
                           char* output, std::int32_t /*room*/, const Reduce& reduce) {
  const ronde::Work work = engine->all_to_all_blocking("LightGBM's blocks", bytes(input, size),
                                                       {lengths, lengths + ranks});
  const auto* blocks = reinterpret_cast<const char*>(work.output<std::uint8_t>().data());
  const std::int32_t mine = lengths[engine->rank()];
  std::copy_n(blocks, mine, output);
  for (int rank = 1; rank < ranks; ++rank)
    reduce(blocks + std::int64_t{rank} * mine, output, type_bytes, mine);
}

inline void allgather(char* input, std::int32_t /*size*/, const std::int32_t* /*starts*/,
                      const std::int32_t* lengths, int /*ranks*/, char* output,
                      std::int32_t /*room*/) {
  std::ranges::copy(
      engine->allgather_blocking("LightGBM's parts", bytes(input, lengths[engine->rank()])),
      output);
}

// In place of LGBM_NetworkInit. The engine stays open until LGBM_NetworkFree.
inline int join(ronde::Engine& with) {
  engine = &with;
  return LGBM_NetworkInitWithFunctions(with.size(), with.rank(),
                                       reinterpret_cast<void*>(&reduce_scatter),
                                       reinterpret_cast<void*>(&allgather));
}

}  // namespace lightgbm_over_ronde
