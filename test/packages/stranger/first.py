# SPDX-License-Identifier: Apache-2.0
import numpy
import ronde

ronde.init()
total = ronde.allreduce(numpy.full(1000, 1.0 + ronde.rank()), name="x", op=ronde.Sum)
print(f"rank {ronde.rank()}: {ronde.size()} ranks, sum {total[0]:.0f}")
