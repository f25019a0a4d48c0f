# SPDX-License-Identifier: Apache-2.0
"""The machine that is measured on, and whether other programs use it."""

import os
import pathlib
import time


def machine_text():
    model = "unknown CPU"
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of {model}"


def busy_cores(seconds=0.5):
    """Returns how many cores other programs use now."""
    def used():
        ticks = [int(text) for text in pathlib.Path("/proc/stat").read_text(encoding="ascii").split()[1:9]]
        return sum(ticks) - ticks[3] - ticks[4]  # neither idle time nor time spent waiting for a disk

    before, begin = used(), time.monotonic()
    time.sleep(seconds)
    return (used() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - begin)


def note_busy_machine(log):
    """Warns when other programs run, since they change what is measured; returns whether they do."""
    busy = busy_cores()
    if busy < 0.1:
        return False
    log(f"warning: other programs use {busy:.1f} cores of this machine, so the figures below mean little")
    return True
