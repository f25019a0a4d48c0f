#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that meet over a store of the program's own, and what such a store raises."""
import threading
import unittest
import unittest.mock

import numpy

import ronde


class SharedStore:
    """Keys and values of the threads of this process."""

    def __init__(self):
        self.values, self.changed = {}, threading.Condition()

    def set(self, key, value):
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key, seconds):
        with self.changed:
            self.changed.wait_for(lambda: key in self.values, seconds)
            return self.values.get(key)


class Stores(unittest.TestCase):
    def test_ranks_meet_over_a_store_of_the_program(self):
        store, sums = SharedStore(), [None, None]

        def rank_main(rank):
            with ronde.Engine(rank=rank, size=2, store=store) as engine:
                self.assertEqual((engine.rank, engine.size), (rank, 2))
                sums[rank] = engine.allreduce("sum", numpy.full(2, rank + 1.0), ronde.Sum).wait().tolist()

        threads = [threading.Thread(target=rank_main, args=(rank,), daemon=True) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(sums, [[3, 3], [3, 3]])

    def test_what_a_store_raises_is_raised(self):
        class Broken(SharedStore):
            def get(self, key, seconds):
                raise ConnectionError(f"no way to {key}")

        with self.assertRaisesRegex(ConnectionError, "no way to ronde/"):
            ronde.Engine(rank=1, size=2, store=Broken())
        with self.assertRaisesRegex(ValueError, "size"):
            ronde.Engine(rank=0, store=SharedStore())

    def test_what_is_raised_may_have_words_that_cannot_be_written(self):
        class Wordless(ConnectionError):
            def __str__(self):
                raise KeyError

        class Broken(SharedStore):
            def set(self, key, value):
                raise error

            get = set

        for error in (Wordless(), ConnectionError("no \udcff")):
            with self.assertRaises(ConnectionError) as caught, unittest.mock.patch("sys.unraisablehook") as lost:
                ronde.Engine(rank=1, size=2, store=Broken())
            self.assertIs(caught.exception, error)
            self.assertIn(type(error).__name__, str(error.__cause__))
            lost.assert_not_called()


if __name__ == "__main__":
    unittest.main()
