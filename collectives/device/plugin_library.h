// SPDX-License-Identifier: Apache-2.0
// Finding a device back end and checking that it is one: see plugin.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/device/plugin.h"

namespace ronde::collectives {

// Where a plug-in may be. `wanted` (RONDE_PLUGIN_PATH) is a file or a folder, or "off", and then
// the only place; `library_folder` is where libronde.so lies, if that is known.
struct PluginPlace {
  std::string path;  // empty: there is none, or (required) none is wanted
  // Somebody asked for it: that it is missing is worth a warning.
  bool required = false;

  friend bool operator==(const PluginPlace&, const PluginPlace&) = default;
};
[[nodiscard]] PluginPlace plugin_place(const std::string& wanted,
                                       const std::string& library_folder);

// The folder of the library that this code is linked into; empty where that cannot be told.
[[nodiscard]] std::string own_library_folder();

// A loaded plug-in whose table is complete and of this version. It stays in memory until the
// process ends: a device's runtime does not survive being unloaded.
// Thread safety: immutable.
class PluginLibrary {
 public:
  // kUnsupported: what lies there is no plug-in of this version, and the text names it, its version
  // and this one. kSystem: it cannot be loaded, in the loader's words.
  static base::Result<PluginLibrary> load(const std::string& path);

  [[nodiscard]] const ronde_plugin& table() const { return *table_; }
  [[nodiscard]] std::string name() const { return table_->name; }

 private:
  explicit PluginLibrary(const ronde_plugin* table) : table_(table) {}

  const ronde_plugin* table_;
};

}  // namespace ronde::collectives
