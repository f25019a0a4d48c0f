#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows check_layers.py good and bad samples: a check that cannot fail is no check."""

import pathlib
import tempfile
import unittest

import check_layers

GOOD = {
    "base/status.h": "#include <string>\n",
    "fusion/batch.h": '#include "base/status.h"\n',
    "collectives/transport/collective.h": '  #  include "base/status.h"\n',
    "collectives/transport/mpi/transport.cc": '#include <mpi.h>\n#include "fusion/batch.h"\n',
    "collectives/transport/mpi/session.h": "#pragma once\n",
    "collectives/transport/ucx/end.h": "#include <ucp/api/ucp.h>\n",
    "collectives/messages/ring.h": '#include "collectives/transport/collective.h"\n',
    "collectives/cuda/nccl_api.cc": "#include <nccl.h>\n#include <cuda_runtime.h>\n",
    "runtime/job/job.h": '#include "base/status.h"\n',
    "runtime/engine/engine.h": '#include "runtime/job/job.h"\n#include "base/status.h"\n',
    "bindings/c/ronde.cc": '#include "ronde/ronde.h"\n#include "runtime/engine/engine.h"\n',
    "bindings/cpp/include/ronde/ronde.hpp": "#include <ronde/ronde.h>\n",
    "bindings/trainer/tensor/tensor.h": "#include <ronde/ronde.hpp>\n#include <dnnl.hpp>\n",
    "examples/job.cc": '#include "bindings/trainer/tensor/tensor.h"\n#include <ronde/ronde.hpp>\n',
    "examples/average.c": "#include <ronde/ronde.h>\n",
    "examples/perf/mpi_peers.cc": "#include <mpi.h>\n",
    "launcher/main.cc": '#include "launcher/plan.h"\n#include "base/status.h"\n',
    "launcher/plan.h": "#pragma once\n",
}

BAD = [
    ("base/bad.h", '#include "fusion/batch.h"'),
    ("base/bad.h", '#include "runtime/engine/engine.h"'),
    ("base/bad.h", "#include <ronde/ronde.h>"),
    ("base/bad.h", '#include "base/flags/flags.h"'),
    ("base/bad.h", "#include <runtime/engine/engine.h>"),
    ("fusion/bad.cc", '#include "collectives/messages/ring.h"'),
    ("collectives/messages/bad.cc", '#include "runtime/engine/engine.h"'),
    ("runtime/engine/bad.cc", '#include "ronde/ronde.h"'),
    ("runtime/engine/bad.cc", '#include "bindings/c/include/ronde/ronde.h"'),
    ("runtime/engine/bad.cc", "#include <mpi.h>"),
    ("runtime/engine/bad.cc", '#include "base/flags/parse.h"'),
    ("collectives/messages/bad.cc", "#include <nccl.h>"),
    ("collectives/transport/bad.cc", "#include <ucp/api/ucp.h>"),
    ("collectives/transport/bad.cc", '#include "collectives/transport/ucx/end.h"'),
    ("fusion/bad.cc", "#include <cuda_runtime.h>"),
    ("collectives/transport/bad.cc", "#include <ucp/api/ucp.h>"),
    ("collectives/cuda/bad.cc", '#include "runtime/engine/engine.h"'),
    ("collectives/messages/bad.cc", '#include "ring.h"'),
    ("collectives/messages/bad.cc", '#include "../../base/status.h"'),
    ("collectives/messages/bad.cc", '#include "test/support/helper.h"'),
    ("bindings/trainer/nn/bad.cc", '#include "runtime/engine/engine.h"'),
    ("bindings/trainer/nn/bad.cc", "#include <ronde/ronde.h>"),
    ("examples/bad.cc", "#include <ronde/ronde.h>"),
    ("examples/bad.c", "#include <ronde/ronde.hpp>"),
    ("bindings/trainer/nn/bad.cc", '#include "examples/job.h"'),
    ("bindings/cpp/include/ronde/bad.hpp", '#include "runtime/engine/engine.h"'),
    ("examples/bad.cc", '#include "base/status.h"'),
    ("examples/bad.cc", '#include "base/flags/flags.h"'),
    ("launcher/bad.cc", '#include "runtime/engine/engine.h"'),
    # Rooms: the arrow runs the other way, or there is none.
    ("collectives/transport/bad.cc", '#include "collectives/messages/ring.h"'),
    ("collectives/transport/bad.cc", '#include "collectives/transport/mpi/session.h"'),
    ("collectives/cuda/bad.cc", '#include "collectives/messages/ring.h"'),
    ("runtime/job/bad.cc", '#include "runtime/engine/engine.h"'),
    ("runtime/job/bad.cc", '#include "collectives/transport/mpi/session.h"'),
    ("runtime/drive/bad.cc", '#include "collectives/messages/ring.h"'),
]


class CheckLayersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for path, text in GOOD.items():
            self.write(path, text)
        self.write("test/support/helper.h", "#pragma once\n")

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def test_accepts_the_good_sample(self):
        self.assertEqual(check_layers.check(self.root), ([], len(GOOD)))

    def test_rejects_every_bad_include(self):
        for path, line in BAD:
            with self.subTest(path=path, line=line):
                self.write(path, "#pragma once\n" + line + "\n")
                problems, _ = check_layers.check(self.root)
                (self.root / path).unlink()
                self.assertEqual(len(problems), 1, problems)
                self.assertTrue(problems[0].startswith(f"{path}:2: "), problems)

    def test_rejects_a_file_outside_the_rooms(self):
        for path in ("collectives/lost.h", "runtime/attic/lost.cc"):
            with self.subTest(path=path):
                self.write(path, "#pragma once\n")
                problems, _ = check_layers.check(self.root)
                (self.root / path).unlink()
                self.assertEqual(len(problems), 1, problems)
                self.assertIn("no room", problems[0])

    def test_rejects_a_circle_of_files(self):
        self.write("base/one.h", '#include "base/two.h"\n')
        self.write("base/two.cc", '#include "base/three.h"\n#include "base/two.h"\n')
        self.write("base/two.h", "#pragma once\n")
        self.write("base/three.h", '#include "base/one.h"\n')
        problems, _ = check_layers.check(self.root)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn("base/one <-> base/three <-> base/two", problems[0])

    def test_rejects_a_crowded_folder(self):
        for number in range(check_layers.MOST_FILES):
            self.write(f"fusion/full/file_{number}.h", "#pragma once\n")
        counts = check_layers.files_per_folder(self.root)
        self.assertEqual(counts["fusion/full"], check_layers.MOST_FILES)
        self.assertEqual(check_layers.crowded_folders(counts), [])
        self.write("fusion/full/one_more.cc", "\n")
        crowded = check_layers.crowded_folders(check_layers.files_per_folder(self.root))
        self.assertEqual(len(crowded), 1, crowded)
        self.assertTrue(crowded[0].startswith("fusion/full: 27 source files"), crowded)


if __name__ == "__main__":
    unittest.main()
