//! The engine's environment, taken from the operating system: time, random numbers, memory, the host's identity.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use engine::pool::{Environment, MemoryBudget};

use crate::{Error, Result};

/// The part of the machine's memory that the daemon uses by default.
const DEFAULT_MEMORY_DIVISOR: u64 = 4;
/// Half of that memory is for the ARC, which all pools share, and a quarter for dirty data of a pool. The rest
/// is for I/O in progress.
const CACHE_DIVISOR: u64 = 2;
const DIRTY_DIVISOR: u64 = 4;
const DIRTY_LIMITS: (u64, u64) = (16 << 20, 4 << 30);
/// With less memory the daemon uses no huge pages. They speed up large caches, and take up to a third more memory
/// than the blocks in them.
const MIN_MEMORY_FOR_HUGE_PAGES: u64 = 2 << 30;

/// This machine. `memory`: the bytes that the daemon may use.
pub(crate) fn host_environment(memory: Option<u64>) -> Result<Environment> {
    // getrandom(2) that worked once always works
    fill_random(&mut [0; 8]).map_err(|why| {
        Error::usage_error(format!(
            "no random numbers are available from the operating system: {why}"
        ))
    })?;
    let (least, most) = DIRTY_LIMITS;
    let memory = memory_limit(memory);
    let cache = units::to_usize(memory / CACHE_DIVISOR);
    Ok(Environment {
        random: Arc::new(|bytes| fill_random(bytes).expect("the system gave random bytes before")),
        now: Arc::new(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            (now.as_secs(), now.subsec_nanos())
        }),
        workers: std::thread::available_parallelism().map_or(1, usize::from),
        max_dirty: (memory / DIRTY_DIVISOR).clamp(least, most),
        cache: MemoryBudget::with_bytes(cache),
        host: host_id(),
    })
}

/// The bytes that the daemon may use, of which the user may have said how many.
pub(crate) fn memory_limit(memory: Option<u64>) -> u64 {
    memory.unwrap_or_else(|| available_memory() / DEFAULT_MEMORY_DIVISOR)
}

/// Decides whether this process, and those that it starts, use transparent huge pages. `memory`: as for
/// [`host_environment`].
pub(crate) fn configure_huge_pages(memory: Option<u64>) {
    if memory_limit(memory) < MIN_MEMORY_FOR_HUGE_PAGES {
        // a kernel without huge pages refuses, and there is nothing to be saved
        let _ = rustix::thread::disable_transparent_huge_pages(true);
    }
}

/// Fills a buffer with random bytes of the operating system.
pub(crate) fn fill_random(mut bytes: &mut [u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        let got = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty())?;
        bytes = bytes.get_mut(got..).unwrap_or_default();
    }
    Ok(())
}

/// The memory that this program may use in bytes: the machine's, or the limit of a cgroup around it.
fn available_memory() -> u64 {
    let info = rustix::system::sysinfo();
    let all = u64::from(info.mem_unit) * info.totalram;
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let limits = Path::new(own).ancestors().filter_map(|group| {
        let path = Path::new("/sys/fs/cgroup").join(group).join("memory.max");
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    });
    limits.fold(all, u64::min)
}

/// The host id and name. The id is that of /etc/hostid, as with OpenZFS, or is made from the machine id or the
/// name.
fn host_id() -> (u64, String) {
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
    (u64::from(if number == 0 { hash_name(&name) } else { number }), name)
}

/// A host id from a name (FNV-1a). It is never 0, which stands for no host.
fn hash_name(name: &str) -> u32 {
    let mix = |sum: u32, byte: u8| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    name.bytes().fold(0x811c_9dc5, mix).max(1)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_environment_is_complete() {
        let world = super::host_environment(None).unwrap();
        let mut bytes = [0; 64];
        (world.random)(&mut bytes);
        assert_ne!(bytes, [0; 64]);
        assert!(world.workers > 0 && world.max_dirty >= 16 << 20 && world.host.0 != 0);
        let small = super::host_environment(Some(256 << 20)).unwrap();
        assert_eq!((small.cache.bytes(), small.max_dirty), (128 << 20, 64 << 20));
    }
}
