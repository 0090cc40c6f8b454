# The kernel's NBD client: a file system on a volume, with four connections.
nbd_port=10809

nbd_serve() { # PORT
  poolhouse zfs create -s -V 512M tank/nbd
  poolhouse config set nbd.listen "$1"
  poolhouse share add nbd tank/nbd -o name=disk
}

nbd_check() {
  modprobe nbd
  nbd-client 10.0.2.100 10809 /dev/nbd0 -N disk -C 4
  mkfs.ext4 -q /dev/nbd0
  mkdir -p /mnt/nbd
  mount /dev/nbd0 /mnt/nbd
  fio --name=v --directory=/mnt/nbd --size=24m --bs=4k-128k --rw=randrw --verify=crc32c --do_verify=1 \
    --verify_state_save=0 --ioengine=psync --end_fsync=1 >/tmp/fio || { cat /tmp/fio; return 1; }
  cp -a /usr/share/python3 /mnt/nbd/copy
  umount /mnt/nbd
  echo 3 >/proc/sys/vm/drop_caches
  mount /dev/nbd0 /mnt/nbd
  diff -r /usr/share/python3 /mnt/nbd/copy
  rm -r /mnt/nbd/copy
  fstrim /mnt/nbd
  umount /mnt/nbd
  e2fsck -fn /dev/nbd0
  nbd-client -d /dev/nbd0
  echo "ext4, fio --verify, fstrim, e2fsck over 4 connections"
}
