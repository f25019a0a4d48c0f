# SPDX-License-Identifier: Apache-2.0
"""Ronde for PyTorch: the back end "ronde" of torch.distributed, which importing this makes known, and Horovod's
interface.

    import ronde.torch as hvd
    hvd.init()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

Tensors are on the CPU. Errors of operations are ronde.Error, a RuntimeError.
"""
from .. import (Adasum, Average, BAnd, BOr, BXor, Compression, Compressor, Error, HorovodInternalError,
                InvalidArgument, Max, Min, Op, ProcessSet, Product, RunError, Status, Sum, Work, add_process_set,
                allgather_object, broadcast_object, ccl_built, cross_rank, cross_size, cuda_built, ddl_built,
                global_process_set, gloo_built, gloo_enabled, init, is_homogeneous, is_initialized, join, local_rank,
                local_size, mpi_built, mpi_enabled, mpi_threads_supported, nccl_built, rank, remove_process_set,
                rocm_built, run, shutdown, size, start_timeline, stop_timeline)
from .._missing import elastic_attribute
from ._backend import register as _register_backend
from ._functions import (broadcast_optimizer_state, broadcast_parameters, empty, operations as _operations,
                         sparse_allreduce_async)
from ._optimizer import DistributedOptimizer
from ._sharded import keep_buffers_on_board
from ._sync_batch_norm import SyncBatchNorm

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

_register_backend()


def __getattr__(name: str):
    return elastic_attribute(__name__, name)
