/* SPDX-License-Identifier: Apache-2.0
 *
 * Ronde in a program that has a communicator of its own. Link ronde::mpi, which brings mpi.h and
 * the MPI of libronde_mpi.so; another MPI is refused when the engine opens.
 *
 *   ronde_engine_options options;
 *   ronde_engine_options_init(&options);
 *   ronde_engine_options_set_communicator(&options, communicator);
 *   status = ronde_engine_open(&options, &engine, &error);
 *
 * In C++20 it declares ronde::mpi::open() too.
 */
#ifndef RONDE_MPI_H
#define RONDE_MPI_H

#include <mpi.h>
#include <ronde/ronde.h>
#include <string.h>

/* The family of the MPI that this program is compiled with. */
#if defined(OPEN_MPI)
#define RONDE_MPI_FAMILY RONDE_MPI_OPEN_MPI
#elif defined(MPICH_VERSION) || defined(MPICH_NUMVERSION) || defined(I_MPI_VERSION) || \
    defined(MVAPICH2_VERSION) || defined(MVAPICH_VERSION)
#define RONDE_MPI_FAMILY RONDE_MPI_MPICH
#else
#error "<ronde/mpi.h> knows Open MPI, and MPICH with its relatives; this <mpi.h> is another one"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Does not compile where a handle of this MPI is larger than the field that takes it. */
typedef char ronde_mpi_handle_fits[sizeof(MPI_Comm) <= sizeof(uint64_t) ? 1 : -1];

/* Has the engine join the ranks of `communicator`, an intra-communicator, which must stay valid
 * until ronde_engine_open has returned; that call checks it. `options` has been initialised, and is
 * only written here. Any thread. Never fails. */
static inline void ronde_engine_options_set_communicator(ronde_engine_options* options,
                                                         MPI_Comm communicator) {
  options->mpi_communicator = 0;
  memcpy(&options->mpi_communicator, &communicator, sizeof communicator);
  options->mpi_family = RONDE_MPI_FAMILY;
}

#ifdef __cplusplus
}
#endif

#if defined(__cplusplus) && __cplusplus >= 202002L
#include <ronde/mpi.hpp>
#endif

#endif /* RONDE_MPI_H */
