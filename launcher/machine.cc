// SPDX-License-Identifier: Apache-2.0
// The part of ronderun that reads files: cores, quotas and programs of this machine.
#include "launcher/machine.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iterator>
#include <set>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/config.h"
#include "base/process/cores.h"
#include "base/process/environment.h"
#include "base/process/secrets.h"
#include "base/text.h"
#include "launcher/lines.h"

namespace ronde::launcher {

namespace {

constexpr std::streamoff kTail = 8192;  // bytes that hold the last line of a file

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// mpirun's slots are whole cores, however many hardware threads each has.
std::int64_t whole_cores(const std::vector<int>& processors) {
  std::set<std::string> siblings;
  for (const int processor : processors) {
    siblings.insert(first_line("/sys/devices/system/cpu/cpu" + std::to_string(processor) +
                               "/topology/thread_siblings_list"));
  }
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(siblings.size()));
}

// The library beside this program, in a build and in an installed tree, or else where the loader
// looks. A blank or a colon would end its name in LD_PRELOAD.
std::string accelerator() {
  static constexpr const char* kName = "libronde_mpi_allreduce.so";
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  for (const char* folder : {"lib", RONDE_LIBRARY_FOLDER}) {
    const std::filesystem::path file = program.parent_path().parent_path() / folder / kName;
    const bool there = std::filesystem::exists(file, error);
    if (there && file.string().find_first_of(" :") == std::string::npos) return file.string();
  }
  return kName;
}

// Whether a launcher has set this for its rank. What users set for Open MPI stays.
bool is_of_a_rank(std::string_view name) {
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"RONDE_RANK", "RONDE_SIZE", "RONDE_MEET", "RONDE_JOB", "RONDE_RANK_PROCESS", "RANK",
       "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "MASTER_ADDR",
       "MASTER_PORT", "TF_CONFIG", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
  static constexpr auto kPrefixes = std::to_array<std::string_view>(
      {"PMIX_", "PMI_", "MV2_COMM_WORLD_", "JSM_NAMESPACE_", "HOROVOD_RANK", "HOROVOD_SIZE",
       "HOROVOD_LOCAL_", "HOROVOD_CROSS_", "HOROVOD_GLOO_", "TORCHELASTIC_", "OMPI_MCA_orte_",
       "OMPI_MCA_ess", "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir", "OMPI_MCA_shmem_RUNTIME"});
  const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
  if (std::ranges::find(kNames, name) != kNames.end() ||
      (std::ranges::any_of(kPrefixes, begins) && !begins("PMIX_MCA_"))) {
    return true;
  }
  return begins("OMPI_") && !begins("OMPI_MCA_") && !begins("OMPI_ALLOW_");
}

}  // namespace

void forget_the_rank() {
  if (::getenv("RONDE_RANK_PROCESS") == nullptr) return;
  for (const std::string& line : base::process_environment()) {
    const std::string name = line.substr(0, line.find('='));
    if (is_of_a_rank(name)) ::unsetenv(name.c_str());
  }
}

std::string new_secret() { return base::hex_of(base::random_bytes<32>().value()); }

Facts facts_of_this_machine() {
  const std::vector<int> processors = base::allowed_processors();
  Facts facts;
  const auto allowed = static_cast<std::int64_t>(processors.size());
  facts.cores = base::cores_of_cgroups(std::max<std::int64_t>(1, allowed));
  facts.slots = whole_cores(processors);
  facts.is_root = geteuid() == 0;
  facts.job = base::hex_of(base::random_bytes<8>().value());
  facts.accelerator = accelerator();
  facts.environment = base::process_environment();
  return facts;
}

std::string last_line_in(const std::string& folder, std::filesystem::file_time_type since) {
  std::error_code error;
  std::filesystem::path latest;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("rank.") || !name.ends_with(".err")) continue;
    const auto written = entry.last_write_time(error);
    if (error || written < since) continue;
    since = written;
    latest = entry.path();
  }
  if (latest.empty()) return "";
  std::ifstream file(latest);
  file.seekg(0, std::ios::end);
  file.seekg(std::max<std::streamoff>(0, std::streamoff{file.tellg()} - kTail));
  LastLine last;
  last.take(std::string(std::istreambuf_iterator<char>(file), {}));
  // Where a rank has printed nothing, this is the line that begins the start.
  return last.text().starts_with("ronderun: ") ? "" : last.text();
}

Program find_program(const std::string& name, const std::string& path) {
  Program best;
  const auto look_at = [&best](const std::string& candidate) {
    struct stat info {};
    if (stat(candidate.c_str(), &info) != 0) return false;
    const bool runs = S_ISREG(info.st_mode) && access(candidate.c_str(), X_OK) == 0;
    if (runs || best.found == Found::kNo) {
      best = {runs ? Found::kYes : Found::kNotExecutable, candidate};
    }
    return runs;
  };
  if (name.find('/') != std::string::npos) {
    look_at(name);
    return best;
  }
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, end - begin);
    if (look_at((folder.empty() ? "." : folder) + "/" + name)) break;
    begin = end + 1;
  }
  return best;
}

}  // namespace ronde::launcher
