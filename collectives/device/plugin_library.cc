// SPDX-License-Identifier: Apache-2.0
// Where a device's plug-in lies, and which functions it must have.
#include "collectives/device/plugin_library.h"

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "collectives/plugin/table.h"

namespace ronde::collectives {

namespace {

constexpr std::string_view kOwnPlugin = "libronde_cuda.so";
constexpr std::string_view kNoPlugin = "off";

}  // namespace

PluginPlace plugin_place(const std::string& wanted, const std::string& library_folder) {
  namespace fs = std::filesystem;
  if (wanted == kNoPlugin) return {"", true};
  // The loader would look for a name without a folder in the current one.
  if (wanted.empty() && library_folder.empty()) return {"", false};
  if (wanted.empty()) return {(fs::path(library_folder) / kOwnPlugin).string(), false};
  std::error_code ignored;
  if (fs::is_directory(wanted, ignored)) return {(fs::path(wanted) / kOwnPlugin).string(), true};
  return {wanted, true};
}

base::Result<PluginLibrary> PluginLibrary::load(const std::string& path) {
  const auto head =
      load_plugin_table(path, RONDE_PLUGIN_ENTRY, RONDE_PLUGIN_VERSION, sizeof(ronde_plugin));
  RONDE_RETURN_IF_ERROR(head.status());
  const auto& table = *reinterpret_cast<const ronde_plugin*>(*head);
  const std::array<PluginFunction, 16> functions{{
      {"open", table.open != nullptr},
      {"close", table.close != nullptr},
      {"abort", table.abort != nullptr},
      {"classify", table.classify != nullptr},
      {"check_stream", table.check_stream != nullptr},
      {"mark", table.mark != nullptr},
      {"unmark", table.unmark != nullptr},
      {"poll", table.poll != nullptr},
      {"wait_on", table.wait_on != nullptr},
      {"release", table.release != nullptr},
      {"allocate_host", table.allocate_host != nullptr},
      {"free_host", table.free_host != nullptr},
      {"copy_out", table.copy_out != nullptr},
      {"copy_in", table.copy_in != nullptr},
      {"allocate", table.allocate != nullptr},
      {"free", table.free != nullptr},
  }};
  RONDE_RETURN_IF_ERROR(check_plugin_functions(path, table.name, functions));
  return PluginLibrary(&table);
}

}  // namespace ronde::collectives
