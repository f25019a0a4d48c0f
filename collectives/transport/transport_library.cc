// SPDX-License-Identifier: Apache-2.0
// Where a transport's plug-in lies, and which functions it must have.
#include "collectives/transport/transport_library.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>
#include <vector>

#include "collectives/plugin/table.h"

namespace ronde::collectives {

namespace {

std::string path_of(const std::string& name, const std::string& folder) {
  namespace fs = std::filesystem;
  std::string file = "libronde_" + name + ".so";
  if (!folder.empty()) return (fs::path(folder) / file).string();
  const std::string beside = own_library_folder();
  std::error_code ignored;
  if (!beside.empty() && fs::exists(fs::path(beside) / file, ignored)) {
    return (fs::path(beside) / file).string();
  }
  return file;  // the loader searches its path, and that of this library or program
}

std::vector<PluginFunction> functions_of(const ronde_transport& table) {
  std::vector<PluginFunction> functions{{"open", table.open != nullptr},
                                        {"address", table.address != nullptr},
                                        {"connect", table.connect != nullptr},
                                        {"send", table.send != nullptr},
                                        {"receive", table.receive != nullptr},
                                        {"test", table.test != nullptr},
                                        {"outstanding", table.outstanding != nullptr},
                                        {"abandon", table.abandon != nullptr},
                                        {"close", table.close != nullptr}};
  if (const ronde_meeting* meeting = table.meeting) {
    functions.insert(functions.end(), {{"meeting.join", meeting->join != nullptr},
                                       {"meeting.ranks_here", meeting->ranks_here != nullptr},
                                       {"meeting.allgather", meeting->allgather != nullptr},
                                       {"meeting.abandon", meeting->abandon != nullptr},
                                       {"meeting.leave", meeting->leave != nullptr},
                                       {"meeting.free", meeting->free != nullptr}});
  }
  return functions;
}

}  // namespace

base::Result<TransportLibrary> TransportLibrary::load(const std::string& name,
                                                      const std::string& folder) {
  const std::string path = path_of(name, folder);
  const auto head = load_plugin_table(path, RONDE_TRANSPORT_ENTRY, RONDE_TRANSPORT_VERSION,
                                      sizeof(ronde_transport));
  RONDE_RETURN_IF_ERROR(head.status());
  const auto& table = *reinterpret_cast<const ronde_transport*>(*head);
  RONDE_RETURN_IF_ERROR(check_plugin_functions(path, table.name, functions_of(table)));
  const bool meets =
      table.meeting == nullptr || table.meeting->struct_size >= sizeof(ronde_meeting);
  if (table.library == nullptr || table.name != name || !meets) {
    return base::Status::error(
        base::Code::kUnsupported,
        "the plug-in " + path + " is not used: it calls itself '" + table.name +
            "', or its table is incomplete; install the plug-in that came with "
            "this libronde.so");
  }
  return TransportLibrary(&table, path);
}

std::string TransportLibrary::title() const {
  std::string title = name();
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  return title;
}

}  // namespace ronde::collectives
