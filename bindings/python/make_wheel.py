#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel of the Python package with the installed libronde.so, what lies beside it, and ronderun.

usage: make_wheel.py FOLDER_OF_LIBRONDE OUTPUT_FOLDER

A wheel is a zip file whose last entry lists the others with their hashes, so that nothing is needed to make one.
"""
import base64
import hashlib
import pathlib
import platform
import re
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
# Found by PyTorch when a program asks for the back end "ronde", so that it need not import ronde.torch.
ENTRY_POINTS = "[torch.distributed.backends]\nronde = ronde.torch._backend:register\n"
# Imports nothing of the package: that would load libronde.so into the launcher.
RONDERUN = """#!python
import importlib.util, os, pathlib, sys
program = pathlib.Path(importlib.util.find_spec("ronde").origin).parent / "bin" / "ronderun"
os.execv(program, [str(program), *sys.argv[1:]])
"""
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the same sources make the same wheel


def version_of(header):
    """0.1.0, as ronde.h has it."""
    text = header.read_text(encoding="utf-8")
    return ".".join(re.search(rf"#define RONDE_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def libraries(folder):
    """{name: file} of libronde.so and what is loaded beside it: of the names of a file the shortest, by which it is."""
    shortest = {}
    for path in sorted(folder.glob("libronde*.so*"), key=lambda path: -len(path.name)):
        shortest[path.resolve()] = path.name
    found = {name: file for file, name in shortest.items()}
    if "libronde.so" not in found:
        sys.exit(f"there is no libronde.so in {folder}: build and install it first (./dev wheel does)")
    return found


def launcher(folder):
    """ronderun, which is installed beside the folder of libraries or that above it."""
    for prefix in list(folder.resolve().parents)[:2]:
        if (prefix / "bin" / "ronderun").exists():
            return prefix / "bin" / "ronderun"
    return sys.exit(f"there is no bin/ronderun near {folder}: build and install the launcher, too (./dev wheel does)")


def metadata(version):
    """{name in the wheel: text} of what pip reads, without the list of files."""
    info = f"ronde-{version}.dist-info"
    tag = f"py3-none-linux_{platform.machine()}"
    return tag, {
        f"{info}/METADATA": (HERE / "METADATA.in").read_text("utf-8").replace("@PROJECT_VERSION@", version) +
                            "Description-Content-Type: text/markdown\n\n" + (HERE / "README.md").read_text("utf-8"),
        f"{info}/entry_points.txt": ENTRY_POINTS,
        f"ronde-{version}.data/scripts/ronderun": RONDERUN,
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: ronde\nRoot-Is-Purelib: false\nTag: {tag}\n",
    }


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder, output = map(pathlib.Path, sys.argv[1:])
    version = version_of(HERE.parent / "c" / "include" / "ronde" / "ronde.h")
    tag, texts = metadata(version)
    entries = {path.relative_to(HERE).as_posix(): path.read_bytes() for path in sorted((HERE / "ronde").rglob("*"))
               if path.suffix == ".py" or path.name == "py.typed"}
    entries.update({f"ronde/lib/{name}": file.read_bytes() for name, file in sorted(libraries(folder).items())})
    entries["ronde/bin/ronderun"] = launcher(folder).read_bytes()
    entries.update({name: text.encode() for name, text in texts.items()})
    record = f"ronde-{version}.dist-info/RECORD"
    lines = []
    for name, data in entries.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    entries[record] = "".join(lines + [f"{record},,\n"]).encode()
    output.mkdir(parents=True, exist_ok=True)
    wheel = output / f"ronde-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in entries.items():
            entry = zipfile.ZipInfo(name, LONG_AGO)
            is_program = name.startswith(("ronde/lib/", "ronde/bin/")) or "/scripts/" in name
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    print(wheel)


if __name__ == "__main__":
    main()
