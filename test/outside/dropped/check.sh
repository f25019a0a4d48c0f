#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh <c++> <prefix> <work folder>: a Work that is dropped is a warning of every compiler.
set -eu
cxx=$1 prefix=$2 work=$3
rm -rf "$work"
mkdir -p "$work"

# compile <name> <end of a statement>: whether all operations compile with that warning as an error, each in a line of
# its own, which begins at the fifth.
compile() {
  {
    printf '#include <ronde/ronde.hpp>\n#include <span>\n#include <vector>\n'
    echo 'void step(ronde::Engine& engine, std::vector<float>& data) {'
    echo "$operations" | sed "s/.*/  engine.&$2;/"
    echo '}'
  } > "$work/$1.cc"
  "$cxx" -std=c++20 -Werror=unused-result -fsyntax-only -I"$prefix/include" "$work/$1.cc" 2> "$work/$1.log"
}

operations='allreduce("x", std::span(data))
broadcast("x", std::span(data), 0)
allgather("x", std::span(data))
all_to_all("x", std::span(data))
barrier()'

compile waited '.wait()' || { cat "$work/waited.log"; exit 1; }
if compile dropped ''; then
  echo "no warning of any operation"
  exit 1
fi
line=4
echo "$operations" | while read -r operation; do
  line=$((line + 1))
  if ! grep "/dropped\.cc:$line:.*error:" "$work/dropped.log" | grep -q 'wait() for it'; then
    echo "no warning: engine.$operation"
    cat "$work/dropped.log"
    exit 1
  fi
done
