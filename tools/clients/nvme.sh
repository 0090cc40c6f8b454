# The kernel's NVMe/TCP host: discovery, both digests, a file system, a new size, a restart of the daemon under load,
# reservations.
nvme_port=4420

nvme_serve() { # PORT
  poolhouse zfs create -s -V 512M tank/nvme
  poolhouse config set nvme.listen "$1"
  poolhouse share add nvme tank/nvme -o nqn=nqn.2026-11.org.example:clients
}

nvme_connect() { # OPTION...
  nvme connect -t tcp -a 10.0.2.100 -s 4420 -n nqn.2026-11.org.example:clients --reconnect-delay=2 "$@" >/dev/null
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

nvme_check() {
  modprobe nvme_tcp
  nvme discover -t tcp -a 10.0.2.100 -s 4420 | grep -q 'subnqn:  nqn.2026-11.org.example:clients'
  nvme_connect --hdr-digest --data-digest --nr-io-queues=2
  local disk
  disk=$(nvme_disk)
  nvme list | grep -q Poolhouse
  mkfs.ext4 -q "$disk"
  mkdir -p /mnt/nvme
  mount "$disk" /mnt/nvme
  fio --name=v --directory=/mnt/nvme --size=48m --bs=4k-128k --rw=randrw --verify=crc32c --do_verify=1 \
    --verify_state_save=0 --ioengine=psync --end_fsync=1 >/tmp/fio || { cat /tmp/fio; return 1; }
  umount /mnt/nvme
  e2fsck -fn "$disk"
  nvme disconnect -n nqn.2026-11.org.example:clients >/dev/null
  echo "discovery, CRC32C, ext4, fio --verify, e2fsck"
}
