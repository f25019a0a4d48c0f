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
    "collectives/mpi_transport.cc": '#include <mpi.h>\n#include "fusion/batch.h"\n',
    "collectives/cuda/nccl_api.cc": "#include <nccl.h>\n#include <cuda_runtime.h>\n",
    "runtime/engine.h": '#include "collectives/ring.h"\n#include "base/status.h"\n',
    "collectives/ring.h": '  #  include "base/status.h"\n',
    "bindings/c/ronde.cc": '#include "ronde/ronde.h"\n#include "runtime/engine.h"\n',
    "bindings/cpp/include/ronde/ronde.hpp": "#include <ronde/ronde.h>\n",
    "bindings/trainer/tensor.h": "#include <ronde/ronde.hpp>\n#include <cblas.h>\n",
    "examples/job.cc": '#include "bindings/trainer/tensor.h"\n#include <ronde/ronde.hpp>\n',
    "launcher/main.cc": '#include "launcher/plan.h"\n#include "base/status.h"\n',
    "launcher/plan.h": "#pragma once\n",
}

BAD = [
    ("base/bad.h", '#include "fusion/batch.h"'),
    ("base/bad.h", '#include "runtime/engine.h"'),
    ("base/bad.h", "#include <ronde/ronde.h>"),
    ("base/bad.h", "#include <runtime/engine.h>"),
    ("fusion/bad.cc", '#include "collectives/ring.h"'),
    ("collectives/bad.cc", '#include "runtime/engine.h"'),
    ("runtime/bad.cc", '#include "ronde/ronde.h"'),
    ("runtime/bad.cc", '#include "bindings/c/include/ronde/ronde.h"'),
    ("runtime/bad.cc", "#include <mpi.h>"),
    ("collectives/bad.cc", "#include <nccl.h>"),
    ("fusion/bad.cc", "#include <cuda_runtime.h>"),
    ("collectives/cuda/bad.cc", '#include "runtime/engine.h"'),
    ("collectives/bad.cc", '#include "ring.h"'),
    ("collectives/bad.cc", '#include "../base/status.h"'),
    ("collectives/bad.cc", '#include "test/support/helper.h"'),
    ("bindings/trainer/bad.cc", '#include "runtime/engine.h"'),
    ("bindings/trainer/bad.cc", "#include <ronde/ronde.h>"),
    ("bindings/trainer/bad.cc", '#include "examples/job.h"'),
    ("bindings/cpp/include/ronde/bad.hpp", '#include "runtime/engine.h"'),
    ("examples/bad.cc", '#include "base/status.h"'),
    ("launcher/bad.cc", '#include "runtime/engine.h"'),
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


if __name__ == "__main__":
    unittest.main()
