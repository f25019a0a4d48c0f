// SPDX-License-Identifier: Apache-2.0
// How a plug-in is located and loaded, and which tables are refused.
#include "collectives/device/plugin_library.h"

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace ronde::collectives {

namespace {

using base::Code;
using base::Result;
using base::Status;

constexpr std::string_view kOwnPlugin = "libronde_cuda.so";
constexpr std::string_view kNoPlugin = "off";

Status refused(const std::string& path, const std::string& why) {
  return Status::error(Code::kUnsupported, "the plug-in " + path + " is not used: " + why);
}

// Returns the name of a function that every plug-in has and this one lacks, or nothing.
std::string_view missing_function(const ronde_plugin& table) {
  const std::array<std::pair<std::string_view, bool>, 16> functions{{
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
  for (const auto& [name, there] : functions) {
    if (!there) return name;
  }
  return {};
}

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

std::string own_library_folder() {
  Dl_info info{};
  // dladdr() takes any address inside this library.
  static constexpr char kHere = 0;
  if (::dladdr(&kHere, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code error;
  const auto path = std::filesystem::canonical(info.dli_fname, error);
  return error ? std::string() : path.parent_path().string();
}

Result<PluginLibrary> PluginLibrary::load(const std::string& path) {
  // The library is never closed (the class says why). It is loaded locally, so that no other code
  // uses symbols of a plug-in's own libraries.
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return Status::error(Code::kSystem, "the plug-in " + path + " cannot be loaded: " +
                                            (why != nullptr ? why : "no reason was given"));
  }
  void* const symbol = ::dlsym(library, RONDE_PLUGIN_ENTRY);
  if (symbol == nullptr) return refused(path, "it has no " RONDE_PLUGIN_ENTRY);
  const auto entry = reinterpret_cast<ronde_plugin_entry_function>(symbol);
  const ronde_plugin* const table = entry();
  if (table == nullptr || table->name == nullptr)
    return refused(path, "it has no table or no name");
  if (table->version != RONDE_PLUGIN_VERSION) {
    return refused(
        path, "'" + std::string(table->name) + "' is of version " + std::to_string(table->version) +
                  " of the interface, and this Ronde of " + std::to_string(RONDE_PLUGIN_VERSION) +
                  "; install the plug-in that came with this libronde.so");
  }
  if (table->struct_size < sizeof(ronde_plugin)) {
    return refused(path, "the table of '" + std::string(table->name) + "' has " +
                             std::to_string(table->struct_size) + " bytes of " +
                             std::to_string(sizeof(ronde_plugin)));
  }
  if (const std::string_view missing = missing_function(*table); !missing.empty()) {
    return refused(path,
                   "'" + std::string(table->name) + "' has no function " + std::string(missing));
  }
  return PluginLibrary(table);
}

}  // namespace ronde::collectives
