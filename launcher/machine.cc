// SPDX-License-Identifier: Apache-2.0
// The part of ronderun that reads files: cores, quotas and programs of this machine.
#include "launcher/machine.h"

#include <elf.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iterator>
#include <memory>
#include <optional>
#include <system_error>
#include <vector>

#include "base/config.h"
#include "base/host_name.h"
#include "base/process/cores.h"
#include "base/process/environment.h"
#include "base/process/secrets.h"
#include "base/text.h"
#include "base/wire/interfaces.h"
#include "launcher/host_files.h"
#include "launcher/shell.h"

namespace ronde::launcher {

namespace {

// Or else where the loader looks. A blank or a colon would end its name in LD_PRELOAD.
std::string accelerator() {
  static constexpr const char* kName = "libronde_mpi_allreduce.so";
  const auto file = beside_this_program(kName);
  return file && file->find_first_of(" :") == std::string::npos ? *file : kName;
}

base::Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file.fail() || file.eof()) {
    if (file.is_open()) return text;
  }
  return base::Status::error(base::Code::kInvalidArgument, path + " cannot be read");
}

// What this host is called by others.
Self self() {
  Self result;
  result.names.push_back(base::host_name());
  if (const auto all = base::list_interfaces(); all.ok()) {
    for (const base::InterfaceAddress& one : *all) result.names.push_back(text_of(one.address));
  }
  if (const passwd* const user = ::getpwuid(::geteuid())) result.user = user->pw_name;
  return result;
}

// What loads a program; empty: it is no program of the loader's.
std::string loader_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr head{};
  file.read(reinterpret_cast<char*>(&head), sizeof head);
  if (!file || std::memcmp(&head.e_ident, ELFMAG, SELFMAG) != 0) return "";
  file.seekg(static_cast<std::streamoff>(head.e_phoff));
  for (int i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr part{};
    file.read(reinterpret_cast<char*>(&part), sizeof part);
    if (!file || part.p_type != PT_INTERP || part.p_filesz == 0 || part.p_filesz > PATH_MAX)
      continue;
    std::string name(part.p_filesz - 1, '\0');
    file.seekg(static_cast<std::streamoff>(part.p_offset));
    file.read(name.data(), std::ssize(name));
    return file ? name : "";
  }
  return "";
}

}  // namespace

std::optional<std::string> beside_this_program(const std::string& name) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  for (const char* folder : {"lib", RONDE_LIBRARY_FOLDER}) {
    const std::filesystem::path file = program.parent_path().parent_path() / folder / name;
    if (std::filesystem::exists(file, error)) return file.string();
  }
  return std::nullopt;
}

void forget_the_rank() {
  const bool marked = ::getenv("RONDE_RANK_PROCESS") != nullptr;
  // A shell that ronderun has started has no mark, and no rank of ours comes from anybody else.
  if (::getenv("RONDE_RANK") == nullptr && !marked) return;
  for (const std::string& line : base::process_environment()) {
    const std::string name = line.substr(0, line.find('='));
    if (is_of_a_rank(name) && (marked || name.starts_with("RONDE_"))) ::unsetenv(name.c_str());
  }
}

std::string new_secret() { return base::hex_of(base::random_bytes<32>().value()); }

Facts facts_of_this_machine(const std::string& program) {
  const std::vector<int> processors = base::allowed_processors();
  std::error_code error;
  Facts facts;
  const auto allowed = static_cast<std::int64_t>(processors.size());
  facts.cores = base::cores_of_cgroups(std::max<std::int64_t>(1, allowed));
  facts.slots = std::max<std::int64_t>(1, std::ssize(processors_of_cores()));
  facts.nodes = std::ssize(processors_of_nodes());
  facts.self = self();
  facts.folder = std::filesystem::current_path(error).string();
  facts.ronderun = std::filesystem::read_symlink("/proc/self/exe", error).string();
  facts.is_root = geteuid() == 0;
  facts.has_ucx = beside_this_program("libronde_ucx.so").has_value();
  facts.mpi_in_program = mpi_of_program(program);
  facts.job = base::hex_of(base::random_bytes<8>().value());
  facts.accelerator = accelerator();
  facts.environment = base::process_environment();
  facts.read = read_file;
  return facts;
}

// The loader lists what it would load, and does not start the program.
std::string mpi_of_program(const std::string& path) {
  const std::string loader = loader_of(path);
  if (loader.empty()) return "";
  const std::string line =
      shell_quoted(std::array<std::string, 5>{"timeout", "5", loader, "--list", path});
  // NOLINTNEXTLINE(bugprone-command-processor): the words are quoted
  const std::unique_ptr<FILE, int (*)(FILE*)> list(::popen((line + " 2>/dev/null").c_str(), "r"),
                                                   ::pclose);
  std::string text;
  std::array<char, 4096> bytes{};
  while (list != nullptr) {
    const std::size_t size = std::fread(bytes.data(), 1, bytes.size(), list.get());
    if (size == 0) break;
    text.append(bytes.data(), size);
  }
  const std::size_t at = text.find("libmpi");
  return at == std::string::npos ? "" : text.substr(at, text.find_first_of(" \n", at) - at);
}

}  // namespace ronde::launcher
