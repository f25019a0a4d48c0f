# SPDX-License-Identifier: Apache-2.0
import numpy
from mpi4py import MPI

for _ in range(9):  # the first eight are MPI's
    values = numpy.full(100000, 1.0 + MPI.COMM_WORLD.rank)
    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, values, MPI.SUM)
print(f"rank {MPI.COMM_WORLD.rank}: sum {values[-1]:.0f}")
