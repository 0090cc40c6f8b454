//! Events as sentences.

use api::Event;

use super::format::local;

/// An event as a short sentence.
pub(super) fn sentence(event: &Event) -> String {
    match event {
        Event::PoolCreated { pool } => format!("Pool {pool} was created."),
        Event::PoolImported { pool } => format!("Pool {pool} was imported."),
        Event::PoolExported { pool } => format!("Pool {pool} was exported."),
        Event::PoolDestroyed { pool } => format!("Pool {pool} was destroyed."),
        Event::PoolSuspended { pool, reason } => format!("Pool {pool} was suspended: {reason}"),
        Event::PoolCleared { pool } => format!("The errors of pool {pool} were cleared."),
        Event::DeviceStateChanged { pool, device, state } => {
            format!("Device {device} of pool {pool} is {state}.")
        }
        Event::ScanStarted { pool, scan } => format!("A {scan} of pool {pool} started."),
        Event::ScanFinished { pool, scan, state, errors } => {
            format!("The {scan} of pool {pool} is {state}, with {errors} damaged blocks.")
        }
        Event::SnapshotCreated { snapshot } => format!("Snapshot {snapshot} was created."),
        Event::SnapshotDestroyed { snapshot } => format!("Snapshot {snapshot} was destroyed."),
        Event::DatasetCreated { dataset } => format!("Dataset {dataset} was created."),
        Event::DatasetDestroyed { dataset } => format!("Dataset {dataset} was destroyed."),
        Event::Mounted { dataset, directory } => {
            format!("{dataset} was mounted at {}.", directory.display())
        }
        Event::Unmounted { dataset, directory } => {
            format!("{dataset} was unmounted from {}.", directory.display())
        }
        Event::JobChanged { id, job, subject, state } => {
            format!("Job {id} ({job} of {subject}) is {}.", state.as_str())
        }
        Event::PowerStageChanged { stage } => format!("UPS: stage {stage}"),
        Event::MachineSleeps { until } => format!("The machine sleeps until {}.", local(*until)),
        Event::MachineWoke {} => "The machine is awake.".to_owned(),
        Event::AlertChanged { severity, title, .. } => format!("Alert ({severity}): {title}"),
        Event::ConfigReloaded {} => "The configuration was read again.".to_owned(),
        // the kind is enough for rare events
        other => {
            let pool = other.pool().map_or_else(String::new, |pool| format!(" (pool {pool})"));
            format!("{}{pool}.", other.kind().replace('_', " "))
        }
    }
}
