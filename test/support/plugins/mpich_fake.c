/* SPDX-License-Identifier: Apache-2.0 */
/* What can be seen of an MPI of another family that a program is linked with and has started: see
 * process_mpi_test.cc, and test/outside. */
#include <string.h>

#define SEEN __attribute__((visibility("default")))

SEEN int MPI_Initialized(int* flag);
SEEN int MPI_Initialized(int* flag) {
  *flag = 1;
  return 0;
}
SEEN int MPI_Get_library_version(char* text, int* length);
SEEN int MPI_Get_library_version(char* text, int* length) {
  strcpy(text, "MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7 12:34:45 CDT 2022\n");
  *length = (int)strlen(text);
  return 0;
}
