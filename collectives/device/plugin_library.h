// SPDX-License-Identifier: Apache-2.0
// Finds a device back end, and checks that it is one that plugin.h describes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/device/plugin.h"

namespace ronde::collectives {

// Where a plug-in may be. `wanted` (RONDE_PLUGIN_PATH) is a file, a folder or "off", and if it is
// given the only place; `library_folder` is where libronde.so lies, if that is known.
struct PluginPlace {
  std::string path;  // empty: there is none, or (required) none is wanted
  // The user has named it, so that its absence is worth a warning.
  bool required = false;

  friend bool operator==(const PluginPlace&, const PluginPlace&) = default;
};
[[nodiscard]] PluginPlace plugin_place(const std::string& wanted,
                                       const std::string& library_folder);

// A loaded plug-in whose table is complete and of this version. Thread safety: immutable.
class PluginLibrary {
 public:
  // Errors: those of load_plugin_table().
  static base::Result<PluginLibrary> load(const std::string& path);

  [[nodiscard]] const ronde_plugin& table() const { return *table_; }
  [[nodiscard]] std::string name() const { return table_->name; }

 private:
  explicit PluginLibrary(const ronde_plugin* table) : table_(table) {}

  const ronde_plugin* table_;
};

}  // namespace ronde::collectives
