// SPDX-License-Identifier: Apache-2.0
// A state of a model (interleaving.h), and its form in bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "test/support/interleaving.h"

namespace ronde::test {

inline constexpr std::size_t kMaxBuffered = 6;
inline constexpr std::size_t kMaxWords = 32;
inline constexpr std::size_t kMaxThreads = 6;

struct Buffered {
  Value word;
  Value value;
  Value adds;
};

struct Buffer {
  Value size = 0;
  std::array<Buffered, kMaxBuffered> entries{};

  [[nodiscard]] bool empty() const { return size == 0; }
  [[nodiscard]] bool full() const { return size == kMaxBuffered; }
  [[nodiscard]] const Buffered* begin() const { return entries.data(); }
  [[nodiscard]] const Buffered* end() const { return entries.data() + size; }
  void push(const Buffered& entry) { entries.at(size++) = entry; }
  Buffered pop() {
    const Buffered front = entries.front();
    std::copy(begin() + 1, end(), entries.begin());
    --size;
    return front;
  }
};

// A model uses as many words and threads as it has, and leaves the others 0.
struct State {
  std::array<Value, kMaxWords> words{};
  std::array<std::uint32_t, kMaxThreads> nodes{};
  std::array<Buffer, kMaxThreads> buffers{};
};

// The bytes of a state; equal states have equal bytes. It is a plain array, since the search spends
// its time here.
struct StateBytes {
  std::array<char, kMaxWords + kMaxThreads * (4 + 3 * kMaxBuffered)> data;
  std::size_t size = 0;
  void put(std::uint32_t value) { data[size++] = static_cast<char>(value & 0xffU); }
};

inline void encode(const State& state, std::size_t words, std::size_t threads, StateBytes& out) {
  std::copy_n(state.words.begin(), words, out.data.begin());
  out.size = words;
  for (std::size_t i = 0; i < threads; ++i) {
    for (unsigned shift = 0; shift < 24; shift += 8) out.put(state.nodes[i] >> shift);
    out.put(state.buffers[i].size);
    for (const Buffered& entry : state.buffers[i]) {
      out.put(entry.word);
      out.put(entry.value);
      out.put(entry.adds);
    }
  }
}

inline State decode_state(std::string_view data, std::size_t words, std::size_t threads) {
  std::size_t at = 0;
  const auto take = [&] { return static_cast<Value>(data[at++]); };
  State state;
  for (std::size_t i = 0; i < words; ++i) state.words[i] = take();
  for (std::size_t i = 0; i < threads; ++i) {
    for (unsigned shift = 0; shift < 24; shift += 8) {
      state.nodes[i] |= std::uint32_t{take()} << shift;
    }
    Buffer& buffer = state.buffers[i];
    buffer.size = take();
    for (std::size_t k = 0; k < buffer.size; ++k) {
      buffer.entries[k].word = take();
      buffer.entries[k].value = take();
      buffer.entries[k].adds = take();
    }
  }
  return state;
}

}  // namespace ronde::test
