# SPDX-License-Identifier: Apache-2.0
"""Jobs of engines in one process."""
from __future__ import annotations

import ctypes

from ._library import LIBRARY, call


class LocalJob:
    """A job of `size` ranks whose engines all live in this process, for tests: each is opened in a thread of its own
    with Engine(job, rank)."""

    def __init__(self, size: int) -> None:
        self._pointer = ctypes.c_void_p()
        call(LIBRARY.ronde_local_job_create, size, ctypes.byref(self._pointer))

    def __del__(self) -> None:
        LIBRARY.ronde_local_job_release(self._pointer)
