// SPDX-License-Identifier: Apache-2.0
// One error, not a page about std::span.
// wrong: -std=c++17
// says: (?s)\A((?!error: ).)*error: #error "Ronde's C\+\+ facade needs C\+\+20((?!error: ).)*\Z
// right: -std=c++20
#include <ronde/ronde.hpp>
