#!/usr/bin/env bash
# The experiments that people published when drives with sectors of 4 KiB were new, with one command:
# raidz against raidz2 of 3, 4 and 5 drives, ashift 9 against 12, whole drives against partitions.
#
#   examples/array-experiments.sh [FOLDER, default target/array-experiments]
#   POOLHOUSE=PROGRAM examples/array-experiments.sh     with a program that is built already
#   DRIVES="/dev/sdb /dev/sdc /dev/sdd /dev/sde /dev/sdf" examples/array-experiments.sh
#
# Without DRIVES, five sparse files of DRIVE_SIZE (8G) in the folder stand for drives; they are removed
# at the end. Measurements: dd-like writes and reads of 1 MiB, rewriting, random 4K, small files
# (bonnie++'s kinds), records of 4K and a scrub, RUNS (3) times for SECONDS_PER_RUN (3) each, with files
# of SIZE (512M; larger than memory for figures that mean something). ZEROS=1 writes zeros, as the posts
# often did. Results stay in the folder: one JSON file for each layout, a page with pictures, and
# tables.txt with the tables that are printed.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-target/array-experiments}
program=${POOLHOUSE:-${CARGO_TARGET_DIR:-target}/release/poolhouse}
[[ -n ${POOLHOUSE:-} ]] || cargo build --quiet --locked --release -p poolhouse
mkdir -p "$folder"
if [[ -n ${DRIVES:-} ]]; then
  read -ra drives <<<"$DRIVES"
else
  drives=()
  for number in 1 2 3 4 5; do
    drives+=("$folder/drive-$number")
    truncate -s "${DRIVE_SIZE:-8G}" "$folder/drive-$number"
  done
  trap 'rm -f "$folder"/drive-[1-5]' EXIT
fi
work=(--runs "${RUNS:-3}" --seconds "${SECONDS_PER_RUN:-3}" --size "${SIZE:-512M}" --files 4000
  --only write-1m-q1,read-1m-q1,rewrite-1m-q1,random-read-4k-q1,random-write-4k-q1,file-create,file-stat,file-read,file-delete)
[[ -z ${ZEROS:-} ]] || work+=(--zeros)

"$program" bench array "${drives[@]}" --layout raidz,raidz2 --disks 3,4,5 --ashift 9,12 \
  "${work[@]}" -o "$folder/layouts" >"$folder/layouts.txt"
# 63 sectors: where partitions began for thirty years, which no sector of 4 KiB does
"$program" bench array "${drives[@]}" --layout raidz --disks 5 --ashift 12 --parts whole,1M,32256 \
  "${work[@]}" -o "$folder/parts" >"$folder/parts.txt"
"$program" bench report "$folder"/layouts/*.json -o "$folder/layouts.html"
"$program" bench report "$folder"/parts/*.json -o "$folder/parts.html"

python3 - "$folder" <<'EOF' | tee "$folder/tables.txt"
import glob, json, sys
def read(part):
    return [json.load(open(name)) for name in sorted(glob.glob(f"{sys.argv[1]}/{part}/*.json"))]
def mean(record, name):
    return next((m["summary"]["mean"] for m in record["measures"] if m["id"] == name), None)
def shown(record, name):
    value = mean(record, name)
    return "-" if value is None else f"{value / 1e6:.0f}" if "1m" in name or name == "scrub" else f"{value:.0f}"
layouts, parts = read("layouts"), read("parts")
by = {(r["facts"]["layout"], r["facts"]["ashift"]): r for r in layouts}
names = sorted({r["facts"]["layout"] for r in layouts})
print("MB/s, one stream of 1 MiB\n")
print(f"{'':12}{'write':>10}{'write':>10}{'':>10}{'read':>10}{'read':>10}")
print(f"{'':12}{'ashift=9':>10}{'ashift=12':>10}{'change':>10}{'ashift=9':>10}{'ashift=12':>10}{'change':>10}")
for name in names:
    line = f"{name:12}"
    for work in "write-1m-q1", "read-1m-q1":
        nine, twelve = by[name, 9], by[name, 12]
        change = mean(twelve, work) / mean(nine, work) - 1
        line += f"{shown(nine, work):>10}{shown(twelve, work):>10}{change:>+10.0%}"
    print(line)
kinds = [("write", "write-1m-q1"), ("rewrite", "rewrite-1m-q1"), ("read", "read-1m-q1"),
         ("scrub", "scrub"), ("seeks", "random-read-4k-q1"), ("create", "file-create"),
         ("stat", "file-stat"), ("delete", "file-delete")]
for title, records in ("all layouts", layouts), ("whole drives and partitions", parts):
    print(f"\n{title}: MB/s; seeks and files a second\n")
    print(f"{'':34}" + "".join(f"{kind:>9}" for kind, _ in kinds))
    for record in records:
        print(f"{record['label']:34}" + "".join(f"{shown(record, name):>9}" for _, name in kinds))
print("\nspace that records of 4K take, as a multiple of their size\n")
for record in layouts:
    small = record["facts"]["small_records"]
    print(f"{record['label']:34}{small['allocated_bytes'] / small['data_bytes']:9.2f}")
print(f"\npages: {sys.argv[1]}/layouts.html, {sys.argv[1]}/parts.html")
EOF
