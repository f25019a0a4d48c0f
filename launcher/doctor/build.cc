// SPDX-License-Identifier: Apache-2.0
// What ronderun --check-build prints.
#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "launcher/doctor/doctor.h"
#include "launcher/machine.h"

namespace ronde::launcher {

namespace {

struct Part {
  std::string_view library;
  std::string_view what;
};
constexpr auto kParts = std::to_array<Part>({
    {"libronde.so", "Ronde for programs; shared memory within a host"},
    {"libronde_ucx.so", "UCX between hosts: TCP, InfiniBand, RoCE"},
    {"libronde_mpi.so", "MPI between hosts, and programs that use MPI"},
    {"libronde_cuda.so", "CUDA and NCCL: tensors on GPUs"},
    {"libronde_mpi_allreduce.so", "--accelerate-mpi"},
});

#ifdef __clang__
constexpr const char* kCompiler = "";  // its version begins with its name
#else
constexpr const char* kCompiler = "GCC ";
#endif

}  // namespace

std::vector<std::pair<std::string, std::string>> libraries_of_this_host() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Part& part : kParts) {
    const std::string name(part.library);
    all.emplace_back(name, beside_this_program(name).value_or(""));
  }
  return all;
}

Cpu cpu_of_this_host() {
  static constexpr auto kWanted =
      std::to_array<std::string_view>({"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_bf16",
                                       "avx512_fp16", "amx_tile", "asimd", "sve", "sve2", "bf16"});
  Cpu cpu;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && (cpu.model.empty() || cpu.features.empty());) {
    const std::string value = line.substr(std::min(line.size(), line.find(": ") + 2));
    if (line.starts_with("model name")) cpu.model = value;
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::vector<std::string> words = base::words_of(value);
    std::erase_if(words, [](const std::string& word) {
      return std::ranges::find(kWanted, word) == kWanted.end();
    });
    std::ranges::sort(words);
    cpu.features = base::joined(words, " ");
  }
  return cpu;
}

std::string text_of_build() {
  std::string text =
      "Ronde " RONDE_VERSION_TEXT ", built with " + std::string(kCompiler) + __VERSION__ + "\n";
  const auto libraries = libraries_of_this_host();
  for (std::size_t i = 0; i < libraries.size(); ++i) {
    const auto& [name, path] = libraries[i];
    text += (path.empty() ? "[ ] " : "[X] ") + std::string(kParts[i].what) + ": " +
            (path.empty() ? "no " + name + " beside this program" : path) + "\n";
  }
  const Cpu cpu = cpu_of_this_host();
  return text + "CPU: " + cpu.model + ", " + cpu.features + "\n";
}

}  // namespace ronde::launcher
