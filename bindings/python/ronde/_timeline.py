# SPDX-License-Identifier: Apache-2.0
"""The timeline, under Horovod's names."""
from __future__ import annotations

from ._job import current_engine


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Writes what this rank does from now on into a trace file, for chrome://tracing or ui.perfetto.dev. The ranks of
    a host that name the same path share the file. Raises Error if it cannot be written, or if a timeline
    with another path is on.

    mark_cycles: marks where batches begin, which are what Ronde has for Horovod's cycles.
    """
    current_engine().start_timeline(file_path, mark_cycles)


def stop_timeline() -> None:
    """Writes the rest and ends the timeline. Raises Error if the file could not be written."""
    current_engine().stop_timeline()
