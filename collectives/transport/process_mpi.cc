// SPDX-License-Identifier: Apache-2.0
// How the MPI of a process is found and told from others, without any header of an MPI.
#include "collectives/transport/process_mpi.h"

#include <dlfcn.h>
#include <link.h>

#include <cstddef>
#include <string_view>
#include <vector>

namespace ronde::collectives {

using base::Code;
using base::Status;

namespace {

// The two functions have the same shape in every MPI, and may be called before MPI is started.
using Initialized = int (*)(int*);
using GetLibraryVersion = int (*)(char*, int*);

// MPI_MAX_LIBRARY_VERSION_STRING is 256 in Open MPI and 8192 in MPICH.
constexpr std::size_t kLongestVersion = 16384;

std::optional<ProcessMpi> mpi_of(void* library) {
  const auto initialized = reinterpret_cast<Initialized>(::dlsym(library, "MPI_Initialized"));
  if (initialized == nullptr) return std::nullopt;
  ProcessMpi mpi{"an MPI of unknown make", false};
  int flag = 0;
  mpi.started = initialized(&flag) == 0 && flag != 0;
  const auto version =
      reinterpret_cast<GetLibraryVersion>(::dlsym(library, "MPI_Get_library_version"));
  std::vector<char> text(kLongestVersion);
  int length = 0;
  if (version != nullptr && version(text.data(), &length) == 0 && length > 0) {
    const std::string whole(text.data());
    mpi.library = whole.substr(0, whole.find_first_of(",\n"));  // the rest says how it was built
    for (char& letter : mpi.library) letter = letter == '\t' ? ' ' : letter;
  }
  return mpi;
}

// The loaded libraries named libmpi*.so*. The loader's lock is held while they are listed, so
// nothing else is done meanwhile.
std::vector<std::string> libraries_named_mpi() {
  std::vector<std::string> paths;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* context) {
        const std::string_view path(info->dlpi_name);
        const std::string_view name = path.substr(path.rfind('/') + 1);
        if (name.starts_with("libmpi")) {
          static_cast<std::vector<std::string>*>(context)->emplace_back(path);
        }
        return 0;
      },
      &paths);
  return paths;
}

std::optional<MpiFamily> family_of(const std::string& library) {
  if (library.starts_with("Open MPI")) return MpiFamily::kOpenMpi;
  for (const char* name : {"MPICH", "Intel", "MVAPICH"}) {
    if (library.starts_with(name)) return MpiFamily::kMpich;
  }
  return std::nullopt;
}

std::string name_of(MpiFamily family) {
  switch (family) {
    case MpiFamily::kOpenMpi:
      return "Open MPI";
    case MpiFamily::kMpich:
      return "MPICH";
  }
  return "an unknown MPI (" + std::to_string(static_cast<int>(family)) + ")";
}

}  // namespace

std::optional<ProcessMpi> process_mpi() {
  if (auto mpi = mpi_of(RTLD_DEFAULT)) return mpi;
  for (const std::string& path : libraries_named_mpi()) {
    void* const library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    auto mpi = mpi_of(library);
    ::dlclose(library);
    if (mpi) return mpi;
  }
  return std::nullopt;
}

Status check_mpi(const TransportLibrary& plugin, const ProgramCommunicator* communicator,
                 const std::optional<ProcessMpi>& loaded) {
  const auto own = static_cast<MpiFamily>(plugin.table().mpi_family);
  if (communicator != nullptr && communicator->family != own) {
    return Status::error(Code::kInvalidArgument,
                         "the program was compiled with the mpi.h of " +
                             name_of(communicator->family) + ", and " + plugin.path() +
                             " with that of " + plugin.library() +
                             ": they cannot share a communicator; build both with the same MPI");
  }
  if (!loaded) return {};
  const auto other = family_of(loaded->library);
  if (other == own) return {};
  return Status::error(Code::kUnsupported,
                       "the program is linked with " + loaded->library + ", and " + plugin.path() +
                           " with " + plugin.library() +
                           ": one process cannot use both; build both with the same MPI");
}

}  // namespace ronde::collectives
