# The kernel's iSCSI initiator: two of them by CHAP both ways and both digests, a file system, a new size, a restart of
# the daemon under load, reservations that outlast it.
iscsi_port=3260
iscsi_target=iqn.2026-11.org.example:clients

iscsi_serve() { # PORT
  printf 'secret-of-anna' >"$work/chap"
  printf 'secret-of-nas!' >"$work/chap-mutual"
  chmod 600 "$work/chap" "$work/chap-mutual"
  poolhouse zfs create -s -V 512M tank/iscsi
  poolhouse config set iscsi.listen "$1"
  poolhouse share add iscsi tank/iscsi -o "target=$iscsi_target" -o chap_user=anna \
    -o "chap_secret_file=$work/chap" -o mutual_user=nas -o "mutual_secret_file=$work/chap-mutual"
}

# Grows the volume and starts the daemon again while the client writes.
iscsi_beside() {
  local asked
  until asked=$(poolhouse share status --json | grep -o '"written_bytes": *[0-9]*' | head -1) &&
    [[ ${asked##*[: ]} -gt 33554432 ]]; do sleep 1; done
  poolhouse zfs set volsize=768M tank/iscsi
  sleep 20
  poolhouse serve --stop
  poolhouse share status >/dev/null
}

iscsi_node() { # OPERATION...
  iscsiadm -m node -T iqn.2026-11.org.example:clients -p 10.0.2.100:3260 "$@" >/dev/null
}

iscsi_set() { # NAME VALUE
  iscsi_node -o update -n "$1" -v "$2"
}

iscsi_disk() { # the disk of the target, when it is there
  local disk
  for _ in $(seq 100); do
    disk=$(lsblk -ndo NAME,TRAN | awk '$2 == "iscsi" {print $1; exit}')
    [[ -z $disk ]] || break
    sleep 0.1
  done
  echo "/dev/$disk"
}

iscsi_check() {
  modprobe iscsi_tcp
  pgrep iscsid >/dev/null || iscsid
  iscsi_node -o new
  iscsi_set node.conn[0].iscsi.HeaderDigest CRC32C
  iscsi_set node.conn[0].iscsi.DataDigest CRC32C
  # without its secret an initiator is refused
  ! iscsi_node --login 2>/dev/null
  iscsi_set node.session.auth.authmethod CHAP
  iscsi_set node.session.auth.username anna
  iscsi_set node.session.auth.password secret-of-anna
  iscsi_set node.session.auth.username_in nas
  iscsi_set node.session.auth.password_in 'not-the-secret'
  # a target that does not prove itself is refused
  ! iscsi_node --login 2>/dev/null
  iscsi_set node.session.auth.password_in 'secret-of-nas!'
  iscsi_node --login
  iscsiadm -m session -P 2 | grep -q 'HeaderDigest: CRC32C'
  iscsiadm -m session -P 2 | grep -q 'DataDigest: CRC32C'
  local disk
  disk=$(iscsi_disk)
  mkfs.ext4 -q "$disk"
  mkdir -p /mnt/iscsi
  mount "$disk" /mnt/iscsi
  fio --name=v --directory=/mnt/iscsi --size=48m --bs=4k-128k --rw=randrw --verify=crc32c --do_verify=1 \
    --verify_state_save=0 --ioengine=psync --end_fsync=1 >/tmp/fio || { cat /tmp/fio; return 1; }
  cp -a /usr/share/python3 /mnt/iscsi/copy
  # write until the daemon was started again, and the session has come back
  for _ in $(seq 120); do
    ! dmesg | grep -q 'detected conn error' || break
    dd if=/dev/urandom of=/mnt/iscsi/load bs=64k count=16 conv=fsync status=none
    sleep 0.5
  done
  dmesg | grep -q 'detected conn error'
  dd if=/dev/urandom of=/mnt/iscsi/load bs=64k count=16 conv=fsync status=none
  for _ in $(seq 60); do # until the new size is there
    echo 1 >"/sys/block/${disk#/dev/}/device/rescan"
    [[ $(blockdev --getsize64 "$disk") != 805306368 ]] || break
    sleep 1
  done
  [[ $(blockdev --getsize64 "$disk") == 805306368 ]]
  resize2fs "$disk" 2>/dev/null
  rm /mnt/iscsi/v.* /mnt/iscsi/load
  fstrim /mnt/iscsi
  umount /mnt/iscsi
  echo 3 >/proc/sys/vm/drop_caches
  mount "$disk" /mnt/iscsi
  diff -r /usr/share/python3 /mnt/iscsi/copy
  umount /mnt/iscsi
  e2fsck -fn "$disk"
  # a reservation, from another initiator port as well
  sg_persist --no-inquiry --out --register --param-sark=abc --param-aptpl "$disk" >/dev/null
  sg_persist --no-inquiry --out --reserve --param-rk=abc --prout-type=1 "$disk" >/dev/null
  sg_persist --no-inquiry --in --read-reservation "$disk" | grep -q 'Write Exclusive'
  sg_persist --no-inquiry --in --read-full-status "$disk" | grep -qi 'iqn'
  sg_persist --no-inquiry --out --release --param-rk=abc --prout-type=1 "$disk" >/dev/null
  sg_persist --no-inquiry --out --register --param-rk=abc "$disk" >/dev/null
  sg_vpd --page=di "$disk" | grep -q '0x3'
  iscsi_node --logout
  echo "CHAP both ways, CRC32C, ext4, fio --verify over a restart, a new size, fstrim, e2fsck, reservations"
}
