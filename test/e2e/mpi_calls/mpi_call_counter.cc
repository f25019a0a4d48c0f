// SPDX-License-Identifier: Apache-2.0
// A library that stands between the MPI plug-in and MPI and counts the calls, through MPI's
// profiling interface. A program links it before MPI, so its functions come first. It has every
// function that the plug-in imports; mpi_calls.py compares the two lists.
#include "test/e2e/mpi_calls/mpi_call_counter.h"

#include <mpi.h>

#include <array>
#include <atomic>
#include <cstdint>

// X(name, parameters, arguments)
#define COUNTED_MPI_FUNCTIONS(X)                                                                \
  X(Comm_free, (MPI_Comm * a), (a))                                                             \
  X(Comm_get_attr, (MPI_Comm a, int b, void* c, int* d), (a, b, c, d))                          \
  X(Comm_idup, (MPI_Comm a, MPI_Comm * b, MPI_Request * c), (a, b, c))                          \
  X(Comm_rank, (MPI_Comm a, int* b), (a, b))                                                    \
  X(Comm_set_errhandler, (MPI_Comm a, MPI_Errhandler b), (a, b))                                \
  X(Comm_size, (MPI_Comm a, int* b), (a, b))                                                    \
  X(Comm_test_inter, (MPI_Comm a, int* b), (a, b))                                              \
  X(Error_class, (int a, int* b), (a, b))                                                       \
  X(Error_string, (int a, char* b, int* c), (a, b, c))                                          \
  X(Finalize, (void), ())                                                                       \
  X(Finalized, (int* a), (a))                                                                   \
  X(Get_count, (const MPI_Status* a, MPI_Datatype b, int* c), (a, b, c))                        \
  X(Iallgatherv,                                                                                \
    (const void* a, int b, MPI_Datatype c, void* d, const int* e, const int* f, MPI_Datatype g, \
     MPI_Comm h, MPI_Request* i),                                                               \
    (a, b, c, d, e, f, g, h, i))                                                                \
  X(Init_thread, (int* a, char*** b, int c, int* d), (a, b, c, d))                              \
  X(Improbe, (int a, int b, MPI_Comm c, int* d, MPI_Message* e, MPI_Status* f),                 \
    (a, b, c, d, e, f))                                                                         \
  X(Initialized, (int* a), (a))                                                                 \
  X(Iprobe, (int a, int b, MPI_Comm c, int* d, MPI_Status* e), (a, b, c, d, e))                 \
  X(Irecv, (void* a, int b, MPI_Datatype c, int d, int e, MPI_Comm f, MPI_Request* g),          \
    (a, b, c, d, e, f, g))                                                                      \
  X(Isend, (const void* a, int b, MPI_Datatype c, int d, int e, MPI_Comm f, MPI_Request* g),    \
    (a, b, c, d, e, f, g))                                                                      \
  X(Mrecv, (void* a, int b, MPI_Datatype c, MPI_Message* d, MPI_Status* e), (a, b, c, d, e))    \
  X(Query_thread, (int* a), (a))                                                                \
  X(Test, (MPI_Request * a, int* b, MPI_Status* c), (a, b, c))                                  \
  X(Testsome, (int a, MPI_Request* b, int* c, int* d, MPI_Status* e), (a, b, c, d, e))

namespace {

#define RONDE_ENUMERATOR(name, parameters, arguments) k##name,
enum Function : std::size_t { COUNTED_MPI_FUNCTIONS(RONDE_ENUMERATOR) kFunctions };
#undef RONDE_ENUMERATOR

// The counts are global, because MPI's functions have no argument for them.
std::atomic<std::uint64_t>& calls_of(std::size_t function) {
  static std::array<std::atomic<std::uint64_t>, kFunctions> counts{};
  return counts[function];
}

}  // namespace

std::string take_mpi_calls() {
#define RONDE_NAME(name, parameters, arguments) "MPI_" #name,
  constexpr std::array<const char*, kFunctions> kNames{COUNTED_MPI_FUNCTIONS(RONDE_NAME)};
#undef RONDE_NAME
  std::string text;
  for (std::size_t i = 0; i < kFunctions; ++i) {
    const std::uint64_t calls = calls_of(i).exchange(0);
    if (calls == 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(kNames[i]) + " " + std::to_string(calls);
  }
  return text;
}

#define RONDE_WRAPPER(name, parameters, arguments)           \
  [[gnu::visibility("default")]] int MPI_##name parameters { \
    calls_of(k##name).fetch_add(1);                          \
    return PMPI_##name arguments;                            \
  }
extern "C" {
COUNTED_MPI_FUNCTIONS(RONDE_WRAPPER)
}
#undef RONDE_WRAPPER
