#!/bin/bash
cd $ROOT || exit 1
for c in "$@"; do
  date; echo "== $c"
  python3 $TOOL/lsp.py $ROOT $TOOL/names/$c.tsv 2>&1 | tail -3
  cat $TOOL/names/$c.tsv.failed
  python3 $TOOL/fixfmt.py $ROOT 2>&1 | tee /tmp/fix.$c
  if grep -q "fixed 0 other 0" /tmp/fix.$c; then cargo fmt; git add -A; git commit -qm "$c: rename items to the words of the field"; echo "committed $c"; else echo "STOP at $c"; exit 1; fi
done
echo ALL DONE
