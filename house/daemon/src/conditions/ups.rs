//! The conditions of the UPS.

use ::ups::{PowerSource, Stage};
use alerts::{Condition, Severity};
use api::UpsStatus;

/// The conditions of the UPS; none if no UPS is watched.
pub(super) fn find(status: Option<&UpsStatus>) -> Vec<Condition> {
    let Some(status) = status else { return Vec::new() };
    [power_failure(status), contact_lost(status), battery_old(status), not_shut_down(status)]
        .into_iter()
        .flatten()
        .collect()
}

fn power_failure(status: &UpsStatus) -> Option<Condition> {
    let (severity, level, sentence) = match status.stage {
        Stage::Normal => return None,
        Stage::OnBattery => (Severity::Warning, 0, "All work continues."),
        Stage::Quiet => (Severity::Warning, 1, "Scrubs and replication wait for line power."),
        Stage::ShutDown => {
            (Severity::Critical, 0, "The pools are closed, and this machine shuts down.")
        }
    };
    let reading = status.reading.as_ref();
    let charge = reading.and_then(|it| it.charge).map(|it| format!(" at {it} % charge"));
    let runtime = reading.and_then(|it| it.runtime);
    let runtime = runtime.map(|it| format!(", which lasts about {} minutes", it / 60));
    let is_on_battery = reading.is_none_or(|it| it.source == PowerSource::Battery);
    let title = match (is_on_battery, status.stage) {
        (true, _) => "The power failed",
        (false, Stage::ShutDown) => "The UPS ordered a shutdown",
        (false, _) => "Line power is back, and may fail again",
    };
    Some(Condition {
        key: "ups/power".to_owned(),
        severity,
        level,
        title: title.to_owned(),
        sentence: format!(
            "UPS {} feeds this machine{}{}. {sentence}",
            status.server,
            charge.unwrap_or_default(),
            runtime.unwrap_or_default()
        ),
        action: "See: poolhouse ups status".to_owned(),
    })
}

fn contact_lost(status: &UpsStatus) -> Option<Condition> {
    let why = status.error.as_ref()?;
    Some(Condition {
        key: "ups/contact".to_owned(),
        severity: Severity::Warning,
        level: 0,
        title: "The UPS cannot be read".to_owned(),
        sentence: format!("In a power failure this machine is not shut down: {why}."),
        action: "See: poolhouse ups status".to_owned(),
    })
}

fn battery_old(status: &UpsStatus) -> Option<Condition> {
    status.reading.as_ref().filter(|reading| reading.needs_battery)?;
    Some(Condition {
        key: "ups/battery".to_owned(),
        severity: Severity::Warning,
        level: 0,
        title: "The UPS needs a new battery".to_owned(),
        sentence: format!("UPS {} may not bridge the next power failure.", status.server),
        action: "Replace its battery.".to_owned(),
    })
}

fn not_shut_down(status: &UpsStatus) -> Option<Condition> {
    let why = status.shutdown_error.as_ref()?;
    Some(Condition {
        key: "ups/shutdown".to_owned(),
        severity: Severity::Critical,
        level: 0,
        title: "This machine could not be shut down".to_owned(),
        sentence: format!("Its pools are closed, so that no data is in danger: {why}."),
        action: "Correct ups.shutdown_command in config.toml.".to_owned(),
    })
}
