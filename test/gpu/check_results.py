#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says whether the committed results of test/gpu/run are those of the kernels as they are now.

    check_results.py [ROOT]

Every test/gpu/results/*.json holds a hash over the sources of the kernels that it was measured with, so
that this needs no history. Exit code 0: they are; 1: something failed, a figure of the pack kernel misses its
budget or is not there, or a file is not what test/gpu/run writes; 77: there are no results. Results that are older
than the kernels or the plug-in are said to be, and pass: who changes a kernel may have no such GPU.
"""

import hashlib
import json
import pathlib
import sys

SKIPPED = 77
KERNELS = ("fusion/cuda", "fusion/tiles.cc", "fusion/tiles.h")
PLUGIN = ("collectives/cuda", "collectives/device/plugin.h")
FIELDS = ("commit", "date", "driver", "gpu", "cuda", "kernels", "plugin", "results")
# Packing and unpacking, to copies of the same bytes.
COPY_BANDWIDTH = 0.9
BUDGET = tuple(f"speed/pack_{size}_of_copy_bandwidth" for size in ("64MiB", "256MiB", "resnet50_all"))
AGAIN = "run test/gpu/run on a machine with that GPU and commit what it writes, or remove the file"


def hash_of(root, places):
    """As test/gpu/run takes it: sha256sum of the lines that sha256sum prints for the files but pages, by name."""
    files = []
    for place in places:
        path = root / place
        files += [each for each in path.rglob("*") if each.is_file() and each.suffix != ".md"] if path.is_dir() else [path]
    names = sorted(str(file.relative_to(root)).encode() for file in files)
    lines = b"".join(hashlib.sha256((root / name.decode()).read_bytes()).hexdigest().encode() + b"  " + name + b"\n"
                     for name in names)
    return hashlib.sha256(lines).hexdigest()


def judge(root, file):
    """(whether it is good, one line)."""
    name = file.relative_to(root)
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        return False, f"{name} is no JSON ({error}): {AGAIN}"
    missing = [field for field in FIELDS if not isinstance(document, dict) or field not in document]
    if missing:
        return False, f"{name} lacks {', '.join(missing)}: {AGAIN}"
    what = f"{name}: {document['gpu']}, driver {document['driver']}, {document['date']}"
    failed = sorted(key for key, value in document["results"].items() if value == "FAILED")
    if failed:
        return False, f"{what}: {', '.join(failed)} FAILED: mend that, then {AGAIN}"
    absent = sorted(key for key in BUDGET if key not in document["results"])
    if absent:
        return False, f"{what}: {', '.join(absent)} was not measured: {AGAIN}"
    slow = sorted(key for key in BUDGET if float(document["results"][key]) < COPY_BANDWIDTH)
    if slow:
        return False, (f"{what}: less than {COPY_BANDWIDTH:.0%} of the copy bandwidth in {', '.join(slow)}: "
                       f"mend that, then {AGAIN}")
    if document["kernels"] != hash_of(root, KERNELS):
        return True, f"{what}: OLDER than the kernels ({', '.join(KERNELS)}), which have changed: {AGAIN}"
    if document["plugin"] != hash_of(root, PLUGIN):
        return True, f"{what}: of these kernels; the plug-in around them has changed since"
    return True, f"{what}: of these sources"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]).resolve()
    files = sorted((root / "test/gpu/results").glob("*.json"))
    if not files:
        print("no results are committed in test/gpu/results: nothing here has run on a GPU yet")
        return SKIPPED
    verdicts = [judge(root, file) for file in files]
    for _, line in verdicts:
        print(line)
    return 0 if all(good for good, _ in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
