# The kernel's CIFS client with SMB 2.1, 3.0 and 3.1.1.
smb_port=445

smb_serve() { # PORT
  poolhouse zfs create tank/smb
  poolhouse config set smb.listen "$1"
  echo "secret" | poolhouse user add anna --system-user "$(id -un)"
  poolhouse share add smb tank/smb -o name=files
}

smb_check() {
  mkdir -p /mnt/smb
  head -c 4M /dev/urandom >/tmp/data
  for version in 2.1 3.0 3.1.1; do
    mount -t cifs -o "vers=$version,username=anna,password=secret" //10.0.2.100/files /mnt/smb
    mkdir "/mnt/smb/$version"
    cd "/mnt/smb/$version"
    dd if=/tmp/data of=data bs=1M conv=fsync status=none
    for number in $(seq 100); do echo "$number" >"file $number ü"; done
    mv "file 1 ü" moved
    rm "file 2 ü"
    cd /
    umount /mnt/smb
    mount -t cifs -o "vers=$version,username=anna,password=secret" //10.0.2.100/files /mnt/smb
    cmp /tmp/data "/mnt/smb/$version/data"
    [[ $(ls "/mnt/smb/$version" | wc -l) == 100 && $(<"/mnt/smb/$version/moved") == 1 ]]
    rm -r "/mnt/smb/$version"
    umount /mnt/smb
  done
  echo "SMB 2.1, 3.0 and 3.1.1: files are written, renamed, removed, and read back equal"
}
