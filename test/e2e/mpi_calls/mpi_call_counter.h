// SPDX-License-Identifier: Apache-2.0
// What mpi_call_counter.cc has counted.
#pragma once

#include <string>

// "MPI_Isend 3, MPI_Test 40": the MPI functions that this process has called since the last look,
// and how often; empty when there was none. Thread safety: any thread.
[[gnu::visibility("default")]] std::string take_mpi_calls();
