#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fresh.sh <dev>: the packages in a new minimal Debian; 77 where none can be made.
set -eu
obstacle=$("$1" fresh-obstacle)
if [ -n "$obstacle" ]; then
  echo "skipped: $obstacle"
  exit 77
fi
exec "$1" fresh-packages
