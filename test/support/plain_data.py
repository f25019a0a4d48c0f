# SPDX-License-Identifier: Apache-2.0
"""Fashion-MNIST as plain files, for short trainings on several ranks: half of each would be unpacking, on every rank. The
programs read packed files in other tests."""

import gzip
import pathlib
import shutil
import tempfile

DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")


def unpacked(programs):
    """A folder with all of it, beside that of the programs; the first test that needs it makes it."""
    folder = pathlib.Path(programs).resolve().parent / "unpacked_fashion_mnist"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=folder.name + ".") as mine:
            whole = pathlib.Path(mine) / "whole"
            whole.mkdir()
            for packed in DATA.glob("*.gz"):
                with gzip.open(packed) as source, open(whole / packed.stem, "wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
            try:
                whole.rename(folder)
            except OSError:
                if not folder.exists():  # another test was quicker
                    raise
    return str(folder)


def write_first(count, folder):
    """Writes the first images and labels of each of its files into the folder."""
    for packed in DATA.glob("*.gz"):
        header, each = (16, 28 * 28) if "-images-" in packed.name else (8, 1)
        with gzip.open(packed) as source:
            begin = source.read(header)
            # The second number, after the kind of file, says how many there are.
            pathlib.Path(folder, packed.stem).write_bytes(
                begin[:4] + count.to_bytes(4, "big") + begin[8:] + source.read(count * each))
