// SPDX-License-Identifier: Apache-2.0
// Which flags go together. Pure.
#pragma once

#include "examples/perf/options/options.h"

namespace ronde::perf {

// Throws UsageError for a value that is wrong only because of another flag.
void check_together(const Options& options);

}  // namespace ronde::perf
