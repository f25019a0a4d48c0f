# SPDX-License-Identifier: Apache-2.0
"""Horovod's questions: what Ronde was built with, and what this process uses of it."""
from __future__ import annotations

import ctypes
import ctypes.util
import os
import pathlib
from typing import Optional

from . import _job

_PLUGIN = "libronde_mpi.so"
_THREAD_MULTIPLE = 3  # MPI_THREAD_MULTIPLE of Open MPI and of MPICH


def _loaded(name: str) -> Optional[pathlib.Path]:
    """The file of the library in this process whose name begins so; None where it is not loaded."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            path = line.rstrip("\n").split(maxsplit=5)[5:]  # what is no file has none
            if path and os.path.basename(path[0]).startswith(name):
                return pathlib.Path(path[0])
    return None


def mpi_built() -> bool:
    """Whether the plug-in for MPI, libronde_mpi.so, is where Ronde looks for it: in the folder RONDE_TRANSPORT_PATH if
    that is set, else beside libronde.so or where the loader finds libraries."""
    named = os.environ.get("RONDE_TRANSPORT_PATH")
    if named:
        return (pathlib.Path(named) / _PLUGIN).is_file()
    library = _loaded("libronde.so")
    beside = library is not None and (library.parent / _PLUGIN).is_file()
    return beside or ctypes.util.find_library("ronde_mpi") is not None


def mpi_enabled() -> bool:
    """Whether this process uses MPI: from init() on where MPI has started the ranks. A job of one, and one whose ranks
    torchrun, TF_CONFIG, Slurm or a store has brought together, uses none."""
    return _loaded(_PLUGIN) is not None


def mpi_threads_supported() -> bool:
    """Whether the program may call MPI from any thread while operations are in flight. Where Ronde itself then calls no
    MPI (on one host, unless RONDE_ALGORITHM names an algorithm) that is True; else MPI must have been started with
    MPI_THREAD_MULTIPLE, and Ronde starts it below. Raises InvalidArgument, which is a ValueError, before init()."""
    one_host = _job.local_size() == _job.size()
    plugin = _loaded(_PLUGIN)
    if plugin is None or (one_host and os.environ.get("RONDE_ALGORITHM", "") in ("", "auto")):
        return True
    level = ctypes.c_int(-1)
    ctypes.CDLL(str(plugin)).MPI_Query_thread(ctypes.byref(level))  # of the MPI that the plug-in is linked with
    return level.value >= _THREAD_MULTIPLE


def _never() -> bool:
    """False: Ronde's Python package never uses it. Tensors are in host memory, and reduced by Ronde itself."""
    return False


gloo_built = gloo_enabled = ddl_built = ccl_built = cuda_built = rocm_built = _never


def nccl_built() -> int:
    """0: the Python package takes tensors in host memory alone, also where libronde_cuda.so is there."""
    return 0
