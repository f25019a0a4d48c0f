// SPDX-License-Identifier: Apache-2.0
// What may be handed over as the elements of a tensor. Included by ronde.hpp.
#pragma once

#include <ranges>
#include <span>
#include <type_traits>

namespace ronde {

// The elements of a tensor, in one piece, that outlive the call: a container that has a name (a
// vector, an array, a ronde::Buffer) or a view of one (a span). A temporary container is refused by
// std::ranges::borrowed_range, since the engine uses the memory after the call has returned.
template <typename R>
concept TensorRange = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
                      std::ranges::borrowed_range<R>;
// The same, into which results are written.
template <typename R>
concept OutputRange =
    TensorRange<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

namespace detail {

template <TensorRange R>
auto span_of(R&& range) {
  using Element = std::remove_reference_t<std::ranges::range_reference_t<R>>;
  return std::span<Element>(std::ranges::data(range), std::ranges::size(range));
}

}  // namespace detail
}  // namespace ronde
