// SPDX-License-Identifier: Apache-2.0
// Loading a plug-in: a shared library whose one function returns a table of functions. What the
// functions are is the business of those who call them (a device's plugin.h, a transport's).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace ronde::collectives {

// What comes first in the table of every plug-in, in every version of its interface.
struct PluginHead {
  std::uint32_t version;
  const char* name;
  std::size_t struct_size;
};

// A function that a table must have.
struct PluginFunction {
  std::string_view name;
  bool there = false;
};

// Loads the library `path` and returns the table that its function `entry` returns. `version` and
// `bytes` are those of the caller's interface. The library stays in memory until the process ends,
// since what plug-ins stand on does not survive being unloaded; it is loaded locally, so that no
// other code uses the symbols of its libraries. kUnsupported: the file is no plug-in of this
// version; the text names it, its version and this one. kSystem: the loader failed, and its words
// are in the text. Thread safety: any thread.
base::Result<const PluginHead*> load_plugin_table(const std::string& path, const char* entry,
                                                  std::uint32_t version, std::size_t bytes);

// Refuses a table without one of these functions (kUnsupported).
base::Status check_plugin_functions(const std::string& path, const char* name,
                                    std::span<const PluginFunction> functions);

// The folder of the library that this code is linked into; empty if that is unknown.
[[nodiscard]] std::string own_library_folder();

}  // namespace ronde::collectives
