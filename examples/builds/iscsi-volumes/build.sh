#!/usr/bin/env bash
# Volumes by iSCSI from one text file (2015): a volume is a disk for another machine. Six lines share it, an initiator
# proves who it is, and a restart of the server in the midst of writes loses nothing.
#
#   examples/builds/iscsi-volumes/build.sh [PROGRAM]
#
# The initiator is libiscsi's (qemu-img, iscsi-ls); tools/clients/iscsi.sh does the same with the kernel's.
source "$(dirname "$0")/../lib.sh"
need iscsi-ls libiscsi-bin
need qemu-img qemu-utils
qemu-img --help | grep -q ' iscsi' || need qemu-block-iscsi qemu-block-extra
port=$(free_port)
show_as "\\b$port\\b" 3260

section volume
drive d1 2000M
drive d2 2000M
run "poolhouse zpool create -m none tank mirror d1 d2"
say "A sparse volume takes no more space than was written to it."
run "poolhouse zfs create -s -V 1G tank/disk"

section configuration
say "config.toml is all there is to keep. Every change of it takes effect at once."
cat >"$POOLHOUSE_STATE/config.toml" <<END
[iscsi]
listen = "127.0.0.1:$port"

[[share]]
protocol = "iscsi"
dataset = "tank/disk"
target = "iqn.2015-06.lan.nas:disk"
chap_user = "anna"
chap_secret_file = "$work/chap"
END
run "cat state/config.toml"
say "The secret is in a file that its owner alone reads. iSCSI asks for 12 characters; a shorter one is refused."
(umask 077 && printf 'elevenchars' >chap)
touch state/config.toml
run "poolhouse config check"
wait_until 'poolhouse share status | grep "at least 12"'
run "poolhouse share status"
(umask 077 && printf 'twelve-chars' >chap)
touch state/config.toml
wait_until '! poolhouse share status --json | grep "\"problem\": \""'
run "poolhouse share status"

section client
say "An initiator without the secret is turned away; with it, it sees the disk. Digests protect what travels."
target=iscsi://127.0.0.1:$port/iqn.2015-06.lan.nas:disk/0
refused "iscsi-readcapacity16 '$target?header_digest=crc32c'"
export LIBISCSI_CHAP_USERNAME=anna LIBISCSI_CHAP_PASSWORD=twelve-chars
run "iscsi-readcapacity16 '$target?header_digest=crc32c' | grep 'Total size'"

section restart
say "An image of 100 MB is written, and the server is restarted in the midst of it."
random_file image 100
qemu-img convert -n -r 25M -f raw -O raw image "$target" 2>writer.log &
writer=$!
processes+=("$writer")
wait_until 'poolhouse share status --json | grep -E "\"written_bytes\": [0-9]{7}"'
run "poolhouse serve --stop"
check "the initiator waits for the server" 'kill -0 "$writer"'
run "poolhouse zpool list -Ho name,health"
check "the writer ends well" 'wait "$writer"'
check "every byte is what was written" 'qemu-img compare -f raw -F raw image "$target"'
run "poolhouse zpool export -f tank"
check "so does the pool on its drives" 'poolhouse rescue volume -q -d . tank/disk copy && cmp -n 104857600 image copy'
