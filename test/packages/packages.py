#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Debian packages: what is in them, and what they need.

usage: packages.py contents CPACK CPACK_CONFIG   makes them of a build folder
       packages.py lintian DEV                   asks lintian about those of ./dev deb
"""
import gzip
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

VERSION = "0.1.0-1"
# {program: (words of its page, {the words of a command line: what completes the last of them})}
PROGRAMS = {
    "ronderun": (["--hostfile FILE", "--output-dir DIR", "--algorithm WORD"],
                 {"--hostf": "--hostfile", "--hostfile f --output": "--output-dir", "--algorithm = ring --tag --dr": "--dry-run",
                  "--hostfile --h": "", "-np 2 program --hostf": ""}),
    "ronde-perf": (["-b, --minbytes VALUE", "--baseline VALUE"], {"-b 8 --maxb": "--maxbytes", "--n": ""}),
    "ronde-checkpoint": (["the checkpoints of a directory", "--version"], {"ver": "verify", "list --ver": ""}),
}
# {package: (patterns of files that it has, packages that it must need, patterns of packages that it must not need)}
EXPECTED = {
    "libronde0.1": ([r"libronde\.so\.0\.1", r"libronde\.so\.0\.1\.0"], [], ["mpi", "ucx", "boost", "python", "dnnl"]),
    "libronde-dev": ([r"include/ronde/ronde\.h", r"include/ronde/ronde\.hpp", r"include/ronde/torch\.hpp",
                      r"include/ronde/mpi\.h", r"include/ronde/trainer\.hpp", r"libronde\.so", r"pkgconfig/ronde\.pc",
                      r"libronde_trainer\.a", r"cmake/ronde/rondeConfig\.cmake"], [f"libronde0.1 (= {VERSION})"],
                     ["mpi", "ucx", "boost", "python", "dnnl"]),
    "libronde-mpi": ([r"libronde_mpi\.so", r"libronde_mpi_allreduce\.so"], [f"libronde0.1 (= {VERSION})", "libopenmpi3"],
                     ["ucx", "boost", "python", "openmpi-bin"]),
    "libronde-ucx": ([r"libronde_ucx\.so"], [f"libronde0.1 (= {VERSION})", "libucx0"], ["mpi", "boost", "python"]),
    "ronde-tools": ([place for name in PROGRAMS for place in (
        f"bin/{name}", rf"share/man/man1/{name}\.1\.gz", f"share/bash-completion/completions/{name}")],
                    [f"libronde0.1 (= {VERSION})", f"libronde-mpi (= {VERSION})", "openmpi-bin"], ["ucx", "python"]),
    "python3-ronde": ([r"ronde/__init__\.py", r"ronde/torch/__init__\.py", r"ronde/py\.typed",
                       r"ronde-0\.1\.0\.dist-info/METADATA"],
                      [f"libronde0.1 (>= {VERSION})", "python3", "python3-numpy"], ["mpi", "ucx", "torch"]),
}
# What may be in a package beside: headers, and what Debian wants of each.
HEADERS = r"include/ronde/.*\.h(pp)?|cmake/ronde/ronde\w+(-\w+)?\.cmake|libronde_(event_messages|parameter_server)\.a"
MODULES = r"ronde/(torch/)?\w+\.py"


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def problems_of(package, deb):
    patterns, needs, needs_not = EXPECTED[package]
    documents = [rf"share/doc/{re.escape(package)}/{name}" for name in
                 ("copyright", r"changelog\.gz", r"changelog\.Debian\.gz")]
    files = [line.split(" ./", 1)[1].split(" -> ")[0] for line in run("dpkg-deb", "-c", deb).splitlines()
             if not line.rstrip().endswith("/")]
    for pattern in patterns + documents:
        if not any(re.fullmatch(rf"usr/(.*/)?{pattern}", file) for file in files):
            yield f"has no file like {pattern}"
    allowed = "|".join(patterns + documents + {"libronde-dev": [HEADERS], "python3-ronde": [MODULES]}.get(package, []))
    for file in files:
        if not re.fullmatch(rf"usr/(.*/)?({allowed})", file):
            yield f"has {file}, which belongs elsewhere"
    depends = run("dpkg-deb", "-f", deb, "Depends").strip().split(", ")
    for need in needs:
        if not any(entry == need or entry.startswith(f"{need} ") for entry in depends):
            yield f"does not need {need}: it needs {depends}"
    for word in needs_not:
        if any(word in entry.replace("libronde-mpi", "") for entry in depends):
            yield f"needs {word}: {depends}"
    for script in ("postinst", "prerm") if package == "python3-ronde" else ():
        if package not in run("dpkg-deb", "-I", deb, script):
            yield f"has no {script} that compiles its modules, or removes what was compiled"


def problems_of_manuals(deb):
    """What is wrong with the page of each program, and with bash's completion of its options."""
    complete = 'COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); "_${1//-/_}" && echo "${COMPREPLY[*]}"'
    with tempfile.TemporaryDirectory() as folder:
        run("dpkg-deb", "-x", deb, folder)
        share = pathlib.Path(folder, "usr", "share")
        for name, (said, completions) in PROGRAMS.items():
            roff = gzip.decompress((share / "man" / "man1" / f"{name}.1.gz").read_bytes()).decode()
            page = re.sub(r"\\f[A-Z]", "", roff).replace("\\-", "-")
            yield from (f"has a page of {name} without {words}" for words in said if words not in page)
            for words, expected in completions.items():
                script = f'. "{share}/bash-completion/completions/{name}"; {complete}'
                got = run("bash", "-c", script, "bash", name, *words.split()).strip()
                if got != expected:
                    yield f"completes {name} {words} with '{got}' and not '{expected}'"


def contents(cpack, config):
    with tempfile.TemporaryDirectory() as folder:
        run(cpack, "--config", config, "-B", folder, "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip")
        debs = {path.name.split("_")[0]: path for path in pathlib.Path(folder).glob("*.deb")}
        problems = [f"{package} {problem}" for package in sorted(debs.keys() & EXPECTED.keys())
                    for problem in problems_of(package, debs[package])]
        if not problems:
            problems += [f"ronde-tools {problem}" for problem in problems_of_manuals(debs["ronde-tools"])]
        if debs.keys() != EXPECTED.keys():
            problems.append(f"there are {sorted(debs)}, and should be {sorted(EXPECTED)}")
        print("\n".join(f"{path.name}: {run('dpkg-deb', '-f', path, 'Depends').strip()}" for path in sorted(debs.values())))
    if problems:
        sys.exit("\n".join(problems))


def lintian(dev):
    if shutil.which("lintian") is None:
        sys.exit("lintian is not installed: ./dev test full does that")
    debs = run(dev, "deb").splitlines()[-len(EXPECTED):]
    root = pathlib.Path(dev).resolve().parent
    print(run("lintian", "--fail-on", "error", *(root / deb for deb in debs)))


if __name__ == "__main__":
    {"contents": contents, "lintian": lintian}[sys.argv[1]](*sys.argv[2:])
