#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh <cmake> <build folder> <prefix>: installs into an empty prefix.
set -eu
rm -rf "$3"
"$1" --install "$2" --prefix "$3"
