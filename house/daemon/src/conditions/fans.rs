//! The conditions of the fans.

use alerts::{Condition, Severity};
use api::FanStatus;

/// The conditions of the fans; none if no fan is controlled.
pub(super) fn find(status: Option<&FanStatus>) -> Vec<Condition> {
    let Some(status) = status else { return Vec::new() };
    let faults = (!status.faults.is_empty()).then(|| Condition {
        key: "fans/fault".to_owned(),
        severity: if status.is_over_limit { Severity::Critical } else { Severity::Warning },
        level: status.faults.len() as u64,
        title: "All fans turn at full speed".to_owned(),
        sentence: format!("Drives are kept as cool as it goes: {}.", status.faults.join("; ")),
        action: "See: poolhouse fans status".to_owned(),
    });
    let broken = status.fans.iter().filter_map(|fan| {
        let why = fan.error.as_ref()?;
        Some(Condition {
            key: format!("fans/{}", fan.name),
            severity: Severity::Warning,
            level: 0,
            title: format!("Fan {} is not controlled", fan.name),
            sentence: format!("It keeps the speed that it has: {why}."),
            action: "Correct [[fans.fan]] in config.toml.".to_owned(),
        })
    });
    faults.into_iter().chain(broken).collect()
}
