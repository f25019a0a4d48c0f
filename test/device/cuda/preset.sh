#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# In a build without the GPU plug-in: says where its tests are, and skips where they cannot be.
#   preset.sh <root of the repository>
set -euo pipefail

obstacle=$("$1/dev" cuda-obstacle)
if [[ -n $obstacle ]]; then
  echo "the GPU plug-in is neither built nor tested: $obstacle"
  exit 77
fi
echo "the GPU plug-in is built and tested by the preset cuda"
