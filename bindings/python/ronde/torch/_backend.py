# SPDX-License-Identifier: Apache-2.0
"""Makes the back end "ronde" known to torch.distributed, where PyTorch has that."""
from __future__ import annotations

import inspect
from typing import Any

import torch.distributed as dist


def _create(options: Any, _: Any = None) -> Any:
    from ._process_group import RondeProcessGroup
    return RondeProcessGroup(options.store, options.group_rank, options.group_size, options.timeout, options.group_id)


def register() -> None:
    """Has init_process_group("ronde") and new_group(backend="ronde") make groups over Ronde."""
    if not dist.is_available() or hasattr(dist.Backend, "RONDE"):
        return
    where = {"devices": ["cpu"]} if "devices" in inspect.signature(dist.Backend.register_backend).parameters else {}
    dist.Backend.register_backend("ronde", _create, extended_api=True, **where)
