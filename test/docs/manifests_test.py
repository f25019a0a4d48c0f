#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that manifests.py sees what is wrong with a manifest."""
import unittest

import manifests

JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: train
spec:
  backoffLimit: 3
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: train
          image: registry.example/train:1
          command: [sh, -c, "a, [b]: c", "8"]
          env:
            - name: RONDE_SIZE
              value: "4"
          volumeMounts:
            - name: data
              mountPath: /data
      volumes:
        - name: data
          secret:
            secretName: train
            defaultMode: 0400
"""


class Manifests(unittest.TestCase):
    def test_a_manifest_is_read(self):
        self.assertEqual(manifests.check(JOB), [])
        pod = manifests.read(JOB)["spec"]["template"]["spec"]
        self.assertEqual(pod["containers"][0]["command"], ["sh", "-c", "a, [b]: c", "8"])
        self.assertEqual(pod["volumes"][0]["secret"]["defaultMode"], 0o400)
        self.assertEqual(pod["containers"][0]["env"], [{"name": "RONDE_SIZE", "value": "4"}])

    def test_what_is_wrong_is_found(self):
        for before, after, finding in (
                ("backoffLimit", "backOffLimit", "Job.spec has no field backOffLimit"),
                ("backoffLimit: 3", 'backoffLimit: "3"', "'3' is not a number"),
                ("Never", "never", "'never' is none of"),
                ('value: "4"', "value: 4", "4 is not a string"),
                ("          image: registry.example/train:1\n", "", "containers[0] lacks image"),
                ("      restartPolicy", "      podRestart", "has no field podRestart"),
                ("        - name: data\n          secret", "        - name: other\n          secret", "mounts ['data']"),
                ("metadata:\n  name: train", "metadata:\n  name: Train_1", "is no name"),
                ("      containers", "     containers", "not readable"),
                ("batch/v1", "batch/v2", "no such kind"),
                ("command: [sh, -c, \"a, [b]: c\", \"8\"]", "command: sh", "expected a list"),
                ("\"8\"]", "8]", "8 is not a string")):
            with self.subTest(finding):
                self.assertIn(before, JOB)
                self.assertIn(finding, "\n".join(manifests.check(JOB.replace(before, after, 1))))


if __name__ == "__main__":
    unittest.main()
