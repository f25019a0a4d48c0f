// SPDX-License-Identifier: Apache-2.0
// Finds the plug-in of a transport, and checks that it is one that plugin.h describes.
#pragma once

#include <string>

#include "base/status.h"
#include "collectives/transport/plugin.h"

namespace ronde::collectives {

// A loaded plug-in whose table is complete and of this version. Thread safety: immutable.
class TransportLibrary {
 public:
  // Loads libronde_<name>.so: from `folder` (RONDE_TRANSPORT_PATH) alone if one is given, else from
  // beside libronde.so, or from where the loader finds libraries. Errors: those of
  // load_plugin_table().
  static base::Result<TransportLibrary> load(const std::string& name, const std::string& folder);

  [[nodiscard]] const ronde_transport& table() const { return *table_; }
  // "mpi"
  [[nodiscard]] std::string name() const { return table_->name; }
  // The same for people: "MPI".
  [[nodiscard]] std::string title() const;
  // What it stands on: "Open MPI v4.1.4".
  [[nodiscard]] std::string library() const { return table_->library; }
  // The file, for errors.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  TransportLibrary(const ronde_transport* table, std::string path)
      : table_(table), path_(std::move(path)) {}

  const ronde_transport* table_;
  std::string path_;
};

}  // namespace ronde::collectives
