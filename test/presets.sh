#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ./dev test: what it builds and runs. Part of ./dev, which sources it.
#
# A part is a preset, torch (what needs PyTorch among the tests of release), or a level of x86-64 (release as on a lesser
# machine). .ci/run has the steps of several parts go on side by side: test-build, test-run, test-again, test-summary.

readonly TEST_LEVELS=(x86-64-v2 x86-64-v3)

# need_test_packages [package]...: those named, too.
need_test_packages() {
  need_packages "${BUILD_PACKAGES[@]}" "${CACHE_PACKAGES[@]}" "${DATA_PACKAGES[@]}" "${TEST_PACKAGES[@]}" "$@"
}

check_part() {
  case $1 in
    release | torch | asan | tsan | debug | cuda | x86-64-v2 | x86-64-v3) ;;
    *) die "unknown part '$1': use release, torch, asan, tsan, debug, cuda, x86-64-v2 or x86-64-v3" ;;
  esac
}

# build_of <part>: the name of its build folder.
build_of() {
  if [[ $1 == torch ]]; then echo release; else echo "$1"; fi
}

# test_build [part]...: builds what their tests need.
test_build() {
  local part
  for part in "${@:-release}"; do build_part "$part"; done
}

build_part() {
  local part=$1
  check_part "$part"
  case $part in
    torch) need_test_packages "${TORCH_PACKAGES[@]}" ;;
    *) need_test_packages ;;
  esac
  need_preset "$part"
  case $part in
    torch)
      build_everything release
      cmake --build build/release --parallel "$(nproc)" --target torch_tests
      ;;
    x86-64-*)
      say "build build/$part"
      cmake --preset release -B "build/$part" --log-level=WARNING -DRONDE_NATIVE="$part" >/dev/null
      cmake --build "build/$part" --parallel "$(nproc)"
      ;;
    *) build_everything "$part" ;;
  esac
}

# test_run [full] [part]: runs them, more at a time than there are cores, since most of them wait for processes and
# deadlines; one that computes or measures takes several of ctest's places (PROCESSORS). Those that were late are left
# to test_again.
test_run() {
  local full=${1:-} part build flags=() start=$SECONDS code=0
  if [[ $full == full ]]; then shift; fi
  part=${1:-release}
  check_part "$part"
  build=$(build_of "$part")
  if [[ $part == torch ]]; then flags+=(--label-regex '^torch$'); fi
  case $full:$part in
    full:torch) ;;
    full:*) flags+=(--label-exclude '^torch$') ;;
    *:torch) flags+=(--label-exclude '^long$') ;;
    *) flags+=(--label-exclude '^(long|torch)$') ;;
  esac
  case $part in
    x86-64-v2) export ONEDNN_MAX_CPU_ISA=SSE41 ;;
    x86-64-v3) export ONEDNN_MAX_CPU_ISA=AVX2 ;;
  esac
  say "test $part"
  # The caller may go on after red tests, so the shell does not end here by itself.
  python3 -B test/second_tries.py first "build/$build:$part" ctest --test-dir "build/$build" --no-tests=error \
    --output-on-failure --parallel "${TESTS_AT_A_TIME:-$((3 * $(nproc)))}" "${flags[@]}" |
    tee "build/$part.tests.log" || code=$?
  say "the tests of $part took $((SECONDS - start)) s"
  return "$code"
}

# names_of <part>...: as second_tries.py names them.
names_of() {
  local part
  for part in "$@"; do echo "build/$(build_of "$part"):$part"; done
}

# test_again <part>...: once more, and alone, those that were late.
test_again() {
  local names
  mapfile -t names < <(names_of "$@")
  python3 -B test/second_tries.py again "${names[@]}"
}

# test_summary <part>...: ctest's summaries; that of the first part comes last, behind a line for each second try, and
# one for each line of FAILED: what else has gone wrong.
test_summary() {
  local names i parts=("$@")
  for ((i = ${#parts[@]} - 1; i >= 0; --i)); do
    say "once more: the tests of ${parts[i]}"
    if ((i == 0)); then
      mapfile -t names < <(names_of "${parts[@]}")
      python3 -B test/second_tries.py lines "${names[@]}"
      if [[ -n ${FAILED:-} ]]; then printf 'FAILED: %s\n' "${FAILED//$'\n'/$'\nFAILED: '}"; fi
    fi
    summary_of "build/${parts[i]}.tests.log"
  done
}

# The last lines of ctest, from its summary on.
summary_of() {
  awk -v file="$1" '/^[0-9]+% tests passed, / { text = "" ; on = 1 }
    on { text = text $0 "\n" }
    END { if (on) printf "%s", text; else print "FAILED: " file " has no summary of ctest" }' "$1"
}

# What ccache found, in one line.
compiler_cache_report() {
  if [[ -s ${CCACHE_STATSLOG:-} ]]; then
    awk '/^(direct|preprocessed)_cache_hit$/ { ++hits } /^cache_miss$/ { ++misses } END {
      printf "==> ccache: %d of %d compilations were there\n", hits, hits + misses }' "$CCACHE_STATSLOG"
  fi
}

# test_parts [full] [part]: one that fails does not hide what the others find.
test_parts() {
  local full='' part parts=(release) result=0
  if [[ ${1:-} == full ]]; then
    full=full
    parts=(release torch asan tsan "${TEST_LEVELS[@]}")
    shift
  fi
  if (($# > 0)); then parts=("$@"); fi
  for part in "${parts[@]}"; do check_part "$part"; done
  say "what will be done: ${full:+everything with the tests that take long: }build ${parts[*]}, and run the tests." \
    "On two cores each part takes about a quarter of an hour from nothing, half of that where all is built${full:+;" \
    "with the long ones it is some hours}"
  mkdir -p build
  if [[ -n $full ]]; then
    need_packages "${FULL_PACKAGES[@]}"
    # Where several sources are compiled as one, a source may lack what another has.
    timed test_build debug
  fi
  for part in "${parts[@]}"; do
    timed test_build "$part"
    test_run ${full:+full} "$part" || result=$?
  done
  test_again "${parts[@]}" || result=$?
  test_summary "${parts[@]}"
  return "$result"
}
