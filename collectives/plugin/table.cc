// SPDX-License-Identifier: Apache-2.0
// How a plug-in is loaded, and which tables are refused.
#include "collectives/plugin/table.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

namespace ronde::collectives {

using base::Code;
using base::Status;

namespace {

Status refused(const std::string& path, const std::string& why) {
  return Status::error(Code::kUnsupported, "the plug-in " + path + " is not used: " + why);
}

}  // namespace

base::Result<const PluginHead*> load_plugin_table(const std::string& path, const char* entry,
                                                  std::uint32_t version, std::size_t bytes) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return Status::error(Code::kSystem, "the plug-in " + path + " cannot be loaded: " +
                                            (why != nullptr ? why : "no reason was given"));
  }
  void* const symbol = ::dlsym(library, entry);
  if (symbol == nullptr) return refused(path, "it has no " + std::string(entry));
  const auto* const table =
      static_cast<const PluginHead*>(reinterpret_cast<const void* (*)()>(symbol)());
  if (table == nullptr || table->name == nullptr) {
    return refused(path, "it has no table or no name");
  }
  const std::string name = "'" + std::string(table->name) + "'";
  if (table->version != version) {
    return refused(path, name + " is of version " + std::to_string(table->version) +
                             " of the interface, and this Ronde of " + std::to_string(version) +
                             "; install the plug-in that came with this libronde.so");
  }
  if (table->struct_size < bytes) {
    return refused(path, "the table of " + name + " has " + std::to_string(table->struct_size) +
                             " bytes of " + std::to_string(bytes));
  }
  return table;
}

Status check_plugin_functions(const std::string& path, const char* name,
                              std::span<const PluginFunction> functions) {
  for (const PluginFunction& function : functions) {
    if (function.there) continue;
    return refused(path,
                   "'" + std::string(name) + "' has no function " + std::string(function.name));
  }
  return {};
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

}  // namespace ronde::collectives
