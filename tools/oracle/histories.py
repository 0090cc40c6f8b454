#!/usr/bin/env python3
"""A seeded history of datasets as a shell script: histories.py SEED STAGES

The script changes file systems below $pool/h by `zfs`, and files by path: a dataset `$pool/h/x` is at `$root/$pool/h/x`. It
calls `stage N` after each stage. Its steps: files written, overwritten and removed; file systems created, cloned, promoted,
renamed and destroyed; snapshots taken and destroyed; properties and holds. Even seeds have an encrypted tree, with the key
in $keyfile. A model of the datasets sees to it that every step succeeds.
"""
import random, sys

FILES = 6


class Dataset:
    def __init__(self, name, origin=None):
        self.name, self.origin, self.snapshots = name, origin, []   # origin: a snapshot object


class Snapshot:
    def __init__(self, owner, part):
        self.owner, self.part, self.held = owner, part, False

    @property
    def name(self):
        return f"{self.owner.name}@{self.part}"


class History:
    def __init__(self, seed):
        self.random, self.datasets, self.number, self.lines = random.Random(seed), [], 0, []
        self.run("zfs create $pool/h")
        self.datasets.append(Dataset("h"))
        # a plain stream of a tree cannot have an encrypted one
        if seed % 2:
            return
        key = "-o encryption=on -o keyformat=passphrase -o pbkdf2iters=100000 -o keylocation=file://$keyfile"
        self.run(f"zfs create {key} $pool/h/secret")
        self.datasets.append(Dataset("h/secret"))

    def run(self, line):
        self.lines.append(line)

    def next(self, letter):
        self.number += 1
        return f"{letter}{self.number}"

    def fixed(self, dataset):
        return dataset.name in ("h", "h/secret")

    def below(self, name):
        return [d for d in self.datasets if d.name.startswith(name + "/")]

    def clones(self, snapshot):
        return [d for d in self.datasets if d.origin is snapshot]

    def tree_of(self, name):
        return "h/secret" if name.startswith("h/secret") else "h"

    def pick(self, wanted=lambda d: True):
        found = [d for d in self.datasets if wanted(d)]
        return self.random.choice(found) if found else None

    def snapshots(self, wanted=lambda s: True):
        return [s for d in self.datasets for s in d.snapshots if wanted(s)]

    def write(self):
        dataset, pick = self.pick(), self.random.randrange
        path = f"$root/$pool/{dataset.name}/f{pick(FILES)}"
        self.random.choice([
            lambda: self.run(f"seq {pick(1000)} {pick(1000, 60000)} >{path}"),
            lambda: self.run(f"seq {pick(100)} {pick(100, 900)} | dd of={path} bs=512 seek={pick(2000)} "
                             "conv=notrunc status=none"),
            lambda: self.run(f"truncate -s {pick(1 << 24)} {path}"),
            lambda: self.run(f"rm -f {path}"),
            lambda: self.run(f"mkdir -p {path}.d; for i in $(seq {pick(1, 60)}); do echo $i >{path}.d/$i; done; "
                             f"chmod {pick(1, 8)}00 {path}.d/1"),
        ])()

    def create(self):
        name = f"{self.pick(lambda d: d.name.count('/') < 4).name}/{self.next('d')}"
        options = self.random.choice(["", "-o compression=lz4", "-o recordsize=1M", "-o recordsize=4K", "-o compression=off",
                                      "-o dnodesize=auto -o xattr=sa"])
        self.run(f"zfs create {options} $pool/{name}")
        self.datasets.append(Dataset(name))

    def snapshot(self):
        dataset = self.pick()
        dataset.snapshots.append(Snapshot(dataset, self.next("s")))
        self.run(f"zfs snapshot $pool/{dataset.snapshots[-1].name}")

    def clone(self):
        found = self.snapshots()
        if not found:
            return
        snapshot = self.random.choice(found)
        tree = self.tree_of(snapshot.owner.name)
        parent = self.pick(lambda d: self.tree_of(d.name) == tree and d.name.count("/") < 4)
        name = f"{parent.name}/{self.next('c')}"
        self.run(f"zfs clone $pool/{snapshot.name} $pool/{name}")
        self.datasets.append(Dataset(name, snapshot))

    def promote(self):
        dataset = self.pick(lambda d: d.origin and not self.fixed(d.origin.owner))
        if not dataset:
            return
        self.run(f"zfs promote $pool/{dataset.name}")
        origin, owner = dataset.origin, dataset.origin.owner
        at = owner.snapshots.index(origin) + 1
        moved, owner.snapshots = owner.snapshots[:at], owner.snapshots[at:]
        for snapshot in moved:
            snapshot.owner = dataset
        dataset.snapshots = moved + dataset.snapshots
        dataset.origin, owner.origin = owner.origin, origin

    def rename(self):
        dataset = self.pick(lambda d: not self.fixed(d))
        if not dataset:
            return
        tree = self.tree_of(dataset.name)
        inside = dataset.name + "/"
        parent = self.pick(lambda d: self.tree_of(d.name) == tree and not (d.name + "/").startswith(inside)
                           and d.name.count("/") < 2)
        name = f"{parent.name}/{self.next('r')}"
        self.run(f"zfs rename $pool/{dataset.name} $pool/{name}")
        for below in self.below(dataset.name):
            below.name = name + below.name[len(dataset.name):]
        dataset.name = name

    def destroy(self):
        def is_free(d):
            return not self.fixed(d) and not self.below(d.name) and not any(self.clones(s) or s.held for s in d.snapshots)
        dataset = self.pick(is_free)
        if dataset:
            self.run(f"zfs destroy -r $pool/{dataset.name}")
            self.datasets.remove(dataset)

    def destroy_snapshot(self):
        # a snapshot that is older than the base of the next increment stays on the receiver
        def is_free(s):
            is_new = s.part[1:].isdigit() and int(s.part[1:]) > self.begun
            return is_new and not self.clones(s) and not s.held
        found = self.snapshots(is_free)
        if found:
            snapshot = self.random.choice(found)
            self.run(f"zfs destroy $pool/{snapshot.name}")
            snapshot.owner.snapshots.remove(snapshot)

    def change(self):
        note = f"oracle:note=n{self.number}"
        value = self.random.choice(["compression=zstd", "compression=off", "recordsize=16K", note, "atime=off"])
        self.run(f"zfs set {value} $pool/{self.pick().name}")

    def hold(self):
        found = self.snapshots(lambda s: not s.held)
        if found:
            snapshot = self.random.choice(found)
            snapshot.held = True
            self.run(f"zfs hold keep $pool/{snapshot.name}")

    def stage(self, number):
        self.begun = self.number
        steps = [self.write] * 8 + [self.create] * 2 + [self.snapshot] * 3 + [self.clone] * 2
        steps += [self.promote, self.rename, self.destroy, self.destroy_snapshot, self.change, self.hold]
        for _ in range(24):
            self.random.choice(steps)()
        for dataset in self.datasets:
            dataset.snapshots.append(Snapshot(dataset, f"stage{number}"))
        self.run(f"zfs snapshot -r $pool/h@stage{number}")
        self.run(f"stage {number}")


def main():
    seed, stages = int(sys.argv[1]), int(sys.argv[2])
    history = History(seed)
    for number in range(1, stages + 1):
        history.stage(number)
    print("\n".join(history.lines))


main()
