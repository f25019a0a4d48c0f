#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own tests of a back end, torch.testing._internal.distributed.distributed_test, which every PyTorch has.

usage: torch_suite.py [--backend ronde] [--beside gloo] [--ranks 2] [--all] [-k PATTERN]... [-v]

Prints passed, failed, refused and skipped tests; one in which an operation raises NotImplementedError is refused.
With --beside the other back end runs the same tests, and the end is 0 if none that passes there fails here; else if
none failed.

Which tests run for a back end is written in that file by name. Ronde is put in the place of gloo, so that it runs
gloo's, but for the checks of what gloo tells PyTorch's profiler; --by-name runs what the file has for a name that it does
not know. The file's own helper starts an interpreter for each rank of each test; here ranks are forked from one that has
loaded PyTorch already, so that a test takes a second.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import types
import unittest


REFUSALS = ("NotImplementedError", "monitored_barrier requires a group")  # the second is PyTorch's, for all but gloo
GLOOS_OWN = {"test_ddp_logging_data_cpu"}  # asks for gloo's name and threads


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="ronde")
    parser.add_argument("--beside", help="another back end, which runs the same tests")
    parser.add_argument("--by-name", action="store_true", help="with ronde: what the file has for an unknown name")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=100, help="seconds that a test may take")
    parser.add_argument("--all", action="store_true", help="a test that is refused or skipped has failed")
    parser.add_argument("-v", action="store_true", help="name every test, and show what its ranks print")
    parser.add_argument("-k", action="append", default=[], help="only tests whose name matches this")
    return parser.parse_args(arguments)


def load(options):
    """The test class for this back end. The file reads what it runs from the environment as it is imported."""
    in_place = options.backend == "ronde" and not options.by_name
    os.environ.update(BACKEND="gloo" if in_place else options.backend, WORLD_SIZE=str(options.ranks),
                      OMP_NUM_THREADS="1", TEMP_DIR=tempfile.mkdtemp(prefix="ronde_suite_"),
                      DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(options.timeout))
    try:
        import expecttest  # pylint: disable=import-outside-toplevel,unused-import
    except ImportError:  # PyTorch's tests derive from its TestCase; those of this file use nothing of it
        sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase, ACCEPT=False)
    import torch  # pylint: disable=import-outside-toplevel
    torch.set_num_threads(1)
    import ronde.torch  # pylint: disable=import-outside-toplevel,unused-import
    from torch.testing._internal import common_distributed  # pylint: disable=import-outside-toplevel
    for feature in ("ddp", "subgroup"):
        common_distributed.DistTestCases.backend_feature[feature].add("ronde")
    from torch.testing._internal.distributed import distributed_test  # pylint: disable=import-outside-toplevel
    if in_place:
        put_in_place_of_gloo(distributed_test)
    try:  # an experiment of PyTorch 1.13, which Debian's Python cannot load
        from torch.nn.parallel import _replicated_tensor_ddp_utils as experiment  # pylint: disable=C0415
        experiment._set_ddp_with_replicated_tensor = lambda _: None
    except ImportError:
        pass

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        """Every test of the file, each with ranks of its own."""

        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return Suite


def put_in_place_of_gloo(distributed_test):
    """What asks for gloo gets ronde from now on."""
    from torch.distributed import distributed_c10d  # pylint: disable=import-outside-toplevel
    from torch_group_kit import group_class  # pylint: disable=import-outside-toplevel

    class InPlaceOfGloo(group_class()):
        """Made as gloo's is."""

        def __init__(self, store, rank, size, timeout, **_):
            super().__init__(store, rank, size, timeout)

    distributed_c10d.ProcessGroupGloo = InPlaceOfGloo
    if hasattr(distributed_c10d.Backend, "_ensure_backend_registered"):  # else it would come when it is used
        distributed_c10d.Backend._ensure_backend_registered("gloo")
    plugins = distributed_c10d.Backend._plugins
    if "GLOO" in plugins:  # in newer versions of PyTorch
        plugins["GLOO"] = plugins["RONDE"]
        # What PyTorch takes for gloo's by type it casts to gloo's class.
        distributed_c10d.Backend.backend_type_map["gloo"] = distributed_c10d.ProcessGroup.BackendType.CUSTOM
    # The wrapper that checks calls where TORCH_DISTRIBUTED_DEBUG says DETAIL is for PyTorch's own back ends.
    distributed_c10d._create_process_group_wrapper = lambda wrapped_pg, **_: wrapped_pg
    for name in ("PROFILING_SUPPORTED_BACKENDS", "SEND_RECV_PROFILING_SUPPORTED_BACKENDS"):
        getattr(distributed_test, name).remove("gloo")


class Result(unittest.TestResult):
    """The outcome of each test by its name: passed, failed, refused or skipped; and why."""

    def __init__(self, show):
        super().__init__()
        self.outcomes, self.show = {}, show

    def note(self, test, outcome, why=""):
        self.outcomes[test._testMethodName] = outcome
        if self.show:
            last = why.strip().splitlines()[-1] if why.strip() else ""
            print(f"{outcome} {test._testMethodName} {last}", flush=True)

    def addSuccess(self, test):
        self.note(test, "passed")

    def addSkip(self, test, reason):
        self.note(test, "skipped", reason)

    def addError(self, test, err):
        why = str(err[1])
        self.note(test, "refused" if any(one in why for one in REFUSALS) else "failed", why)

    addFailure = addError


def run_here(options):
    suite_class = load(options)
    if not options.v:  # its ranks and its helper say a lot
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    names = [name for name in unittest.TestLoader().getTestCaseNames(suite_class)
             if (options.backend == "gloo" or name not in GLOOS_OWN)
             and (not options.k or any(re.search(one, name) for one in options.k))]
    result = Result(show=True)
    unittest.TestSuite(suite_class(name) for name in names).run(result)
    return result.outcomes


def run_beside(options):
    """The outcomes of the other back end, whose name an own interpreter has to know from the start."""
    command = [sys.executable, __file__, "--backend", options.beside, "--ranks", str(options.ranks),
               "--timeout", str(options.timeout), *[word for one in options.k for word in ("-k", one)]]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    return {found[2]: found[1] for found in re.finditer(r"^(passed|failed|refused|skipped) (test_\w+)", printed,
                                                        re.MULTILINE)}


def summary(backend, options, outcomes):
    counts = {kind: list(outcomes.values()).count(kind) for kind in ("passed", "failed", "refused", "skipped")}
    print(f"backend={backend} ranks={options.ranks} tests={len(outcomes)} " +
          " ".join(f"{kind}={count}" for kind, count in counts.items()), flush=True)


def main():
    options = options_of(sys.argv[1:])
    outcomes = run_here(options)
    failed = {name for name, outcome in outcomes.items() if outcome == "failed"}
    if options.beside:
        others = run_beside(options)
        if "passed" not in others.values():
            sys.exit(f"no test passes with {options.beside}: there is nothing to compare with")
        failed = {name for name in failed if others.get(name) == "passed"}
        print(f"passed with {options.beside} and failed with {options.backend}:", " ".join(sorted(failed)) or "none")
        summary(options.beside, options, others)
    summary(options.backend, options, outcomes)
    if options.all:
        failed.update(name for name, outcome in outcomes.items() if outcome != "passed")
    return 1 if failed or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
