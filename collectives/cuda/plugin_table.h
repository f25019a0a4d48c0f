// SPDX-License-Identifier: Apache-2.0
// The table of functions that a library with this back end exports.
#pragma once

#include "collectives/device/plugin.h"

namespace ronde::collectives::cuda {

[[nodiscard]] const ronde_plugin& plugin_table();

}  // namespace ronde::collectives::cuda
