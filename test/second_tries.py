#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tries tests once more that were late and otherwise right, as they say themselves (test/support/late.py).

usage: second_tries.py first BUILD CTEST...   runs this ctest command, which tests the build folder BUILD, and keeps the
                                              output of each test that was late
       second_tries.py again BUILD...         runs each of them once more, alone
       second_tries.py lines BUILD...         prints a line for each: second try: NAME (why), and one for each test that
                                              counts as skipped without being late
       second_tries.py run BUILD CTEST...     first, then again

BUILD:PART is one of several sets of tests of the build folder.

Exit code 0: all tests have passed or were skipped, some of them the second time. A late test counts as skipped in the
first run, so that ctest's summary and its exit code are about the others. Both outputs of a late test, and the lines,
are in the folder second_tries beside BUILD.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position

FOLDER = "SECOND_TRIES_FOLDER"  # the variable that names the folder for late tests
KEPT = ("LastTest.log", "LastTestsFailed.log")  # of the first run, where a failure is looked for


class Tries:
    """What is known of a set of tests."""

    def __init__(self, build):
        build, _, part = build.partition(":")
        self.build = pathlib.Path(build).resolve()
        self.part = part or self.build.name
        self.folder = self.build.parent / "second_tries"
        self.logs = self.build / "Testing" / "Temporary"
        self.whys = self.file("whys")  # a folder, in which each late test leaves a file

    def file(self, name):
        return self.folder / f"{self.part}.{name}"

    def known(self):
        """The ctest command; which tests are not late but look so; why each late test was; and for each of them that
        was tried again whether it passed then. None: there was no first run, or it broke off."""
        state = self.file("json")
        return json.loads(state.read_text(encoding="utf-8")) if state.exists() else None

    def ctest(self, command, environment, **settings):
        """Runs it; returns its exit code, and how it lists each test: as status and reason of a skip."""
        report = self.file("xml")
        command = [*command, "--output-junit", str(report)]
        code = subprocess.run(command, env=environment, check=False, **settings).returncode
        code = code if code >= 0 else 128 - code  # a signal
        if not report.exists():
            return code or 1, {}
        cases = list(xml.etree.ElementTree.parse(report).iter("testcase"))
        report.unlink()
        return code, {case.get("name"): (case.get("status"), [skip.get("message") for skip in case.iter("skipped")])
                      for case in cases}

    def keep_output(self, name, file):
        """All that the test has printed, and what ctest says of it: only the log has it whole."""
        log = (self.logs / "LastTest.log").read_text(encoding="utf-8", errors="replace")
        title = re.escape(name)
        part = re.search(rf'^\d+/\d+ Test: {title}$.*?^"{title}" time elapsed: .*?\n', log, re.MULTILINE | re.DOTALL)
        output = part[0] if part else ""
        self.file(f"{name}.{file}.txt").write_text(output, encoding="utf-8")
        return output

    def first(self, command):
        self.folder.mkdir(exist_ok=True)
        for file in self.folder.glob(f"{self.part}.*"):
            shutil.rmtree(file) if file.is_dir() else file.unlink()  # pylint: disable=expression-not-assigned
        self.whys.mkdir()
        code, listed = self.ctest(command, {**os.environ, FOLDER: str(self.whys)})
        known = {"command": command, "false": [], "late": {}, "passed": {}}
        for name, (_, reasons) in listed.items():
            if "SKIP_REGULAR_EXPRESSION_MATCHED" not in reasons:
                continue
            output, file = self.keep_output(name, "first"), self.whys / f"{name}.why"
            why = file.read_text(encoding="utf-8") if file.exists() else None
            # Another program's line proves nothing.
            if why is not None and output.rpartition("\n<end of output>\n")[0].endswith(f"\n{late.MARK}{why}"):
                known["late"][name] = why
            else:
                known["false"].append(name)
                print(output, file=sys.stderr)
        # Another part of the same build overwrites it.
        shutil.copy(self.logs / "LastTest.log", self.file("LastTest.log"))
        self.write(known)
        return code or (1 if known["false"] else 0)

    def write(self, known):
        self.file("json").write_text(json.dumps(known, indent=1), encoding="utf-8")

    def again(self):
        known = self.known()
        if known is None:
            return 1
        kept = {file: file.read_bytes() for name in KEPT if (file := self.logs / name).exists()}
        environment = {name: value for name, value in os.environ.items() if name != FOLDER}
        for name, why in known["late"].items():
            print(f"once more: {name} ({why})", flush=True)
            command = [*known["command"], "--tests-regex", f"^{re.escape(name)}$"]
            code, listed = self.ctest(command, environment, stdout=subprocess.DEVNULL)
            output = self.keep_output(name, "second")
            known["passed"][name] = code == 0 and listed.get(name) == ("run", [])
            if not known["passed"][name]:
                print(output)
        for file, text in kept.items():
            file.write_bytes(text)
        self.write(known)
        return 0 if all(known["passed"].values()) else 1

    def lines(self):
        known = self.known()
        if known is None:
            yield f"FAILED: the tests of {self.part} have no first run that came to its end"
            return
        for name in known["false"]:
            yield f"FAILED: {name} was not late, and has printed '{late.MARK}'"
        ends = {True: "", False: ": FAILED", None: ": not yet"}
        for name, why in known["late"].items():
            yield f"second try: {name} ({self.part}: {why}){ends[known['passed'].get(name)]}"


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("first", "again", "lines", "run"):
        sys.exit(__doc__)
    what, *rest = sys.argv[1:]
    if what == "again":
        return max(Tries(build).again() for build in rest)
    if what == "lines":
        print("".join(f"{line}\n" for build in rest for line in Tries(build).lines()), end="")
        return 0
    tries = Tries(rest[0])
    code = tries.first(rest[1:])
    return (tries.again() or code) if what == "run" else code


if __name__ == "__main__":
    sys.exit(main())
