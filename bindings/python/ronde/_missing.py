# SPDX-License-Identifier: Apache-2.0
"""What Horovod has and Ronde's runtime lacks, by name."""
from __future__ import annotations

from typing import Any


def elastic_attribute(module: str, name: str) -> Any:
    """For a module's __getattr__: Horovod's elastic training is not there, other names are unknown."""
    if name == "elastic":
        raise NotImplementedError(f"{module}.{name}: Ronde has no elastic training; start the job again with "
                                  "ronderun --restarts")
    raise AttributeError(f"module {module!r} has no attribute {name!r}")
