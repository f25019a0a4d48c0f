#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ./dev fresh: the demo, and its programs after MPI has gone, or the packages, in a new minimal Debian. Part of ./dev,
# which sources it.

# In a mount and process namespace of its own: mounts and processes vanish with it, whatever happens.
readonly FRESH_NAMESPACE=(unshare --mount --propagation private --pid --fork --kill-child)

readonly MOST_COMPILATIONS=100

# Prints why ./dev fresh cannot run here; prints nothing when it can.
fresh_obstacle() {
  if [[ $(id -u) != 0 ]]; then
    echo "not root"
  elif ! grep -qx 'ID=debian' /etc/os-release; then
    echo "this is not Debian"
  elif ! "${FRESH_NAMESPACE[@]}" true 2>/dev/null; then
    echo "this root may not make a mount namespace"
  fi
}

need_fresh_tools() {
  need_packages debootstrap git
  # Without package lists apt does not know which of its sources are Debian's.
  if [[ -z $(debian_source_files) ]]; then apt_get update; fi
}

fresh() {
  in_fresh_root fresh_demo
  say "fresh: green. A minimal Debian went from a clone to a trained model, and without MPI to two ranks by hand"
}

# Makes packages of this tree, and of the next release, to which they are upgraded.
fresh_packages() {
  local next
  next=$(mktemp -d)
  deb 2
  mv build/packages/*.deb "$next"
  deb
  mkdir build/packages/next
  mv "$next"/*.deb build/packages/next
  in_fresh_root fresh_packages_inside
  say "fresh: green. A minimal Debian ran programs on the packages, and nothing was left of them"
}

# in_fresh_root <function>: calls it with the new root in a namespace of its own.
in_fresh_root() {
  local obstacle root
  obstacle=$(fresh_obstacle)
  if [[ -n $obstacle ]]; then die "fresh cannot run here: $obstacle"; fi
  need_fresh_tools
  root=$(mktemp -d "${TMPDIR:-/tmp}/ronde-fresh.XXXXXX")
  # shellcheck disable=SC2064  # the folder of now
  trap "rm -rf --one-file-system '$root' '$root.log'" EXIT
  "${FRESH_NAMESPACE[@]}" "$PWD/dev" fresh-in-namespace "$root" "$1"
}

# debian_sources <format>: of each package index that comes from Debian itself.
debian_sources() {
  apt-get indextargets --format "$1" 'Identifier: Packages' 'Origin: Debian' | sort -u
}

debian_source_files() {
  # shellcheck disable=SC2016  # apt-get fills in
  debian_sources '$(SOURCESENTRY)' | sed 's/:[0-9]*$//' | sort -u
}

# The rest runs in the namespace; $1 is the new root, $2 what is done with it.
fresh_in_namespace() {
  local root=$1 suite mirror variable fresh_environment=()
  # shellcheck source=/dev/null
  suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
  # shellcheck disable=SC2016  # apt-get fills in
  mirror=$(debian_sources '$(CODENAME) $(REPO_URI)' | sed -n "s/^$suite //p" | head -n 1)
  [[ -n $mirror ]] || die "apt knows no mirror of Debian $suite"
  eval "$(apt-config shell http_proxy Acquire::http::Proxy https_proxy Acquire::https::Proxy)"
  for variable in http_proxy https_proxy no_proxy; do
    if [[ -n ${!variable:-} ]]; then
      # shellcheck disable=SC2163  # the variable it names
      export "$variable"
      fresh_environment+=("$variable=${!variable}")
    fi
  done

  chmod 755 "$root"  # apt fetches as a user of its own, who must get in
  say "fresh: debootstrap Debian $suite from $mirror into $root"
  debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$root.log" 2>&1 ||
    { tail -n 20 "$root.log"; die "debootstrap failed"; }

  say "fresh: take over this machine's apt configuration and names"
  take_over_configuration "$root"

  # Nobody keeps this root: what is unpacked need not survive a loss of power.
  echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/ronde-fresh"

  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  "$2" "$root"
}

# fresh_run <root> <command>...: with the environment of a login, and the proxies.
fresh_run() {
  chroot "$1" /usr/bin/env -i HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${fresh_environment[@]}" "${@:2}"
}

fresh_demo() {
  local root=$1
  say "fresh: copy the work tree"
  mkdir "$root/root/ronde"
  git -c safe.directory='*' ls-files -z --cached --others --exclude-standard |
    while IFS= read -r -d '' file; do if [[ -e $file ]]; then printf '%s\0' "$file"; fi; done |
    tar --create --null --files-from - | tar --extract --directory "$root/root/ronde"
  say "fresh: ./dev demo inside"
  fresh_run "$root" /root/ronde/dev demo
  fresh_count "$root/root/ronde/build/release/.ninja_log"
  say "fresh: the yardstick for those seconds of the cores, a source that is always the same"
  fresh_run "$root" bash -c "TIMEFORMAT='==> test/fresh/yardstick.cc took %R s, and its compiler %U s of the cores'
    time g++-12 -std=c++20 -O2 -c /root/ronde/test/fresh/yardstick.cc -o /tmp/yardstick.o"
  say "fresh: the same programs without any MPI"
  fresh_run "$root" bash -euo pipefail -c "$WITHOUT_MPI" || die "what needs no MPI does not run without it"
}

# fresh_count <log of ninja>: how many compilations the demo needs. A newcomer waits for all of them.
fresh_count() {
  local count
  count=$(cut -f 4 "$1" | sort -u | grep -cE '\.(o|gch)$')
  say "fresh: $count compilations for the demo"
  if ((count > MOST_COMPILATIONS)); then
    die "the demo needs $count compilations, and should need at most $MOST_COMPILATIONS: what has it come to build?"
  fi
}

fresh_packages_inside() {
  local root=$1
  mkdir "$root/root/packages"
  cp build/packages/*.deb "$root/root/packages"
  cp -r build/packages/next "$root/root/packages"
  cp -r test/packages/stranger "$root/root/stranger"
  say "fresh: install, use, upgrade and remove the packages inside"
  fresh_run "$root" sh /root/stranger/check.sh
}

# Run in the new root: MPI goes, and then a program runs alone, and as two ranks that are started by hand.
# shellcheck disable=SC2016  # that shell expands it
readonly WITHOUT_MPI='
  DEBIAN_FRONTEND=noninteractive apt-get -qq -y purge libopenmpi3 libopenmpi-dev openmpi-bin openmpi-common >/dev/null
  if ldconfig -p | grep libmpi || command -v mpirun; then echo "there is an MPI left" >&2; exit 1; fi
  train() { timeout 120 /root/ronde/build/release/bin/train_fashion_mnist_demo --steps=20 --test-images=100; }
  train | tee /tmp/alone
  grep -q "ranks=1 " /tmp/alone
  export RONDE_SIZE=2 RONDE_MEET=localhost:$((20000 + $$ % 10000))
  RONDE_RANK=1 train &
  other=$!
  RONDE_RANK=0 train | tee /tmp/two
  wait "$other"
  grep -q "ranks=2 " /tmp/two
'

take_over_configuration() {
  local root=$1 file
  rm -rf "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/*
  debian_source_files |
    while IFS= read -r file; do cp "$file" "$root$file"; done
  # How to fetch (proxies, certificates), but not what to do around an installation.
  { grep -rlE '^[[:space:]]*Acquire' /etc/apt/apt.conf.d /etc/apt/apt.conf 2>/dev/null || true; } |
    while IFS= read -r file; do cp "$file" "$root$file"; done
  for file in /etc/apt/keyrings /etc/apt/trusted.gpg.d /etc/apt/auth.conf /etc/apt/auth.conf.d; do
    if [[ -e $file ]]; then cp -a "$file" "$root/etc/apt/"; fi
  done
  for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do
    if [[ -e $file ]]; then
      mkdir -p "$root${file%/*}"
      cp --dereference --remove-destination "$file" "$root$file"
    fi
  done
}
