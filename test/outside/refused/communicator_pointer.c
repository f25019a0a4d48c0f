/* SPDX-License-Identifier: Apache-2.0
 * R4: the function takes the handle, no pointer to it.
 * says: ronde_engine_options_set_communicator */
#include <ronde/mpi.h>

void use(ronde_engine_options* options, MPI_Comm communicator);
void use(ronde_engine_options* options, MPI_Comm communicator) {
#ifdef RIGHT
  ronde_engine_options_set_communicator(options, communicator);
#else
  ronde_engine_options_set_communicator(options, &communicator);
#endif
}
