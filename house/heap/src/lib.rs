//! The program's memory allocator, and how it returns free memory to the system.
//!
//! The threads of a pool allocate and free blocks of all sizes in quick succession. The system's own
//! allocator returns them to the kernel and requests them anew with every txg; mimalloc keeps them.
//! After a pool is exported it keeps them too, which is why the daemon calls [`return_free_memory`].
//!
//! `unsafe` because the call into the C library is declared here.
#![deny(unsafe_code)]

mod counting;

pub use counting::CountingAllocator;
pub use mimalloc::MiMalloc as Allocator;

#[allow(unsafe_code, reason = "declares one function of the C library")]
mod ffi {
    // SAFETY: this is mimalloc's `void mi_collect(bool force)`. It takes no pointer and may be called by any
    // thread at any time; where mimalloc is not the process's allocator it finds nothing to free.
    unsafe extern "C" {
        pub(crate) safe fn mi_collect(force: bool);
    }
}

/// Returns unused pages to the system: those of this thread and of threads that have ended.
pub fn return_free_memory() {
    ffi::mi_collect(true);
}

#[cfg(test)]
mod tests {
    #[global_allocator]
    static ALLOCATOR: super::Allocator = super::Allocator;

    fn resident_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    fn memory_of_ended_threads_is_returned() {
        let before = resident_kib();
        let blocks =
            std::thread::spawn(|| (0..2000).map(|_| vec![1_u8; 64 << 10]).collect::<Vec<_>>());
        let blocks = blocks.join().unwrap();
        assert!(resident_kib() > before + (100 << 10));
        drop(blocks);
        super::return_free_memory();
        let after = resident_kib();
        assert!(after < before + (20 << 10), "{before} KiB before, {after} KiB after");
    }
}
