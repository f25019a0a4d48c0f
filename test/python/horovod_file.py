#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a test file that was written for Horovod's PyTorch interface on Ronde, with only its import changed.

usage: mpirun -np 2 python3 horovod_file.py FILE [-v] [-k PATTERN]...

FILE is Horovod's test/parallel/test_torch.py, say, which is not part of this repository; nothing is fetched. It is
counted by hand, not by ctest: CONTRIBUTING.md has the whole command, and bindings/python/README.md its counts. Prints
passed, failed, not implemented and skipped tests, those that the file itself breaks with this PyTorch, and those that
want an error where Ronde has a result: they run as if it were one. Ends with 0 if none failed. One line says what FILE imports and this Python lacks. A test that raises NotImplementedError is not
implemented. The counts are the same with and without pytest: what a mark of pytest skips for a reason of Horovod's is run
all the same. Without packaging numbers of versions are compared here; of Horovod's own helpers the three are here that
need no more of it.
"""
import argparse
import contextlib
import os
import pathlib
import re
import sys
import tempfile
import types
import unittest
import unittest.mock


# Each makes every optimiser of torch.optim for a model with biases, and newer versions have one that takes matrices alone.
WITH_EVERY_OPTIMIZER = {"test_broadcast_state", "test_broadcast_state_options", "test_force_allreduce"}
# Where a rank has joined Horovod has no allgather and no broadcast; by the call.
WITH_AN_ERROR = {"test_horovod_join_allgather": "allgather", "test_horovod_join_broadcast": "broadcast"}
NOT_FOR_BIASES = "Muon only supports 2D parameters"


def mpi_env_rank_and_size():
    return tuple(int(os.environ.get(f"OMPI_COMM_WORLD_{what}", default)) for what, default in
                 (("RANK", 0), ("SIZE", 1)))


def skip_or_fail_gpu_test(test, message):
    test.skipTest(message)


@contextlib.contextmanager
def temppath():
    with tempfile.TemporaryDirectory() as folder:
        yield os.path.join(folder, "file")


def provide(name, **members):
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module


def version_of(text):
    """The first three numbers of "1.13.0a0+gitunknown"."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


def load(path):
    """The module of the file, with its import of Horovod changed."""
    provide("common", mpi_env_rank_and_size=mpi_env_rank_and_size, skip_or_fail_gpu_test=skip_or_fail_gpu_test,
            temppath=temppath)
    provide("pytest", mark=types.SimpleNamespace(skip=lambda reason="": lambda test: test,
                                                 skipif=lambda when, reason="": unittest.skipIf(when, reason)))
    try:
        import packaging.version  # pylint: disable=unused-import,import-outside-toplevel
    except ImportError:
        provide("packaging", version=types.SimpleNamespace(parse=version_of))
    source, changed = re.subn(r"^import horovod\.torch as hvd$", "import ronde.torch as hvd",
                              path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if changed != 1:
        sys.exit(f"{path}: {changed} lines 'import horovod.torch as hvd', and one is expected")
    module = types.ModuleType("horovod_file")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)  # pylint: disable=exec-used
    except ImportError as error:
        sys.exit(f"{path} cannot be loaded: {error}: install what it imports for {sys.executable}")
    return module


class HasResult(Exception):
    """A test has run to its end, with a result where it wants an error."""


def with_an_error(test, hvd, call):
    """The test, for which a result of the call is an error: else the other ranks would wait for this one."""
    function, results = getattr(hvd, call), []

    def refuse(tensor, *arguments, **options):
        results.append(function(tensor, *arguments, **options))
        raise RuntimeError(f"{call}() has a result")

    def run(self):
        results.clear()
        with unittest.mock.patch.object(hvd, call, refuse):
            test(self)
        if results:
            raise HasResult(f"{call}() has results of the shapes {[tuple(one.shape) for one in results]}")
    return run


def expect_results(module):
    for case in [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, unittest.TestCase)]:
        for name in WITH_AN_ERROR.keys() & vars(case).keys():
            setattr(case, name, with_an_error(getattr(case, name), module.hvd, WITH_AN_ERROR[name]))


class Result(unittest.TextTestResult):
    """Tells what is not implemented from what fails."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.passed, self.missing, self.broken, self.results = [], [], [], []

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed.append(test)

    def addError(self, test, err):
        if issubclass(err[0], NotImplementedError):
            self.missing.append((test, str(err[1])))
        elif issubclass(err[0], HasResult):
            self.results.append((test, str(err[1])))
        elif test.id().rpartition(".")[2] in WITH_EVERY_OPTIMIZER and str(err[1]).startswith(NOT_FOR_BIASES):
            self.broken.append(test)
        else:
            super().addError(test, err)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("-v", action="store_true", help="name every test")
    parser.add_argument("-k", action="append", default=[], help="only tests whose name has this in it")
    options = parser.parse_args()
    module = load(options.file)
    expect_results(module)
    os.environ.setdefault("RONDE_JOIN_AVERAGE", "all")  # as Horovod divides
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{one}*" for one in options.k] or None
    suite = loader.loadTestsFromModule(module)
    result = unittest.TextTestRunner(resultclass=Result, verbosity=2 if options.v else 0, stream=sys.stdout).run(suite)
    for test, why in result.missing if options.v else []:
        print(f"not implemented: {test.id()}: {why}")
    for test, why in result.results if options.v else []:
        print(f"a result instead of an error: {test.id()}: {why}")
    failed = len(result.failures) + len(result.errors)
    print(f"rank={mpi_env_rank_and_size()[0]} tests={result.testsRun} passed={len(result.passed)} failed={failed} "
          f"broken_by_the_file={len(result.broken)} result_for_error={len(result.results)} "
          f"not_implemented={len(result.missing)} skipped={len(result.skipped)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
