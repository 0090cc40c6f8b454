#!/bin/sh
# RAID-Z parity: our kernels against OpenZFS's own, side by side.
#
#   bench/parity.sh [rounds, default 3]
#
# A  `raidz_test -B` (Debian: zfs-test): OpenZFS's benchmark of all its implementations in
#    userspace. Each line: implementation, operation, data columns, block size, MiB/s of ONE data
#    column, MiB/s of all columns, iterations. A few minutes a run; it has no way to ask for less.
# B  `cargo run --release -p simd --example bench`, our best backend.
#
# Like with like: a block of 128 KiB, 8 data columns of 16 KiB, buffers warm, one thread, nothing
# else running. The figure is GB/s of DATA: the block's 131072 bytes over the time of one
# operation, for A computed as column MiB/s x 8 x 1.048576 / 1000. gen_p, gen_pq, gen_pqr compute
# 1, 2, 3 parity rows; rec_* rebuild the first 1, 2, 3 data columns from the rows named, the
# others and the other rows being lost or unused.
# Both figures are averages under way: A's over one run of each line, B's the median of 41 slices of
# one; so anything else that runs on the machine spoils either.
# A's figure is that of its best implementation, chosen per operation AND per round, so in its
# favour. A and B alternate; medians over the rounds and their ratio are printed.
# "target" is the ratio we promise; the script fails if one is missed.
set -eu
rounds=${1:-3}
command -v raidz_test >/dev/null || { echo "raidz_test is missing (Debian: zfs-test)" >&2; exit 2; }
cd "$(dirname "$0")/.."
cargo build --release -q -p simd --example bench
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
round=1
while [ "$round" -le "$rounds" ]; do
    echo "round $round of $rounds" >&2
    cargo run --release -q -p simd --example bench >"$scratch/ours"
    backend=$(sed -n 's/^# best backend here: \([^;]*\);.*/\1/p' "$scratch/ours")
    awk -v backend="$backend" '$1 == backend { print "B", $2, $3, $1 }' "$scratch/ours" \
        >>"$scratch/all"
    raidz_test -B >"$scratch/theirs" 2>&1
    awk -F'[ ,]+' '{ sub(/^ +/, "") }
        $3 == 8 && $4 == 131072 {
            rate = $5 * 8 * 1.048576 / 1000
            if (rate > best[$2]) { best[$2] = rate; name[$2] = $1 }
        }
        END { for (op in best) print "A", op, best[op], name[op] }' "$scratch/theirs" \
        >>"$scratch/all"
    round=$((round + 1))
done
sort -k1,1 -k2,2 -k3,3g "$scratch/all" | awk '
    function median(who, op,   n) {
        n = count[who, op]
        return (value[who, op, int((n + 1) / 2)] + value[who, op, int(n / 2) + 1]) / 2
    }
    { value[$1, $2, ++count[$1, $2]] = $3; name[$1, $2] = $4 }
    END {
        split("gen_p gen_pq gen_pqr rec_p rec_q rec_r rec_pq rec_pr rec_qr rec_pqr", ops)
        split("3 4 4 5 5 5 5 5 5 5", targets)
        printf "%-8s %16s %16s %7s %7s\n", "GB/s", "OpenZFS", "ours", "ratio", "target"
        for (i = 1; i <= 10; i++) {
            op = ops[i]
            if (!count["A", op] || !count["B", op]) {
                print op, "was not measured"; bad = 1; continue
            }
            a = median("A", op); b = median("B", op)
            miss = b / a < targets[i]
            if (miss) bad = 1
            printf "%-8s %16s %16s %7.2f %7s%s\n", op, sprintf("%s %.1f", name["A", op], a),
                sprintf("%s %.1f", name["B", op], b), b / a, ">= " targets[i], miss ? " MISSED" : ""
        }
        exit bad
    }'
