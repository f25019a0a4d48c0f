#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job that may not call pidfd_open ends as any other does, with one warning for its host.

usage: no_pidfd ENOSYS|EPERM no_pidfd.py MPIRUN LINEAR_REGRESSION
"""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position


def main():
    mpirun, program = sys.argv[1:]
    for ranks in (1, 2, 3):
        line = [mpirun, "--oversubscribe", "--bind-to", "none", "-np", str(ranks), program]
        done = late.run(line, 120, env=dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))
        said = f"{ranks} ranks: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.returncode == 0 and f"ranks={ranks}" in done.stdout, said
        warnings = [text for text in done.stderr.splitlines() if "pidfd_open" in text]
        assert len(warnings) == (1 if ranks > 1 else 0), said
        assert all("watches sockets instead" in text for text in warnings), said


if __name__ == "__main__":
    late.end(main)
