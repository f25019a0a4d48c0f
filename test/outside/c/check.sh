#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh <cc> <prefix> <library folder> <work folder>: an outside C project, found with pkg-config.
# C99 and all warnings: the header must be good for the strictest user.
set -eu
cc=$1 prefix=$2 libdir=$3 work=$4
here=$(dirname "$0")

mkdir -p "$work"
flags=$(PKG_CONFIG_PATH="$libdir/pkgconfig" pkg-config --cflags --libs ronde)
case $flags in
  *"$prefix"*) ;;
  *) echo "pkg-config found another ronde than $prefix: $flags"; exit 1 ;;
esac
# The flags are a list of words.
# shellcheck disable=SC2086
"$cc" -std=c99 -Wall -Wextra -Wpedantic -Werror "$here/job_of_one.c" -o "$work/job_of_one" $flags \
  -Wl,-rpath,"$libdir"
"$work/job_of_one"

# A back end of somebody else, with the installed header alone: Ronde asks it, and goes on without.
"$cc" -std=c99 -Wall -Wextra -Wpedantic -Werror -I"$prefix/include" -shared -fPIC "$here/plugin.c" \
  -o "$work/libplugin.so"
said=$(RONDE_PLUGIN_PATH="$work/libplugin.so" "$work/job_of_one" 2>&1)
case $said in
  *"the plug-in 'outsider' is not used: nobody has built the device yet"*) ;;
  *) echo "the job with a plug-in of its own said: $said"; exit 1 ;;
esac
