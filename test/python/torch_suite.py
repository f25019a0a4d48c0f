#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own tests of a back end, torch.testing._internal.distributed.distributed_test, which every PyTorch has.

usage: torch_suite.py [--backend ronde] [--by-name] [--ranks 2] [-k PATTERN]... [-x PATTERN]... [-v]

Which tests run for a back end is written in that file by name, and ronde is in it as little as any other: it runs those
of gloo, in whose place it is put, unless --by-name is given.

Prints passed, failed, refused and skipped tests, and ends with 0 if none failed. A test on whose ranks an operation
raises NotImplementedError is refused. The tests' own helper starts a new interpreter for each rank of each test; here
ranks are forked from one that has loaded PyTorch already, so that a test takes a second.
"""
import argparse
import os
import sys
import tempfile
import time
import types
import unittest


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="ronde")
    parser.add_argument("--by-name", action="store_true", help="with ronde: only the tests that fit its name")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=100, help="seconds that a test may take")
    parser.add_argument("-v", action="store_true", help="name every test, and say why it did not pass")
    parser.add_argument("-k", action="append", default=[], help="only tests whose name has this in it")
    parser.add_argument("-x", action="append", default=[], help="not the tests whose name has this in it")
    return parser.parse_args(arguments)


def load(options):
    """The test class for this back end. distributed_test reads what it runs from the environment as it is imported."""
    in_place = options.backend == "ronde" and not options.by_name
    os.environ.update(BACKEND="gloo" if in_place else options.backend, WORLD_SIZE=str(options.ranks), OMP_NUM_THREADS="1",
                      TEMP_DIR=tempfile.mkdtemp(prefix="ronde_suite_"), DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(options.timeout))
    try:
        import expecttest  # pylint: disable=import-outside-toplevel,unused-import
    except ImportError:  # PyTorch's tests derive from its TestCase; those of this file use nothing of it
        sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase, ACCEPT=False)
    import torch  # pylint: disable=import-outside-toplevel
    torch.set_num_threads(1)
    import ronde.torch  # pylint: disable=import-outside-toplevel,unused-import
    if in_place:
        put_in_place_of_gloo()
    from torch.testing._internal import common_distributed  # pylint: disable=import-outside-toplevel
    for feature in ("ddp", "subgroup"):
        common_distributed.DistTestCases.backend_feature[feature].add("ronde")
    from torch.testing._internal.distributed import distributed_test  # pylint: disable=import-outside-toplevel

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        """Every test of the file, each with ranks of its own."""

        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    Suite.__module__ = "__main__"
    return Suite


def put_in_place_of_gloo():
    """What asks for gloo gets ronde from now on."""
    from torch.distributed import distributed_c10d  # pylint: disable=import-outside-toplevel
    from ronde.torch._process_group import RondeProcessGroup  # pylint: disable=import-outside-toplevel

    class InPlaceOfGloo(RondeProcessGroup):
        """Under the name that tests expect."""

        def __init__(self, store, rank, size, timeout, **_):
            super().__init__(store, rank, size, timeout)

    distributed_c10d.ProcessGroupGloo = InPlaceOfGloo
    plugins = distributed_c10d.Backend._plugins
    if "GLOO" in plugins:  # in newer versions of PyTorch
        plugins["GLOO"] = plugins["RONDE"]


class Result(unittest.TextTestResult):
    """Tells what is refused from what fails."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.passed, self.refused = [], []
        self.began = time.monotonic()

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed.append(test)

    def addError(self, test, err):
        if "NotImplementedError" in str(err[1]):
            self.refused.append((test, str(err[1]).strip().splitlines()[-1]))
        else:
            super().addError(test, err)


def main():
    options = options_of(sys.argv[1:])
    suite_class = load(options)
    names = [name for name in unittest.TestLoader().getTestCaseNames(suite_class)
             if (not options.k or any(one in name for one in options.k)) and not any(one in name for one in options.x)]
    suite = unittest.TestSuite(suite_class(name) for name in names)
    result = unittest.TextTestRunner(resultclass=Result, verbosity=2 if options.v else 0, stream=sys.stdout).run(suite)
    for test, why in result.refused + result.skipped if options.v else []:
        print(f"{test.id()}: {why}")
    failed = len(result.failures) + len(result.errors)
    print(f"backend={options.backend} ranks={options.ranks} tests={result.testsRun} passed={len(result.passed)} "
          f"failed={failed} refused={len(result.refused)} skipped={len(result.skipped)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
