# pjdfstest over NFSv3 and NFSv4.2 by the kernel's client: all tests that pass over the mount (tools/posix.sh) must pass.
# It takes long: only `tools/clients.sh pjdfstest` runs it. The program is built here and runs inside.
pjdfstest_port=2049

pjdfstest_serve() { # PORT
  local target=${CARGO_TARGET_DIR:-target}
  [[ -x $target/posix/bin/pjdfstest ]] || cargo install --quiet pjdfstest --root "$target/posix"
  # shellcheck disable=SC2154 # of clients.sh
  mkdir "$work/pjdfstest"
  cp "$target/posix/bin/pjdfstest" tools/pjdfstest.toml "$work/pjdfstest"
  forwards+=(--share "$work/pjdfstest")
  : "${SECONDS_LIMIT:=7200}"
  poolhouse zfs create -o acltype=posix tank/pjd
  poolhouse config set nfs.listen "$1"
  poolhouse share add nfs tank/pjd -o path=/pjd -o squash=none
}

pjdfstest_check() {
  local version options summaries=() failed=0
  cp /share/pjdfstest /tmp/pjdfstest
  mkdir /mnt/pjd
  for version in 3 4.2; do
    options=vers=$version,hard,port=2049
    [[ $version != 3 ]] || options+=,nolock,proto=tcp,mountproto=tcp,mountport=2049
    mount -t nfs -o "$options" 10.0.2.100:/pjd /mnt/pjd
    mkdir "/mnt/pjd/v$version"
    if ! /tmp/pjdfstest -c /share/pjdfstest.toml -p "/mnt/pjd/v$version" >/tmp/pjd; then
      grep FAILED /tmp/pjd | sed "s/^/NFSv$version: /"
      failed=1
    fi
    summaries+=("NFSv$version: $(grep Summary /tmp/pjd)")
    umount /mnt/pjd
  done
  (IFS=';'; echo "${summaries[*]}")
  return "$failed"
}
