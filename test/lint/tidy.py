#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy over sources, as many at a time as there are cores.

usage: tidy.py <clang-tidy> <build folder> <source>...     (sources as paths from the repository's root)

Parsing headers takes most of its time. So up to eight sources of a folder, with equal flags, are read as one; where
clang-tidy has anything to say of them, each is read alone, and only that counts: names that meet in a batch, and not
in the build, are no finding. Always read alone are programs (main), and sources with names in the global namespace,
which clang-tidy forbids in what is included.

The build folder's compile_commands.json says how each is compiled. A source of another platform, which is not in it,
is read alone, with the flags of a neighbour.

Where ccache is installed, it remembers what clang-tidy had nothing to say of. That is read again when anything changes
of its text, a header that it includes, a flag, a .clang-tidy or clang-tidy itself. What counts is the text as it is
written, since clang's macros and words in comments (NOLINT) matter: g++'s preprocessor drops both.
"""
import concurrent.futures
import fcntl
import hashlib
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BATCH = 8
TIMEOUT = 600  # seconds for one batch; the slowest takes 20
NOTHING = "nothing to say\n"  # what tidy_as_compiler writes as an object
# Settings with which ccache would call something else, or know less of what was read.
UNWANTED = ("CCACHE_COMPILER", "CCACHE_PREFIX", "CCACHE_PREFIX_CPP", "CCACHE_IGNOREHEADERS", "CCACHE_IGNOREOPTIONS",
            "CCACHE_NODEPEND", "CCACHE_NODIRECT", "CCACHE_STATSLOG")
ALONE = re.compile(r"^int main\(|\A(?:(?!namespace).*\n)*using ", re.MULTILINE)


def flags_of(folder):
    """The compiler's flags for each source of the build folder, without its own name and the output's."""
    flags = {}
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])[1:]
        del words[words.index("-o"):]
        flags.setdefault(os.path.realpath(entry["file"]), words)
    return flags


def neighbour(source, others):
    return max(others, key=lambda other: len(os.path.commonprefix([source, other])))


def rules():
    """All .clang-tidy files of the repository, from its root: names in a header are judged by those of its folder."""
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in ("build", ".git")]
        if ".clang-tidy" in files:
            found.append((pathlib.Path(folder) / ".clang-tidy").relative_to(ROOT))
    return sorted(found)


def identity(tidy):
    """All that clang-tidy's answers depend on but the sources, headers and flags."""
    digest = hashlib.sha256()
    digest.update(subprocess.run([tidy, "--version"], check=True, stdout=subprocess.PIPE, timeout=TIMEOUT).stdout)
    for path in rules() + [HERE.relative_to(ROOT) / "tidy_as_compiler"]:
        digest.update(f"{path}\n".encode() + (ROOT / path).read_bytes())
    return digest.hexdigest()


class Reader:
    def __init__(self, tidy, folder, sources):
        self.folder = folder
        self.work = folder / "tidy"
        compiled = flags_of(folder)
        self.foreign = {source for source in sources if str(ROOT / source) not in compiled}
        self.flags = {source: compiled[neighbour(str(ROOT / source), compiled)] for source in sources}
        # Batches lie below the build folder, in folders of the same names: the rules of those must lie there too.
        shutil.rmtree(self.work, ignore_errors=True)
        for rule in rules():
            (self.work / rule).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / rule, self.work / rule)
        self.environment = {name: value for name, value in os.environ.items() if name not in UNWANTED}
        # A header that changes while it is read must not be taken for what was read: no sloppiness but for macros.
        self.environment |= dict(RONDE_CLANG_TIDY=tidy, CCACHE_DEPEND="1", CCACHE_COMPILERTYPE="gcc",
                                 CCACHE_COMPILERCHECK="string:" + identity(tidy), CCACHE_SLOPPINESS="time_macros")
        self.cache = [str(ROOT / "cmake" / "compiler_cache")] if shutil.which("ccache") else []

    def batches(self):
        """Lists of sources."""
        def key(source):
            alone = source in self.foreign or ALONE.search((ROOT / source).read_text())
            return str(pathlib.Path(source).parent), self.flags[source], source if alone else ""

        for _, group in itertools.groupby(sorted(sorted(self.flags), key=key), key):
            group = list(group)
            yield from (group[i:i + BATCH] for i in range(0, len(group), BATCH))

    def ask(self, path, flags, name):
        """What clang-tidy says of the file; None where that is nothing."""
        target = self.work / name
        target.parent.mkdir(parents=True, exist_ok=True)
        answer = pathlib.Path(f"{target}.o")
        result = subprocess.run(self.cache + [str(HERE / "tidy_as_compiler"), *flags, "-MD", "-MF", f"{target}.d",
                                              "-o", str(answer), "-c", str(path)],
                                cwd=self.folder, env=self.environment, timeout=TIMEOUT, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if result.returncode == 0 and not (answer.exists() and answer.read_bytes() == NOTHING.encode()):
            sys.exit("tidy.py: ccache did not call clang-tidy: look at its settings (ccache --show-config)")
        return None if result.returncode == 0 else result.stdout

    def ask_together(self, batch):
        """The same of several, given as they would be included."""
        path = self.work / (str(batch[0]).removesuffix(".cc") + ".batch.cc")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f'#include "{one}"  // NOLINT(bugprone-suspicious-include)\n' for one in batch))
        return self.ask(path, [*self.flags.get(batch[0], []), f"-I{ROOT}", f"-I{self.work}"],
                        path.relative_to(self.work).with_suffix(""))

    def read(self, batch):
        """What clang-tidy says of the sources, a text for each that it says something of."""
        if len(batch) > 1 and self.ask_together(batch) is None:
            return []
        said = {source: self.ask(ROOT / source, self.flags[source], source) for source in batch}
        if len(batch) > 1 and not any(said.values()):
            print(f"read alone each time, since names in them meet: {' '.join(batch)}")
        return [f"{source}:\n{text}" for source, text in said.items() if text is not None]

    def require_findings(self):
        """Ends if clang-tidy does not see what is wrong in a batch, which would be a fault of its settings."""
        batch = ["base/canary_one.cc", "base/canary_two.cc"]
        for one, text in zip(batch, ("int good_name() { return 0; }\n", "int Bad_Name() { return 0; }\n")):
            (self.work / one).parent.mkdir(parents=True, exist_ok=True)
            (self.work / one).write_text(text)
        if "Bad_Name" not in (self.ask_together(batch) or ""):
            sys.exit("tidy.py: clang-tidy did not object to a bad name in a batch: look at HeaderFilterRegex in "
                     ".clang-tidy")


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    tidy, folder, *sources = sys.argv[1:]
    folder = pathlib.Path(folder).resolve()
    with open(folder / "tidy.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another one in this clone would remove the batches
        reader = Reader(shutil.which(tidy), folder, sources)
        reader.require_findings()
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            said = [text for texts in pool.map(reader.read, reader.batches()) for text in texts]
    if said:
        sys.exit("\n".join(said))


if __name__ == "__main__":
    main()
