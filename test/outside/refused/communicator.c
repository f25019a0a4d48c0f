/* SPDX-License-Identifier: Apache-2.0
 * R4: what a handle of MPI is, a pointer or a number, is not the program's business.
 * says: mpi_communicator|[Ii]nt-conversion */
#include <ronde/mpi.h>

void use(ronde_engine_options* options);
void use(ronde_engine_options* options) {
#ifdef RIGHT
  ronde_engine_options_set_communicator(options, MPI_COMM_WORLD);
#else
  options->mpi_communicator = MPI_COMM_WORLD;
#endif
}
