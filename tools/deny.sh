#!/usr/bin/env bash
# Sources of dependencies, and licences once more (`cargo xtask licences` needs no tool); and advisories, as far as their database can be had: a newer
# one over the network, or one that was fetched before.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v cargo-deny >/dev/null; then
  echo "deny: cargo-deny is not installed, so sources and advisories were not checked (make deny installs it)"
  exit 0
fi
cargo deny --log-level error check bans licenses sources
if cargo deny --log-level error fetch db >/dev/null 2>&1; then
  cargo deny --log-level error check advisories
elif compgen -G "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs/*/crates" >/dev/null; then
  echo "deny: the database of advisories cannot be fetched; the one fetched before was asked"
  cargo deny --offline --log-level error check advisories
else
  echo "deny: the database of advisories cannot be fetched, so they were not checked"
fi
