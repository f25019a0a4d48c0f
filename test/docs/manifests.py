#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes manifests of launcher/CLUSTER.md: each field exists where it stands, and has a value of its type.

usage: manifests.py ROOT

What is known here is what the API reference has of the kinds that the page uses (core/v1, batch/v1, and Kubeflow's
kubeflow.org/v2beta1), as far as it uses them. It reads the part of YAML that manifests need: mappings and lists by
indentation, lists in brackets, and plain or quoted scalars.
"""
import json
import pathlib
import re
import sys

STRING, NUMBER, BOOLEAN = "a string", "a number", "true or false"
NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"


class Choice(tuple):
    """One of these words."""


ENV = {"name": STRING, "value": STRING}
MOUNT = {"name": STRING, "mountPath": STRING, "readOnly": BOOLEAN}
CONTAINER = {"name": STRING, "image": STRING, "command": [STRING], "args": [STRING], "env": [ENV], "volumeMounts": [MOUNT]}
VOLUME = {"name": STRING, "secret": {"secretName": STRING, "defaultMode": NUMBER},
          "persistentVolumeClaim": {"claimName": STRING, "readOnly": BOOLEAN}}
POD = {"subdomain": STRING, "restartPolicy": Choice(("Always", "OnFailure", "Never")),
       "terminationGracePeriodSeconds": NUMBER, "containers": [CONTAINER], "volumes": [VOLUME]}
META = {"name": STRING, "labels": {}}
TEMPLATE = {"metadata": META, "spec": POD}
RULE = {"action": Choice(("FailJob", "Ignore", "Count", "FailIndex")),
        "onExitCodes": {"containerName": STRING, "operator": Choice(("In", "NotIn")), "values": [NUMBER]},
        "onPodConditions": [{"type": STRING, "status": STRING}]}
REPLICAS = {"replicas": NUMBER, "restartPolicy": Choice(("Always", "OnFailure", "Never", "ExitCode")),
            "template": TEMPLATE}
KINDS = {
    ("v1", "Service"): {"spec": {"clusterIP": STRING, "publishNotReadyAddresses": BOOLEAN, "selector": {}}},
    ("batch/v1", "Job"): {"spec": {"completionMode": Choice(("Indexed", "NonIndexed")), "completions": NUMBER,
                                   "parallelism": NUMBER, "backoffLimit": NUMBER, "template": TEMPLATE,
                                   "podFailurePolicy": {"rules": [RULE]}}},
    ("kubeflow.org/v2beta1", "MPIJob"): {
        "spec": {"slotsPerWorker": NUMBER, "sshAuthMountPath": STRING,
                 "mpiImplementation": Choice(("OpenMPI", "Intel", "MPICH")),
                 "runPolicy": {"cleanPodPolicy": Choice(("None", "Running", "All")), "backoffLimit": NUMBER},
                 "mpiReplicaSpecs": {"Launcher": REPLICAS, "Worker": REPLICAS}}},
}
NEEDED = {id(CONTAINER): ("name", "image"), id(ENV): ("name",), id(MOUNT): ("name", "mountPath"), id(VOLUME): ("name",),
          id(POD): ("containers",), id(RULE): ("action",), id(REPLICAS): ("template",), id(META): ("name",)}


# ---- reading ----

def scalar(text):
    text = text.strip()
    if text.startswith("["):
        if not text.endswith("]"):
            raise ValueError(f"a list without an end: {text}")
        return [scalar(word) for word in re.findall(r'\s*("(?:[^"\\]|\\.)*"|[^",]+)\s*(?:,|$)', text[1:-1])]
    if text.startswith('"'):
        return json.loads(text)
    if re.fullmatch(r"0[0-7]+", text):
        return int(text, 8)
    if re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    return {"true": True, "false": False}.get(text, text)


def read_block(lines, indent):
    """Takes the lines of this indentation from the list of (indentation, text), and what is below them."""
    is_list = lines[0][1].startswith("- ")
    result = [] if is_list else {}
    while lines and lines[0][0] == indent and lines[0][1].startswith("- ") == is_list:
        if is_list:
            # What follows the dash is a block that begins two columns to the right.
            lines[0] = (indent + 2, lines[0][1][2:])
            plain = not re.match(r"[\w.-]+:( |$)", lines[0][1])
            result.append(scalar(lines.pop(0)[1]) if plain else read_block(lines, indent + 2))
            continue
        key, colon, value = lines.pop(0)[1].partition(":")
        if not colon or key in result:
            raise ValueError(f"no mapping, or a field twice: {key}")
        if value.strip():
            result[key] = scalar(value)
        elif lines and (lines[0][0] > indent or (lines[0][0] == indent and lines[0][1].startswith("- "))):
            result[key] = read_block(lines, lines[0][0])
        else:
            raise ValueError(f"{key} has no value")
    return result


def read(text):
    lines = [(len(line) - len(line.lstrip()), line.strip()) for line in text.splitlines()
             if line.strip() and not line.lstrip().startswith("#")]
    document = read_block(lines, 0)
    if lines:
        raise ValueError(f"the indentation of: {lines[0][1]}")
    return document


# ---- checking ----

def findings(value, wanted, where):
    if isinstance(wanted, dict):
        if not isinstance(value, dict):
            return [f"{where}: expected fields"]
        found = [f"{where} lacks {field}" for field in NEEDED.get(id(wanted), ()) if field not in value]
        for field, below in value.items():
            if not wanted:  # labels of the user's own
                found += findings(below, STRING, f"{where}.{field}")
            elif field in wanted:
                found += findings(below, wanted[field], f"{where}.{field}")
            else:
                found.append(f"{where} has no field {field}")
        return found
    if isinstance(wanted, list):
        if not isinstance(value, list):
            return [f"{where}: expected a list"]
        return [line for i, one in enumerate(value) for line in findings(one, wanted[0], f"{where}[{i}]")]
    if isinstance(wanted, Choice):
        return [] if value in wanted else [f"{where}: {value!r} is none of {', '.join(wanted)}"]
    kind = BOOLEAN if isinstance(value, bool) else NUMBER if isinstance(value, int) else STRING
    if isinstance(value, (dict, list)) or kind != wanted:
        return [f"{where}: {value!r} is not {wanted}"]
    return [f"{where}: {value!r} is no name"] if where.endswith(".name") and "env" not in where and not re.fullmatch(
        NAME, value) else []


def check(text):
    """What is wrong with a manifest."""
    try:
        document = read(text)
    except (ValueError, IndexError) as error:
        return [f"not readable: {error}"]
    kind = (document.get("apiVersion"), document.get("kind"))
    if kind not in KINDS:
        return [f"no such kind: {kind}"]
    wanted = {"apiVersion": STRING, "kind": STRING, "metadata": META, **KINDS[kind]}
    found = findings(document, wanted, kind[1])
    pods = []

    def collect(value):
        if isinstance(value, dict):
            if "containers" in value:
                pods.append(value)
            for below in value.values():
                collect(below)
    collect(document)
    for pod in pods:
        volumes = {one.get("name") for one in pod.get("volumes", [])}
        mounts = {mount.get("name") for one in pod["containers"] for mount in one.get("volumeMounts", [])}
        if volumes != mounts:
            found.append(f"{kind[1]}: volumes {sorted(volumes)}, mounts {sorted(mounts)}")
    return found


def manifests(page):
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [part for block in blocks for part in re.split(r"^---\n", block, flags=re.MULTILINE)]


def main():
    page = (pathlib.Path(sys.argv[1]) / "launcher" / "CLUSTER.md").read_text(encoding="utf-8")
    all_of_them = manifests(page)
    found = [line for one in all_of_them for line in check(one)]
    kinds = [read(one)["kind"] for one in all_of_them if not check(one)]
    if found or sorted(kinds) != ["Job", "Job", "MPIJob", "Service"]:
        sys.exit("\n".join(found) or f"expected two Jobs, an MPIJob and a Service, and found {kinds}")
    print(f"{len(kinds)} manifests are as the API has them")


if __name__ == "__main__":
    main()
