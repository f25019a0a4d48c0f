# SPDX-License-Identifier: Apache-2.0
"""Makes the back end "ronde" known to torch.distributed, where PyTorch has that."""
from __future__ import annotations

import inspect
from typing import Any, Sequence

import torch
import torch.distributed as dist


def has_python_backends() -> bool:
    """Whether a class of Python can be a back end that PyTorch's own ProcessGroup holds."""
    from torch._C import _distributed_c10d as c10d
    backend = getattr(c10d, "Backend", None)
    if backend is None:
        return False
    try:
        backend(0, 1)
    except TypeError:  # it has no constructor, as in the first versions of PyTorch that have the class
        return False
    return True


def _parent_of(global_ranks: Sequence[int]) -> Any:
    """The group of all ranks, where that is Ronde's, as the parent of a new one; None for itself."""
    from ._group_core import GroupCore
    if not dist.is_initialized():
        return None
    world = dist.group.WORLD
    if has_python_backends():
        cpu = torch.device("cpu")
        world = world._get_backend(cpu) if cpu in world._device_types else None
    return world.parent_of(global_ranks) if isinstance(world, GroupCore) and global_ranks else None


def _create(options: Any, _: Any = None) -> Any:
    if getattr(options, "enable_reconfigure", False):
        raise NotImplementedError("enable_reconfigure=True: a group of the back end ronde cannot change its ranks yet; "
                                  "leave the flag out, and after a failure call destroy_process_group() and "
                                  "init_process_group() again")
    arguments = (options.store, options.group_rank, options.group_size, options.timeout, options.group_id,
                 _parent_of(options.global_ranks_in_group))
    if not has_python_backends():
        from ._process_group import RondeProcessGroup
        return RondeProcessGroup(*arguments)
    from ._group_backend import RondeBackend
    return RondeBackend(*arguments, options.global_ranks_in_group)


def register() -> None:
    """Has init_process_group("ronde") and new_group(backend="ronde") make groups over Ronde."""
    if not dist.is_available() or hasattr(dist.Backend, "RONDE"):
        return
    where = {"devices": ["cpu"]} if "devices" in inspect.signature(dist.Backend.register_backend).parameters else {}
    dist.Backend.register_backend("ronde", _create, extended_api=True, **where)
