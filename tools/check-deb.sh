#!/usr/bin/env bash
# Looks into a Debian package as `make deb` makes it: unpacked below a scratch root, it has all of its files, its program
# runs, its man pages can be read, and its example of a configuration is right.
#
#   tools/check-deb.sh [PACKAGE, default the newest in target/debian]
set -euo pipefail
cd "$(dirname "$0")/.."
package=${1:-$(ls -t target/debian/*.deb | head -1)}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
dpkg-deb --info "$package" | grep -E '^ (Package|Version|Depends|Recommends):'
dpkg -x "$package" "$root"
for file in usr/bin/poolhouse usr/lib/systemd/system/poolhouse.service usr/share/man/man1/poolhouse.1 \
  usr/share/doc/poolhouse/examples/config.toml usr/share/doc/poolhouse/copyright; do
  # cargo-deb compresses man pages, and older versions have units in /lib
  found=$(find "$root/$file" "$root/$file.gz" "$root/${file#usr/}" 2>/dev/null | head -1)
  [[ -n $found ]] || { echo "the package lacks $file" >&2; exit 1; }
  echo "ok: /${found#"$root"/}"
done
program=$root/usr/bin/poolhouse
"$program" --version
pages=$(find "$root/usr/share/man/man1" -name 'poolhouse*' | wc -l)
((pages > 50)) || { echo "the package has $pages man pages only" >&2; exit 1; }
echo "ok: $pages man pages"
! command -v man >/dev/null || find "$root/usr/share/man/man1" -name 'poolhouse.1*' -exec man --warnings -l {} + >/dev/null
sed 's/^#\([^ ]\)/\1/' "$root/usr/share/doc/poolhouse/examples/config.toml" >"$root/config.toml"
"$program" config check "$root/config.toml"
unit=$(find "$root" -name poolhouse.service)
! command -v systemd-analyze >/dev/null || sed "s#/usr/bin/poolhouse#$program#" "$unit" >"$root/poolhouse.service"
! command -v systemd-analyze >/dev/null || systemd-analyze verify "$root/poolhouse.service" 2>&1 | (grep poolhouse | grep -v 'man ' && exit 1 || true)
echo "ok: the unit and the configuration"
