//! What of the world outside a pool needs: time, chance, memory, and which host this is.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use engine::held::World;

use crate::{Error, Result};

/// Changes that wait to be written take this part of the memory, at most and at least so much.
const DIRTY_PART: u64 = 10;
const DIRTY_LIMITS: (u64, u64) = (64 << 20, 4 << 30);

/// This machine.
pub(crate) fn here() -> Result<World> {
    // the system is asked once for all: afterwards it always answers
    random(&mut [0; 8]).map_err(|why| Error::usage(format!("the system has no chance: {why}")))?;
    let (least, most) = DIRTY_LIMITS;
    Ok(World {
        random: Arc::new(|bytes| random(bytes).expect("the system gave random bytes before")),
        now: Arc::new(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            (now.as_secs(), now.subsec_nanos())
        }),
        workers: std::thread::available_parallelism().map_or(1, usize::from),
        dirty: (memory() / DIRTY_PART).clamp(least, most),
        host: host(),
    })
}

fn random(mut bytes: &mut [u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        let got = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty())?;
        bytes = bytes.get_mut(got..).unwrap_or_default();
    }
    Ok(())
}

/// The memory that this program may use: the machine's, or what its cgroup leaves it.
fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    let all = u64::from(info.mem_unit).saturating_mul(info.totalram);
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|text| text.trim().parse().ok()).unwrap_or(u64::MAX);
    all.min(limit)
}

/// The host's number and name. The number is what OpenZFS takes, where there is one; or else made
/// of what names this machine.
fn host() -> (u64, String) {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let given = std::fs::read("/etc/hostid").ok().and_then(|bytes| {
        let four: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
        Some(u32::from_ne_bytes(four))
    });
    let machine = || {
        let text = std::fs::read_to_string("/etc/machine-id").ok()?;
        u32::from_str_radix(text.get(..8)?, 16).ok()
    };
    let number = given.filter(|id| *id != 0).or_else(machine).unwrap_or(0);
    (u64::from(if number == 0 { of_name(&name) } else { number }), name)
}

/// A number for a machine that has nothing but its name (FNV-1a); never 0, which is no host.
fn of_name(name: &str) -> u32 {
    let mix = |sum: u32, byte: u8| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    name.bytes().fold(0x811c_9dc5, mix).max(1)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_world_gives_what_is_asked_for() {
        let world = super::here().unwrap();
        let mut bytes = [0; 64];
        (world.random)(&mut bytes);
        assert_ne!(bytes, [0; 64]);
        assert!(world.workers > 0 && world.dirty >= 64 << 20 && world.host.0 != 0);
    }
}
