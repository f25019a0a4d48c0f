#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_kernel_objects.sh <libronde_collectives.a>: fails unless each file of kernels for one
# instruction set defines its table and nothing else that other files could link to. A function that
# the linker shares (an inline one, a template of the standard library) might be taken from the file
# with AVX-512 in it, and would crash programs on processors without.
set -eu

symbols=$(nm -A --defined-only "$1" | grep '/\{0,1\}reduce_\(plain\|avx2\|avx512\)\.cc\.o' || true)
if [ -z "$symbols" ]; then
  echo "$1 has no kernels at all"
  exit 1
fi
# Small letters are symbols of the file alone, but u, v and w, which are shared. The address sanitizer
# adds a guard to every table; the thread sanitizer unwinds, through a pointer that is no code.
shared=$(printf '%s\n' "$symbols" | grep ' [A-Zuvw] ' |
  grep -v ' [DR] _ZN5ronde11collectives[0-9]*k[A-Za-z0-9]*KernelsE$' |
  grep -v -e ' B __odr_asan\.' -e ' V DW\.ref\.__gxx_personality_v0$' || true)
if [ -n "$shared" ]; then
  echo "$1 shares code of one instruction set:"
  printf '%s\n' "$shared"
  exit 1
fi
echo "$1 shares nothing but its tables of kernels"
