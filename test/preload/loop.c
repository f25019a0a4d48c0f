/* SPDX-License-Identifier: Apache-2.0
 * A loop of MPI_Allreduce as benchmarks of MPI have it: loop BYTES CALLS prints the median of the
 * calls, each as long as that of its slowest rank, in microseconds. The sum is checked. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  if (argc != 3) return 1;
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int count = atoi(argv[1]) / (int)sizeof(float), calls = atoi(argv[2]);
  float* input = malloc((size_t)count * sizeof *input);
  float* output = malloc((size_t)count * sizeof *output);
  double* seconds = malloc((size_t)calls * sizeof *seconds);
  if (input == NULL || output == NULL || seconds == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  for (int i = 0; i < count; ++i) input[i] = (float)(rank + 1);
  for (int call = -20; call < calls; ++call) { /* to warm up: the library begins in the ninth */
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    MPI_Allreduce(input, output, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    const double mine = MPI_Wtime() - begin;
    double slowest;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (call >= 0) seconds[call] = slowest;
  }
  const float sum = (float)(size * (size + 1)) / 2;
  for (int i = 0; i < count; ++i) {
    if (output[i] != sum) MPI_Abort(MPI_COMM_WORLD, 1);
  }
  qsort(seconds, (size_t)calls, sizeof *seconds, compare);
  if (rank == 0) printf("%.3f\n", seconds[calls / 2] * 1e6);
  free(input);
  free(output);
  free(seconds);
  MPI_Finalize();
  return 0;
}
