# The kernel's NVMe/TCP host: discovery, DH-HMAC-CHAP both ways and both digests, a file system, a restart of the daemon
# under load, a new size, commands of nvme-cli, reservations.
nvme_port=4420

nvme_serve() { # PORT
  # secrets of this test alone, as `nvme gen-dhchap-key` prints them
  echo 'DHHC-1:01:SlVga3aBjJeirbjDztnk7/oFEBsmMTxHUl1oc36JlJ9Udcmo:' >"$work/dhchap"
  echo 'DHHC-1:02:b3qFkJumsbzH0t3o8/4JFB8qNUBLVmFsd4KNmKOuucTP2uXw+wYRHCcyPUhTXml0QnvTEQ==:' >"$work/dhchap-nas"
  chmod 600 "$work/dhchap" "$work/dhchap-nas"
  poolhouse zfs create -s -V 512M tank/nvme
  poolhouse config set nvme.listen "$1"
  poolhouse share add nvme tank/nvme -o nqn=nqn.2026-11.org.example:clients \
    -o "dhchap_secret_file=$work/dhchap" -o "dhchap_ctrl_secret_file=$work/dhchap-nas"
}

# Grows the volume and starts the daemon again while the client writes.
nvme_beside() {
  until poolhouse share status --json | python3 -c '
import json, sys
shares = [share for share in json.load(sys.stdin)["shares"] if share["protocol"] == "nvme"]
written = sum(client.get("written_bytes") or 0 for share in shares for client in share["clients"])
sys.exit(written < 32 << 20)'; do sleep 1; done
  poolhouse zfs set volsize=768M tank/nvme
  sleep 20
  poolhouse serve --stop
  poolhouse share status >/dev/null
}

nvme_connect() { # OPTION...
  nvme connect -t tcp -a 10.0.2.100 -s 4420 -n nqn.2026-11.org.example:clients --nr-io-queues=2 \
    --hdr-digest --data-digest --reconnect-delay=2 "$@" >/dev/null 2>&1
}

nvme_disk() { # the disk of the subsystem, when it is there
  local disk
  for _ in $(seq 100); do
    disk=$(lsblk -ndo NAME,TRAN | awk '$2 == "nvme" {print $1; exit}')
    [[ -z $disk ]] || break
    sleep 0.1
  done
  echo "/dev/$disk"
}

# Compare, Copy, Write Zeroes and Verify, at the end of the disk $1.
nvme_commands() {
  local at=$(($(blockdev --getsize64 "$1") / 512 - 2048))
  dd if=/dev/urandom of=/tmp/block bs=4096 count=1 status=none
  dd if=/tmp/block of="$1" bs=512 seek=$at oflag=direct status=none
  nvme compare "$1" -s $at -c 7 -z 4096 -d /tmp/block
  ! nvme compare "$1" -s $((at + 8)) -c 7 -z 4096 -d /tmp/block 2>/dev/null
  nvme copy "$1" --sdlba=$((at + 1024)) --slbs=$at --blocks=7
  nvme compare "$1" -s $((at + 1024)) -c 7 -z 4096 -d /tmp/block
  nvme write-zeroes "$1" -s $at -c 7
  nvme compare "$1" -s $at -c 7 -z 4096 -d /dev/zero
  nvme verify "$1" -s $at -c 7
}

nvme_reservations() { # DISK
  nvme resv-register "$1" --nrkey=0xabc --rrega=0 --cptpl=3
  nvme resv-acquire "$1" --crkey=0xabc --rtype=1 --racqa=0
  nvme resv-report "$1" --eds | grep -q 'rkey *: abc'
  nvme resv-report "$1" --eds | grep -q 'ptpls *: 1'
  nvme resv-release "$1" --crkey=0xabc --rtype=1 --rrela=0
  nvme resv-register "$1" --crkey=0xabc --rrega=1
}

nvme_check() {
  modprobe nvme_tcp
  nvme discover -t tcp -a 10.0.2.100 -s 4420 | grep -q 'subnqn:  nqn.2026-11.org.example:clients'
  # without its secret a host is refused, and a controller that does not prove itself
  ! nvme_connect
  local secret=DHHC-1:01:SlVga3aBjJeirbjDztnk7/oFEBsmMTxHUl1oc36JlJ9Udcmo:
  local wrong=DHHC-1:00:JTA7RlFcZ3J9iJOeqbS/ytXg6/YBDBciLThDTllkb3qr02o2:
  local other=DHHC-1:02:b3qFkJumsbzH0t3o8/4JFB8qNUBLVmFsd4KNmKOuucTP2uXw+wYRHCcyPUhTXml0QnvTEQ==:
  ! nvme_connect --dhchap-secret=$wrong
  ! nvme_connect --dhchap-secret=$secret --dhchap-ctrl-secret=$wrong
  nvme_connect --dhchap-secret=$secret --dhchap-ctrl-secret=$other
  dmesg | grep -q 'controller authenticated'
  local disk
  disk=$(nvme_disk)
  nvme list | grep -q Poolhouse
  mkfs.ext4 -q "$disk"
  mkdir -p /mnt/nvme
  mount "$disk" /mnt/nvme
  fio --name=v --directory=/mnt/nvme --size=48m --bs=4k-128k --rw=randrw --verify=crc32c --do_verify=1 \
    --verify_state_save=0 --ioengine=psync --end_fsync=1 >/tmp/fio || { cat /tmp/fio; return 1; }
  cp -a /usr/share/python3 /mnt/nvme/copy
  # write until the daemon was started again, and the controller has come back
  for _ in $(seq 240); do
    ! dmesg | grep -q 'Successfully reconnected' || break
    dd if=/dev/urandom of=/mnt/nvme/load bs=64k count=16 conv=fsync status=none
    sleep 0.5
  done
  dmesg | grep -q 'Successfully reconnected'
  dd if=/dev/urandom of=/mnt/nvme/load bs=64k count=16 conv=fsync status=none
  # the new size is there by itself
  [[ $(blockdev --getsize64 "$disk") == 805306368 ]]
  resize2fs "$disk" 2>/dev/null
  rm /mnt/nvme/v.* /mnt/nvme/load
  fstrim /mnt/nvme
  umount /mnt/nvme
  echo 3 >/proc/sys/vm/drop_caches
  mount "$disk" /mnt/nvme
  diff -r /usr/share/python3 /mnt/nvme/copy
  umount /mnt/nvme
  e2fsck -fn "$disk"
  nvme_commands "$disk"
  nvme_reservations "$disk"
  nvme disconnect -n nqn.2026-11.org.example:clients >/dev/null
  echo "DH-HMAC-CHAP both ways, CRC32C, ext4, fio --verify over a restart, a new size, fstrim, e2fsck, reservations"
}
