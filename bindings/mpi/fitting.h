// SPDX-License-Identifier: Apache-2.0
// Which reductions of MPI are also Ronde's.
#pragma once

#include <mpi.h>
#include <ronde/ronde.h>

#include <cstdint>
#include <optional>
#include <string>

namespace ronde::mpi_allreduce {

// A reduction that Ronde does as MPI does it. Thread safety: a value.
struct Reduction {
  ronde_dtype dtype;
  ronde_op op;
  std::int64_t element_bytes;
};

// Returns nothing for a derived type, an operation of the program's, and what Ronde has not: the
// logical operations, MPI_MINLOC, complex numbers, long double. Asks no rank, and MPI nothing.
std::optional<Reduction> reduction_of(MPI_Datatype datatype, MPI_Op op);

// What the ranks call a reduction, the same on all of them: "1000 f32 sum".
std::string name_of(const Reduction& reduction, int count);

// The bytes of an element of a type whose elements lie one after the other; 0 for any other type.
std::int64_t bytes_of_basic(MPI_Datatype datatype);

// What a blocking call is, in 64 bits, so that the ranks can compare it: a reduction of Ronde, one
// that is not known here, of which the count and the bytes of an element are compared, a broadcast
// and a barrier.
std::uint64_t form_of(const Reduction& reduction, int count);
std::uint64_t form_of_mpi(int count, int element_bytes);
std::uint64_t form_of_broadcast(std::int64_t bytes, int root);
std::uint64_t form_of_barrier();

}  // namespace ronde::mpi_allreduce
