# make run    the tour: a damaged pool is read, and a NAS on six files is made, broken and left running
# make test   everything that is checked
.PHONY: help setup build run test announce-test test-oracle test-long test-posix test-clients test-builds test-web lint deny deb bench fuzz clean

SECONDS_PER_TARGET ?= 60
# what is in Cargo.lock; fewer are compiled on Linux
PACKAGES = $(shell grep -c '^name = ' Cargo.lock)

help:
	@sed -n 's/^# make/make/p' Makefile
	@echo "make setup | build | test-oracle | test-long | test-posix | test-clients | test-builds | test-web | lint | deny | deb | bench | fuzz | clean"

setup:
	@tools/setup.sh

build: setup
	@echo "make build: compiling $(PACKAGES) crates with optimization; it takes 5 to 15 minutes on two cores the first time"
	@cargo build --release --locked -p poolhouse

# A profile without link-time optimization, which is there sooner.
run: setup
	@echo "make run: compiling $(PACKAGES) crates, which takes about 4 minutes on two cores the first time; then comes the tour"
	@cargo build --profile quick --locked -p poolhouse
	@tools/tour.sh

# The checks that no test program can make come first, as they are quickest to fail.
lint:
	cargo xtask licences
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

test: announce-test setup lint
	cargo test --locked --workspace --no-fail-fast
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet
	@tools/deny.sh

announce-test:
	@echo "make test: lints, tests, documentation and licences take about 25 minutes on two cores; the first time, compiling"
	@echo "takes about as long again. make run shows in 5 minutes whether it works here."

# ROUNDS (10) random pools that we make from SEED (the time), from number FIRST (0) on: real OpenZFS
# checks and changes each in a VM, and we import it again; and hundreds of commands, which run on
# both (as root); HISTORIES (6) histories of datasets, which are replicated both ways; and streams that are cut behind every
# STEP-th (10) record, and resumed on the other system. The VM is built once per machine
# (ten minutes, as root); POOLHOUSE_ORACLE names another program that does what fixtures/recipes/zfs-vm does.
test-oracle: export HISTORIES ?= 6
test-oracle: export STEP ?= 10
test-oracle: setup
	@if [ -z "$$POOLHOUSE_ORACLE" ] && [ "$$(id -u)" = 0 ]; then fixtures/recipes/zfs-vm build; fi
	cargo build --quiet --locked -p poolhouse
	cargo test --quiet --locked -p oracle --test it -- --ignored --nocapture \
	 openzfs_imports_and_modifies commands_behave_as_in restored_backups histories_are_replicated cut_streams_are

# Tests that need a long time as well: 20,000 mutants of pools, properties with PROPTEST_CASES (1,024)
# cases where 256 are usual, POOLHOUSE_CUTS (200,000) power cuts from POOLHOUSE_SEED (0) on, SCHEDULES (50,000)
# schedules of drives that fail, ROUNDS random
# pools of SEED (the time) that real OpenZFS makes in a VM (10) and that we make for it (200).
# POOLHOUSE_FIXTURES=FOLDER adds the packed fixtures there.
test-long: setup
	@command -v qemu-system-x86_64 >/dev/null || \
	echo "make test-long: no rounds against real OpenZFS: qemu-system-x86_64 is not installed"
	TRIPS=$${ROUNDS:-200} PROPTEST_CASES=$${PROPTEST_CASES:-1024} \
	cargo test --locked --release --workspace --no-fail-fast -- --include-ignored

# pjdfstest, fsx, fio --verify, file handles, git, rsync and cargo on a mounted pool; root and zdb.
test-posix: setup
	tools/posix.sh

# A Debian package in target/debian, with the man pages and the unit of systemd.
deb: build
	@command -v cargo-deb >/dev/null || cargo install --quiet --locked cargo-deb
	target/release/poolhouse man target/man
	cargo deb --no-build -p poolhouse
	tools/check-deb.sh

# The kernel's clients of NBD, SMB and other protocols, in the virtual machine of POOLHOUSE_CLIENT_VM; as root. The suites
# of pynfs, libiscsi and Samba.
test-clients: setup
	tools/clients.sh
	tools/pynfs.sh
	tools/iscsi-suite.sh
	tools/smbtorture.sh

# The builds of examples/builds, whole, against their chapters in docs/manual/builds; BUILDS names some of them. With
# POOLHOUSE_CLIENT_VM, which takes root, the kernel's iSCSI initiator uses a volume as well.
test-builds: setup
	BUILDS="$(BUILDS)" cargo test --quiet --locked -p poolhouse --test it -- --ignored --nocapture all_builds_run_whole
	@if [ -n "$$POOLHOUSE_CLIENT_VM" ]; then tools/clients.sh iscsi; \
	else echo "make test-builds: POOLHOUSE_CLIENT_VM names no virtual machine: the kernel's initiator was left out"; fi

# The dashboard of a demonstration NAS in a headless browser: light, dark, phone; pictures in target/web.
test-web: setup
	cargo build --quiet --locked -p poolhouse
	@tools/web.py

deny:
	@command -v cargo-deny >/dev/null || cargo install --quiet --locked cargo-deny
	@tools/deny.sh

bench: setup
	cargo run --quiet --locked --release -p simd --example bench
	@if [ -x tools/bench.sh ]; then tools/bench.sh; fi
	@tools/bench-write.sh
	@bench/commands.sh
	@bench/many.sh
	@bench/dashboard.sh
	@bench/backup.sh
	@bench/nfs.sh
	@bench/targets.sh
	@bench/scrub.sh

# Every fuzz target for a while (cargo-fuzz; RUSTC_BOOTSTRAP lets the stable toolchain do it).
fuzz:
	@command -v cargo-fuzz >/dev/null || cargo install --quiet --locked cargo-fuzz
	@cd fuzz && for target in $$(RUSTC_BOOTSTRAP=1 cargo fuzz list); do \
	  echo "fuzz: $$target"; \
	  RUSTC_BOOTSTRAP=1 cargo fuzz run "$$target" -- -max_total_time=$(SECONDS_PER_TARGET) || exit 1; done

clean:
	cargo clean
