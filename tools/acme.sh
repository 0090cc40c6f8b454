#!/usr/bin/env bash
# Certificates of pebble, Let's Encrypt's own test server (Go module github.com/letsencrypt/pebble): an order with a proof by
# port 80, its renewal, with pebble's own checks of nonces and signatures. Needs go, openssl and the network once.
#
#   tools/acme.sh
set -euo pipefail
cd "$(dirname "$0")/.."
version=v2.8.0
target=$PWD/target/pebble
for program in pebble pebble-challtestsrv; do
  [[ -x $target/$program ]] || GOBIN=$target go install "github.com/letsencrypt/pebble/v2/cmd/$program@$version"
done
work=$(mktemp -d)
processes=()
clean_up() {
  [[ ${#processes[@]} == 0 ]] || kill "${processes[@]}" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
port=$(free_port) manage=$(free_port) dns=$(free_port) http=$(free_port)

# the certificate of pebble's own server, and the root that our client trusts
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=pebble root" \
  -keyout "$work/root.key" -out "$work/root.pem" 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=localhost" \
  -keyout "$work/server.key" -out "$work/server.csr" 2>/dev/null
openssl x509 -req -in "$work/server.csr" -CA "$work/root.pem" -CAkey "$work/root.key" -CAcreateserial -days 2 \
  -extfile <(printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n') \
  -out "$work/server.pem" 2>/dev/null
cat >"$work/config.json" <<END
{ "pebble": { "listenAddress": "127.0.0.1:$port", "managementListenAddress": "127.0.0.1:$manage",
  "certificate": "$work/server.pem", "privateKey": "$work/server.key", "httpPort": $http, "tlsPort": $(free_port),
  "ocspResponderURL": "", "externalAccountBindingRequired": false } }
END
# a name server that leads every name to this machine
"$target/pebble-challtestsrv" -defaultIPv6 "" -defaultIPv4 127.0.0.1 -dns01 "127.0.0.1:$dns" -http01 "" -https01 "" \
  -tlsalpn01 "" -doh "" -management "127.0.0.1:$(free_port)" >"$work/dns.log" 2>&1 &
processes+=($!)
PEBBLE_VA_NOSLEEP=1 "$target/pebble" -config "$work/config.json" -dnsserver "127.0.0.1:$dns" >"$work/pebble.log" 2>&1 &
processes+=($!)
for _ in $(seq 100); do (: </dev/tcp/127.0.0.1/"$port") 2>/dev/null && break; sleep 0.1; done
export POOLHOUSE_PEBBLE="https://localhost:$port/dir" POOLHOUSE_PEBBLE_CA="$work/root.pem" POOLHOUSE_PEBBLE_PORT="$http"
cargo test --quiet --locked -p acme --test it -- --ignored pebble || { tail -20 "$work/pebble.log"; exit 1; }
