# SPDX-License-Identifier: Apache-2.0
"""Ronde: allreduce for data-parallel training, with Horovod's names, on NumPy arrays.

    import ronde
    ronde.init()
    mean = ronde.allreduce(gradient, name="fc1/weight")

ronde.torch has the same for PyTorch. ronde.Engine is the interface underneath. Start the program with
`ronderun -np N python3 train.py` or mpirun; alone it is a job of one.
"""
from ._built import (ccl_built, cuda_built, ddl_built, gloo_built, gloo_enabled, mpi_built, mpi_enabled,
                     mpi_threads_supported, nccl_built, rocm_built)
from ._compression import Compression, Compressor
from ._engine import LocalJob
from ._job import (cross_rank, cross_size, empty, init, is_homogeneous, is_initialized, local_rank, local_size, rank,
                   shutdown, size)
from ._join import join
from ._library import VERSION as __version__
from ._library import Error, InvalidArgument, Op, Status
from ._missing import elastic_attribute
from ._numpy import Engine, NumpyArrays
from ._objects import allgather_object, broadcast_object
from ._operations import Operations
from ._prepared import Prepared
from ._process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from ._run import RunError, run
from ._timeline import start_timeline, stop_timeline
from ._works import Work

Average, Sum, Min, Max, Product = Op.AVERAGE, Op.SUM, Op.MIN, Op.MAX, Op.PRODUCT
BAnd, BOr, BXor, Adasum = Op.BAND, Op.BOR, Op.BXOR, Op.ADASUM
HorovodInternalError = Error

_operations = Operations(NumpyArrays())
allreduce = _operations.allreduce
allreduce_async = _operations.allreduce_async
allreduce_ = _operations.allreduce_
allreduce_async_ = _operations.allreduce_async_
grouped_allreduce = _operations.grouped_allreduce
grouped_allreduce_async = _operations.grouped_allreduce_async
grouped_allreduce_ = _operations.grouped_allreduce_
grouped_allreduce_async_ = _operations.grouped_allreduce_async_
allgather = _operations.allgather
allgather_async = _operations.allgather_async
grouped_allgather = _operations.grouped_allgather
grouped_allgather_async = _operations.grouped_allgather_async
broadcast = _operations.broadcast
broadcast_async = _operations.broadcast_async
broadcast_ = _operations.broadcast_
broadcast_async_ = _operations.broadcast_async_
alltoall = _operations.alltoall
alltoall_async = _operations.alltoall_async
reducescatter = _operations.reducescatter
reducescatter_async = _operations.reducescatter_async
grouped_reducescatter = _operations.grouped_reducescatter
grouped_reducescatter_async = _operations.grouped_reducescatter_async
barrier = _operations.barrier
synchronize = _operations.synchronize
poll = _operations.poll


def __getattr__(name: str):
    return elastic_attribute(__name__, name)
