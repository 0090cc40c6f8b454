#!/usr/bin/env bash
# 71 TiB in 24 bays (2014): 24 drives of 4 TB as raidz2 of 18 and of 6, or as one raidz3. The capacity of each, the
# spread of data over unequal vdevs, the hot bay, and a cache device added and removed.
#
#   examples/builds/24-bays/build.sh [PROGRAM]
source "$(dirname "$0")/../lib.sh"

section plan
say "The rules of 2014: ZFS kept 1/64 back. 18 + 6 in raidz2 against 24 in raidz3, with sectors of 4 KiB and 512 bytes."
layouts="--drives 24x4TB --layout 'raidz2 18 raidz2 6' --layout 'raidz3 24'"
run "poolhouse plan --slop 2014 --ashift 12 $layouts | sed -n 1,3p"
run "poolhouse plan --slop 2014 --ashift 9 $layouts | sed -n 1,3p"
tib() { # ASHIFT LAYOUT: usable space, in tenths of a TiB
  poolhouse plan --slop 2014 --ashift "$1" --drives 24x4TB --layout "$2" |
    sed -n 's/^zfs list shows *\([0-9]*\)\.\([0-9]\)T .*/\1\2/p'
}
check "18 + 6 in raidz2 give 71 TiB" '(( $(tib 12 "raidz2 18 raidz2 6") / 10 == 71 ))'
check "24 in raidz3 with 512-byte sectors give 74 TiB" '(( ($(tib 9 "raidz3 24") + 5) / 10 == 74 ))'
check "with sectors of 4 KiB it is 68.4 TiB, as zfs list said in 2014" '(( $(tib 12 "raidz3 24") == 684 ))'
check "5 TiB of them are the sectors' doing" '(( ($(tib 9 "raidz3 24") - $(tib 12 "raidz3 24")) / 10 == 5 ))'
say "OpenZFS 2.1 keeps 128 GiB back at most, and records of 1 MiB waste little with sectors of 4 KiB."
run "poolhouse plan --drives 24x4TB --layout 'raidz2 18 raidz2 6' | grep -E '^zfs list|^  128K |^  1M'"
run "poolhouse plan --drives 24x4TB --layout 'raidz3 24' | grep -E '^zfs list|^  128K |^  1M'"

if measuring; then
  figures layouts
  say "Both layouts on the same 24 files: what each writes and reads, and how long a scrub and a resilver take."
  for number in {01..24}; do drive test$number 4000M; done
  run "poolhouse bench array test{01..24} --layout 'raidz2 18 raidz2 6' --layout 'raidz3 24' --size 64M --seconds 0.5 \\
  --files 20 --only write-1m-q1,read-1m-q1 -q | grep -E '^ +raidz|^(sequential|scrub|resilver)'"
  rm test{01..24}
fi

section pool
for number in {01..24}; do drive bay$number 4000M; done
simulate_smartctl bay{01..24}
sed -i 's/"current": 32/"current": 47/' smart/bay14.json
{
  echo '[bays]'
  echo 'rows = ['
  for row in 0 1 2 3 4 5; do
    printf '  ['
    for column in 1 2 3 4; do printf '"SERIAL-bay%02d", ' $((row * 4 + column)); done
    echo '],'
  done
  echo ']'
} >>state/config.toml
run "poolhouse zpool create -f -m none -R $work/files tank raidz2 bay{01..18} raidz2 bay{19..24}"
run "poolhouse zfs create -o mountpoint=/films -o recordsize=1M tank/films"
run "poolhouse zfs list -Ho name,avail tank"

figures balance
say "Data go to each vdev by its free space: three quarters to the larger one."
for number in 1 2 3 4 5 6; do random_file files/films/$number 50; done
run "poolhouse zpool sync tank"
run "poolhouse zpool list -v -o name,size,alloc tank | grep -v bay"
run "poolhouse zpool iostat -v tank | grep -v bay"
alloc() { poolhouse zpool list -v -Hp -o name,alloc tank | awk -v name="$1" '$1 == name {print $2}'; }
check "the vdev of 18 has 60 to 90 % of it" \
  'part=$((100 * $(alloc raidz2-0) / $(alloc tank))); ((60 <= part && part <= 90))'

section bays
say "The case has six rows of four bays: which one is hot, and which drive is where?"
wait_until 'poolhouse drives list --now | grep "bay14.*tank"'
run "poolhouse drives map temp"

section cache
drive ssd 1000M
run "poolhouse zpool add tank cache ssd"
check "films are read with it" 'cat files/films/*'
run "poolhouse zpool remove tank $work/ssd"
check "it is gone, and the films are not" '! poolhouse zpool status tank | grep cache && ls files/films/6'

section iostat
say "How the drives share the work: one line of figures for each vdev."
run "poolhouse zpool iostat -v tank | awk '\$1 ~ /^(tank|raidz2)/ {print \$1}'"

if measuring; then
  figures case
  say "A simulated case: two fans, three warm drives and a UPS. The fans hold the hottest drive at 40 degrees."
  mkdir case
  ups_port=$(free_port)
  show_as "\\b$ups_port\\b" 3493
  "$repository/tools/chassis.py" "$work/case" "$ups_port" </dev/null >/dev/null 2>&1 &
  processes+=($!)
  wait_until '[[ -e case/ups ]]'
  cat >>state/config.toml <<END
[fans]
hwmon = "$work/case/hwmon"
interval = 1
[[fans.fan]]
name = "front"
chip = "simfan"
pwm = 1
min = 20
[[fans.fan]]
name = "rear"
chip = "simfan"
pwm = 2
min = 20
follows = "both"
[ups]
server = "nut://127.0.0.1:$ups_port/demo"
interval = 1
shutdown_command = ["touch", "$work/is-down"]
END
  wait_until 'poolhouse fans status | grep front'
  wait_until 'poolhouse ups status | grep OL'
  run "poolhouse fans status"
  hottest() { poolhouse fans status | sed -n 's/^hottest drive: \([0-9]*\) .*/\1/p'; }
  wait_until '(( $(hottest) >= 39 ))' 180
  sleep 20
  check "20 seconds later it has 38 to 42 degrees" '(( 38 <= $(hottest) && $(hottest) <= 42 ))'
  run "poolhouse ups status"
  say "The power fails, and the battery runs down: the daemon runs the shutdown command."
  echo "OB LB" >case/ups
  wait_until '[[ -e is-down ]]'
  say "The power is back; the daemon, if the shutdown ended it, is started by the next command."
  echo OL >case/ups
  check "the films are there" 'wait_until "pool_is tank ONLINE" 180 && ls files/films/6'
fi

section hours
say "It is off most of the time. Its hours begin six hours from now; outside them it sleeps while nothing uses it."
cat >asleep.sh <<'END'
#!/bin/sh
# in the place of rtcwake: the box does not answer until it is woken
echo "$1" >"${0%/*}/alarm"
touch "${0%/*}/is-asleep"
while [ -e "${0%/*}/is-asleep" ]; do sleep 0.1; done
END
cat >ssh <<'END'
#!/bin/sh
# in the place of ssh: the other box reaches this one unless it sleeps
[ ! -e "${0%/*}/is-asleep" ] || { echo "ssh: connect to host films port 22: No route to host" >&2; exit 255; }
while [ "$1" != -- ]; do shift; done
eval "set -- $3"
exec poolhouse "$@" --state "${0%/*}/state"
END
chmod +x asleep.sh ssh
begin=$(date -d '+6 hours' +%H:%M) end=$(date -d '+8 hours' +%H:%M)
show_as "$begin-$end" 18:00-23:00
run "poolhouse config set hours.sleep_command '[\"$work/asleep.sh\", \"{wake}\"]'"
run "poolhouse config set hours.idle_minutes 0.2"
run "poolhouse config set hours.awake $begin-$end"
wait_until '[[ -s alarm ]]' 60
seconds_left() { echo $(($(cat alarm) - $(date +%s))); }
check "it sleeps, and its alarm is set to the start of its hours" '(( $(seconds_left) > 5 * 3600 && $(seconds_left) < 6 * 3600 + 60 ))'
run "poolhouse events | grep -o machine_sleeps | head -1"

section wake
say "Another box copies its photos to it at night: a magic packet wakes it, the copy is made, and it sleeps again."
wol_port=$(free_port)
show_as "\\b$wol_port\\b" 9
cat >listen.py <<'END'
import pathlib, socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as card:
    card.bind(("127.0.0.1", int(sys.argv[1])))
    pathlib.Path("card").touch()
    while card.recv(200) != b"\xff" * 6 + bytes.fromhex("aabbccddeeff") * 16:
        pass
    pathlib.Path("is-asleep").unlink()
END
python3 listen.py "$wol_port" </dev/null &
processes+=($!)
wait_until '[[ -e card ]]'
drive laptop 2000M
box2="--state $work/state2"
run "poolhouse zpool create $box2 -m none small laptop"
run "poolhouse zfs create $box2 small/photos"
run "poolhouse zfs snapshot $box2 small/photos@monday"
run "poolhouse config add $box2 replica name=films source=small/photos target=ssh://root@films/tank/photos ssh='[\"$work/ssh\"]' \
  wake=aa:bb:cc:dd:ee:ff wake-address=127.0.0.1:$wol_port"
check "it sleeps" '[[ -e is-asleep ]]'
quiet "poolhouse replicate run $box2 films"
check "the photos are on it" 'poolhouse zfs list tank/photos@monday'
check "it sleeps again" 'wait_until "[[ -e is-asleep ]]" 60'
