#!/usr/bin/env bash
# Installs the missing packages for building and testing. Prints nothing if all are installed.
set -euo pipefail

missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); } # COMMAND PACKAGE

need cc build-essential
need make build-essential
need pkg-config pkg-config
[[ ! -e /dev/fuse ]] || need fusermount3 fuse3 # only for `poolhouse rescue mount`

if [[ ${#missing[@]} -gt 0 ]]; then
  as_root=()
  if [[ $(id -u) -ne 0 ]]; then
    if ! sudo -n true 2>/dev/null; then
      echo "setup: please install: ${missing[*]}" >&2
      if command -v cc >/dev/null; then exit 0; else exit 1; fi # only a C compiler is indispensable
    fi
    as_root=(sudo -n)
  fi
  if ! command -v apt-get >/dev/null; then
    echo "setup: please install what this system calls: ${missing[*]}" >&2
    if command -v cc >/dev/null; then exit 0; else exit 1; fi
  fi
  echo "setup: installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq >/dev/null
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null
fi

# Without these some tests are skipped: a browser, rsync, and clients and servers
# of network storage.
wanted=()
command -v chromium >/dev/null 2>&1 || command -v chromium-headless-shell >/dev/null 2>&1 ||
  wanted+=(chromium-headless-shell fonts-dejavu-core)
command -v rsync >/dev/null 2>&1 || wanted+=(rsync)
command -v nbdcopy >/dev/null 2>&1 || wanted+=(libnbd-bin)
command -v nbdkit >/dev/null 2>&1 || wanted+=(nbdkit)
command -v qemu-img >/dev/null 2>&1 || wanted+=(qemu-utils)
# a simulated UPS; where systemd runs, the package would start a server
[[ -d /run/systemd/system || -x /lib/nut/dummy-ups ]] || wanted+=(nut-server)
# pynfs
python3 -c "import ply" 2>/dev/null || wanted+=(python3-ply)
command -v nfs-cat >/dev/null 2>&1 || wanted+=(libnfs-utils)
command -v iscsi-test-cu >/dev/null 2>&1 || wanted+=(libiscsi-bin)
# QEMU's iSCSI initiator
compgen -G "/usr/lib/*/qemu/block-iscsi.so" >/dev/null || wanted+=(qemu-block-extra)
command -v smbclient >/dev/null 2>&1 || wanted+=(smbclient)
# where systemd runs, the package would start a server on every network
[[ -d /run/systemd/system || -x /usr/sbin/smbd ]] || wanted+=(samba samba-vfs-modules)
command -v smbtorture >/dev/null 2>&1 || wanted+=(samba-testsuite)
command -v setfattr >/dev/null 2>&1 || wanted+=(attr)
as_root=(env)
[[ $(id -u) -eq 0 ]] || as_root=(sudo -n)
if [[ ${#wanted[@]} -gt 0 ]] && command -v apt-get >/dev/null && "${as_root[@]}" true 2>/dev/null; then
  echo "setup: installing ${wanted[*]}"
  {
    "${as_root[@]}" apt-get update -qq
    for package in "${wanted[@]}"; do
      "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$package" || echo "$package"
    done
  } >/dev/null 2>&1 || true # tests say in a line what they leave out
fi

if ! command -v cargo >/dev/null; then
  echo "setup: no Rust toolchain here; rustup installs the one that rust-toolchain.toml names" >&2
  exit 1
fi
