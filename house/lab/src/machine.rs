//! The machine a result is from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::System;

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// The kernel's version.
    pub kernel: String,
    /// The system's name.
    pub system: String,
    /// The processor's name.
    pub processor: String,
    /// Processors that can run threads.
    pub processors: usize,
    /// How the processors choose their clock, if they do.
    pub governor: Option<String>,
    /// Memory, bytes.
    pub memory_bytes: u64,
}

impl Machine {
    /// This one.
    pub fn read(system: &System) -> Self {
        let line = |file: &str, name: &str| {
            let text = system.read_text(file)?;
            let value = text.lines().find_map(|line| line.strip_prefix(name))?;
            Some(value.trim_start_matches([' ', '\t', ':', '=']).trim_matches('"').to_owned())
        };
        let memory = line("proc/meminfo", "MemTotal").and_then(|text| {
            text.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok())
        });
        Self {
            name: system.read_text("proc/sys/kernel/hostname").unwrap_or_default(),
            kernel: system.read_text("proc/sys/kernel/osrelease").unwrap_or_default(),
            system: line("etc/os-release", "PRETTY_NAME").unwrap_or_default(),
            processor: line("proc/cpuinfo", "model name").unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            governor: system.read_text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            memory_bytes: memory.unwrap_or(0).saturating_mul(1024),
        }
    }

    /// In one line.
    pub fn description(&self) -> String {
        let Self { name, kernel, system, processor, processors, memory_bytes, .. } = self;
        let memory = units::human_bytes(*memory_bytes);
        format!("{name}: {processor}, {processors} processors, {memory}; {system}, Linux {kernel}")
    }
}

/// Versions of the kernel's modules that matter.
pub(crate) fn software_versions(system: &System) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    all.insert("poolhouse".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    all.extend(
        system.read_text("proc/sys/kernel/osrelease").map(|text| ("linux".to_owned(), text)),
    );
    all.extend(system.read_text("sys/module/zfs/version").map(|text| ("zfs".to_owned(), text)));
    all
}

/// How much the processors had done at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTimes {
    idle: u64,
    total: u64,
}

impl CpuTimes {
    /// Now.
    pub(crate) fn read(system: &System) -> Option<Self> {
        let text = system.read_text("proc/stat")?;
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> =
            line.split_whitespace().map_while(|word| word.parse().ok()).take(8).collect();
        // user nice system idle iowait irq softirq steal
        let idle = ticks.get(3)? + ticks.get(4)?;
        Some(Self { idle, total: ticks.iter().sum() })
    }

    /// The part of all processors that was busy from `self` until `later`.
    pub(crate) fn busy_fraction_until(self, later: Self) -> Option<f64> {
        let all = later.total.checked_sub(self.total).filter(|all| *all > 0)?;
        let idle = later.idle.saturating_sub(self.idle).min(all);
        Some(1.0 - crate::number::ratio(idle, all))
    }
}

#[cfg(test)]
mod tests {
    use super::{CpuTimes, Machine};
    use crate::System;

    #[test]
    fn this_machine_has_a_kernel_and_memory() {
        let machine = Machine::read(&System::default());
        assert!(machine.memory_bytes > 1 << 20 && !machine.kernel.is_empty(), "{machine:?}");
    }

    #[test]
    fn missing_proc_files_give_no_facts() {
        let nowhere = System::with_root("/nonexistent");
        assert_eq!(Machine::read(&nowhere).memory_bytes, 0);
        assert!(CpuTimes::read(&nowhere).is_none());
    }

    #[test]
    fn busy_fraction_excludes_idle() {
        let (before, after) =
            (CpuTimes { idle: 100, total: 200 }, CpuTimes { idle: 125, total: 300 });
        assert!((before.busy_fraction_until(after).unwrap() - 0.75).abs() < 1e-9);
        assert_eq!(after.busy_fraction_until(before), None);
    }
}
