# SPDX-License-Identifier: Apache-2.0
"""Ranks that are threads of one process, for tests of the Python package."""
import threading

import ronde


def run_ranks(size, body):
    """Calls body(engine) for each rank of a local job, in a thread of its own; returns the results in rank order and
    raises the first error. A wait that held the interpreter's lock would end in a deadlock here."""
    job = ronde.LocalJob(size)
    results, errors = [None] * size, []

    def rank_main(rank):
        try:
            with ronde.Engine(job, rank) as engine:
                results[rank] = body(engine)
        except BaseException as error:  # pylint: disable=broad-except
            errors.append(error)

    threads = [threading.Thread(target=rank_main, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        if thread.is_alive():
            raise TimeoutError("a rank hangs")
    if errors:
        raise errors[0]
    return results
