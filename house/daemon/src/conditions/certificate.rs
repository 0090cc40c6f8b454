//! The condition of a certificate that the CA did not issue or renew.

use alerts::{Condition, Severity};
use api::CertificateStatus;

/// The time in seconds before the end of a certificate from which a failed renewal is a condition; or the last fifth of
/// its time, if that is shorter.
const WARNING: u64 = 21 * 24 * 60 * 60;
const DAY: u64 = 24 * 60 * 60;

/// The condition; none if all is well, or time is left to try again.
pub(super) fn find(status: Option<&CertificateStatus>, now: u64) -> Option<Condition> {
    let status = status?;
    let why = status.error.as_ref()?;
    let names = status.names.join(", ");
    let (title, level) = match (status.from, status.until) {
        (Some(from), Some(until)) => {
            let left = until.checked_sub(now);
            let fifth = until.checked_sub(from).map_or(WARNING, |whole| whole / 5);
            if left.is_some_and(|left| left > WARNING.min(fifth)) {
                return None;
            }
            match left {
                Some(left) if left >= DAY => {
                    (format!("The certificate of {names} ends in {} days", left / DAY), 1)
                }
                Some(_) => (format!("The certificate of {names} ends today"), 2),
                None => (format!("The certificate of {names} has ended"), 3),
            }
        }
        _ => (format!("There is no certificate of {names}"), 0),
    };
    Some(Condition {
        key: "certificate".to_owned(),
        severity: Severity::Warning,
        level,
        title,
        sentence: format!("Browsers warn, or will soon: {why}."),
        action: "See: poolhouse web status".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use api::CertificateStatus;

    use super::{DAY, find};

    #[test]
    fn failed_renewals_are_told_before_the_end() {
        let mut status = CertificateStatus {
            names: vec!["nas.example.org".to_owned()],
            from: Some(0),
            until: Some(90 * DAY),
            ..CertificateStatus::default()
        };
        let title = |status: &CertificateStatus, now| find(Some(status), now).map(|it| it.title);
        assert_eq!(title(&status, 89 * DAY), None, "the renewal is still to come");
        status.error = Some("no route".to_owned());
        assert_eq!(title(&status, 61 * DAY), None, "time is left");
        let late = title(&status, 80 * DAY).unwrap();
        assert_eq!(late, "The certificate of nas.example.org ends in 10 days");
        assert!(title(&status, 91 * DAY).unwrap().ends_with("has ended"));
        (status.from, status.until) = (None, None);
        assert!(title(&status, 0).unwrap().starts_with("There is no certificate"));
        assert!(find(None, 0).is_none());
    }
}
