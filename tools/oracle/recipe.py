#!/usr/bin/env python3
"""Writes random recipes for make-fixtures:  recipe.py SEED COUNT >recipes.sh

Each recipe is a pool named rSEED-I: a layout, an ashift, datasets with properties, files that come
and go, snapshots and clones, now and then a change of layout, a crash, or images that are missing
or damaged, as far as the redundancy allows. The same seed gives the same recipes.
"""
import os
import random
import sys

COMPRESSION = "off on lzjb gzip-1 gzip-6 gzip-9 zle lz4 zstd zstd-1 zstd-7 zstd-19 zstd-fast-1 zstd-fast-10".split()
CHECKSUM = "on fletcher2 fletcher4 sha256 sha512 skein edonr blake3".split()
RECORDSIZE = "512 1K 4K 8K 16K 32K 64K 128K 256K 1M 4M".split()
DNODESIZE = "legacy auto 1k 2k 4k 8k 16k".split()
CIPHERS = [f"aes-{bits}-{mode}" for bits in (128, 192, 256) for mode in ("ccm", "gcm")]
DEDUP = "sha256 sha256,verify sha512 skein blake3 edonr,verify".split()


class Recipe:
    def __init__(self, seed, number):
        self.rng = random.Random(f"{seed}/{number}")
        self.name, self.seed = f"r{seed}_{number}", f"{seed}.{number}"
        self.lines, self.about, self.count = [], [], 0
        self.next_dataset, self.churns, self.roots = 0, 0, set()

    def chance(self, percent):
        return self.rng.randrange(100) < percent

    def one(self, *choices):
        return self.rng.choice(choices)

    def say(self, line):
        self.lines.append(line)

    def disks(self, count, size):
        self.say(f"disks {count} {size}")
        first, self.count = self.count, self.count + count
        return list(range(first, self.count))

    @staticmethod
    def paths(disks):
        return " ".join('"${D[%d]}"' % disk for disk in disks)

    # ---- layout ------------------------------------------------------------------------------

    def layout(self, crashes):
        """Disks and words of `zpool create`; sets of disks of which some may be lost."""
        kind = self.one("stripe", "mirror", "mirror", "raidz1", "raidz2", "raidz3", "raidz1", "raidz2", "draid", "draid")
        size = "512M" if crashes else self.one("96M", "128M", "200M")
        self.kind, self.tops, self.size = kind, [], size
        if kind == "stripe":
            self.tops = [(disk,) for disk in self.disks(self.one(1, 2, 3), size)]
            words = " ".join(self.paths(top) for top in self.tops)
            self.spare_parity = 0
        elif kind == "mirror":
            width = self.one(2, 2, 3)
            self.tops = [tuple(self.disks(width, size)) for _ in range(self.one(1, 1, 2))]
            words = " ".join("mirror " + self.paths(top) for top in self.tops)
            self.spare_parity = width - 1
        elif kind.startswith("raidz"):
            parity = int(kind[-1])
            width = self.rng.randint(parity + 2, parity + 5)
            self.tops = [tuple(self.disks(width, size)) for _ in range(self.one(1, 1, 1, 2))]
            words = " ".join(kind + " " + self.paths(top) for top in self.tops)
            self.spare_parity = parity
        else:
            parity, data, spares = self.one(1, 1, 2, 2, 3), self.rng.randint(1, 5), self.one(0, 1, 2)
            children = self.rng.randint(parity + data + spares, parity + data + spares + 4)
            self.tops = [tuple(self.disks(children, size))]
            kind = f"draid{parity}:{data}d:{children}c:{spares}s"
            words = f"{kind} " + self.paths(self.tops[0])
            self.spare_parity, self.spares = parity, spares
        self.about.append(kind + (f" x{len(self.tops)}" if len(self.tops) > 1 else "") +
                          f" of {len(self.tops[0])}")
        return words

    def more_vdevs(self):
        words = ""
        self.special = False
        if self.chance(20):
            words += " log " + self.paths(self.disks(1, self.size))
            self.about.append("log")
        if self.chance(15):
            words += " cache " + self.paths(self.disks(1, "64M"))
            self.about.append("cache")
        if self.chance(20):
            words += " special mirror " + self.paths(self.disks(2, "96M"))
            self.special = True
            self.about.append("special")
        return words

    # ---- datasets ----------------------------------------------------------------------------

    def properties(self):
        options = []

        def some(percent, name, choices):
            if self.chance(percent):
                options.append(f"-o {name}={self.rng.choice(choices)}")

        some(80, "compression", COMPRESSION)
        some(50, "checksum", CHECKSUM)
        some(60, "recordsize", RECORDSIZE)
        some(25, "copies", (1, 2, 3))
        some(60, "xattr", ("sa", "on"))
        some(50, "acltype", ("posix", "off"))
        some(50, "dnodesize", DNODESIZE)
        some(15, "normalization", ("formC", "formD", "formKC", "formKD"))
        some(15, "casesensitivity", ("insensitive", "mixed"))
        some(15, "dedup", DEDUP)
        some(30, "atime", ("on", "off"))
        some(20, "redundant_metadata", ("all", "most", "some", "none"))
        some(20, "logbias", ("latency", "throughput"))
        some(10, "snapdir", ("visible",))
        if self.special:
            some(50, "special_small_blocks", ("4K", "16K", "0"))
        return " ".join(options)

    def encryption(self, name):
        self.roots.add(name)
        form = self.one("passphrase", "raw", "hex")
        secret = f"phrase {self.seed} {name}" if form == "passphrase" else self.rng.randbytes(32).hex()
        self.say(f'key {name} {form} "{secret}"' if form == "passphrase" else f"key {name} {form} {secret}")
        return f"$(key_options {name} {self.rng.choice(CIPHERS)} {form})"

    def dataset(self, below):
        name = f"{below}/d{self.next_dataset}"
        self.next_dataset += 1
        key = self.encryption(name) if self.chance(20) else ""
        self.say(f"zfs create {key} {self.properties()} {name}")
        self.churn(name)
        return name

    def volume(self, below):
        name = f"{below}/v{self.next_dataset}"
        self.next_dataset += 1
        key = self.encryption(name) if self.chance(25) else ""
        block = self.one("4K", "8K", "16K", "32K", "128K")
        options = f"-o compression={self.rng.choice(COMPRESSION)}" + self.one("", " -s", " -o copies=2")
        self.say(f"zfs create -V {self.one(1, 2, 5)}M -b {block} {options} {key} {name}")
        self.scribble(name)
        return name

    def scribble(self, volume):
        self.churns += 1
        self.say(f"scribble \"$(zvol {volume})\" {self.seed}.{self.churns}")

    def churn(self, name, steps=None):
        self.churns += 1
        self.say(f"churn /{name} {self.seed}.{self.churns} {steps or self.one(15, 30, 60)}")

    # ---- what happens ------------------------------------------------------------------------

    def history(self, filesystems, volumes):
        snapshots = []
        for step in range(self.rng.randint(0, 5)):
            name = self.rng.choice(filesystems)
            what = self.rng.randrange(8)
            if what <= 2:
                snapshot = f"{self.rng.choice(filesystems + volumes)}@s{step}"
                self.say(f"zfs snapshot {snapshot}")
                snapshots.append(snapshot)
                self.churn(name)
            elif what == 3 and snapshots:
                snapshot = snapshots.pop()
                clone = f"{snapshot.split('@')[0]}/c{step}"
                if snapshot.split("@")[0] in volumes:
                    continue
                self.say(f"zfs clone {snapshot} {clone}")
                self.churn(clone)
                filesystems.append(clone)
                if self.chance(40):
                    self.say(f"zfs promote {clone}")
                    snapshots = [s for s in snapshots if not s.startswith(snapshot.split("@")[0] + "@")]
            elif what == 4 and snapshots:
                self.say(f"zfs bookmark {snapshots[-1]} '#mark{step}'")
                if self.chance(50):
                    self.say(f"zfs destroy {snapshots.pop()}")
            elif what == 5 and snapshots:
                self.say(f"zfs hold kept {snapshots.pop()}")
            elif what == 6:
                self.say(f"zfs set {self.one('quota=60M', 'refquota=50M', 'reservation=2M', 'userquota@1001=20M', 'groupquota@100=30M', 'test:note=anything', 'compression=zstd', 'recordsize=32K', 'checksum=sha256')} {name}")
                self.churn(name, 30)
            else:
                self.say(f"fill {self.one('holes', 'xattrs', 'types', 'owners', 'data', 'sizes')} /{name} {self.seed}.{step} 24")
        if self.chance(15) and len(filesystems) > 1:
            leaf = filesystems[-1]
            if not any(other.startswith(leaf + "/") for other in filesystems + volumes):
                self.say(f"zfs rename {leaf} tank/renamed")
                if leaf in self.roots:
                    self.say(f"rename_key {leaf} tank/renamed")

    def change_of_layout(self):
        """True if the pool may be exported afterwards."""
        top = self.rng.choice(self.tops)
        if self.kind in ("stripe", "mirror") and len(self.tops) > 1 and not self.special and self.chance(50):
            self.about.append("removal")
            what = self.paths(self.tops[-1]) if self.kind == "stripe" else f"mirror-{len(self.tops) - 1}"
            self.say(f"zpool remove tank {what}")
            self.say("zpool wait -t remove tank")
            self.lost = [self.tops.pop()]
        elif self.kind.startswith("raidz") and self.chance(35):
            self.about.append("expansion")
            new = self.disks(1, self.size)
            self.say(f"zpool attach -w tank {self.kind}-0 {self.paths(new)}")
            self.say("zpool wait -t scrub tank")
            self.tops[0] += (new[0],)
        elif self.kind != "stripe" and self.kind != "draid" and self.chance(30):
            new = self.disks(1, self.size)
            at = self.rng.randrange(len(top))
            if self.chance(50):
                self.about.append("replacement")
                self.say(f"zpool replace -w tank {self.paths([top[at]])} {self.paths(new)}")
                index = self.tops.index(top)
                self.tops[index] = top[:at] + (new[0],) + top[at + 1:]
            else:
                self.about.append("replacement midway")
                self.say("tune zfs_scan_suspend_progress 1")
                self.say(f"zpool replace tank {self.paths([top[at]])} {self.paths(new)}")
                self.tops, self.spare_parity = [], 0
                return False
        elif self.kind == "draid" and self.spares and self.chance(40):
            self.about.append("distributed spare")
            victim = self.rng.choice(top)
            self.say(f"zpool offline -f tank {self.paths([victim])}")
            self.say(f"zpool replace -s tank {self.paths([victim])} {self.draid_spare()}")
            self.say("zpool wait -t resilver,replace tank")
            self.must_lose = victim
        elif self.chance(10):
            self.about.append("checkpoint")
            self.say("zpool checkpoint tank")
        return True

    def draid_spare(self):
        return f"draid{self.spare_parity}-0-0"

    def trouble(self):
        hurt = [self.must_lose] if self.must_lose is not None else []
        left = self.spare_parity - (1 if hurt else 0)
        lost, damaged = list(hurt), []
        if self.tops and left > 0 and self.chance(60):
            for top in self.tops:
                pick = self.rng.sample([d for d in top if d not in hurt], self.rng.randint(1, left))
                for disk in pick:
                    (lost if self.chance(60) else damaged).append(disk)
        if lost:
            self.say("missing " + " ".join(map(str, lost)))
        if damaged:
            self.say("damage " + " ".join(map(str, damaged)))
        if lost or damaged:
            self.about.append(f"{len(lost)} missing and {len(damaged)} damaged")

    # ---- the whole ---------------------------------------------------------------------------

    def write(self):
        crashes, self.must_lose, self.spares = self.chance(20), None, 0
        words = self.layout(crashes)
        words += self.more_vdevs()
        ashift = self.one(9, 9, 12, 12, 13)
        self.about.append(f"ashift {ashift}")
        if crashes:
            self.say("tune zfs_txg_timeout 3600")
        version = "-d " if self.chance(5) and self.kind != "draid" and not self.special else ""
        if self.chance(10):
            version += "-o feature@log_spacemap=disabled "
        if self.chance(10):
            version += "-o feature@fast_dedup=disabled "
        if version.startswith("-d"):
            self.about.append("no features")
            version = "-d "
        self.say(f"zpool create -f {version}-o ashift={ashift} tank {words}")
        if version == "-d ":
            self.churn("tank", 200)
            self.say("fill types /tank")
            return self.end("finish tank")
        filesystems, volumes = ["tank"], []
        self.churn("tank", 30)
        for _ in range(self.rng.randint(1, 3)):
            filesystems.append(self.dataset(self.rng.choice(filesystems)))
        if self.chance(50):
            volumes.append(self.volume("tank"))
        if self.chance(15):
            self.say(f"fill many /{filesystems[-1]} {self.seed} {self.one(300, 1500)}")
        self.history(filesystems, volumes)
        if crashes:
            target = self.rng.choice(filesystems[:2])
            self.say(f"fill before_the_cut /{target}")
            self.say("zpool sync tank")
            self.say(f"fill intent /{target} {self.seed}")
            if self.chance(50):
                self.churns += 1
                self.say(f"churn /{target} {self.seed}.{self.churns} 40 synced")
            self.about.append("crashed")
            return self.end("finish_crashed tank")
        exportable = self.change_of_layout()
        if self.chance(50):
            self.churn(self.rng.choice(filesystems[:2]))
        self.end("finish tank" if exportable and self.chance(75) else "finish_in_use tank")

    def end(self, word):
        self.say(word)
        self.trouble()


def main():
    seed, count = sys.argv[1], int(sys.argv[2])
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "words.sh")) as words:
        print(words.read())
    for number in range(count):
        recipe = Recipe(seed, number)
        recipe.write()
        trace = """trap 'echo "$(date +%T) $called: $BASH_COMMAND" >>/share/progress' DEBUG"""
        body = [trace, f'about "{", ".join(recipe.about)}"', *recipe.lines]
        print(f"fixture_{recipe.name}() {{\n" + "".join(f"  {line}\n" for line in body) + "}\n")


main()
