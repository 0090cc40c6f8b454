//! The conditions that are wrong now: of pools, devices, space, drives and jobs. Alerts and the dashboard's
//! verdict are made from them.

mod certificate;
mod fans;
mod ups;

use alerts::{Condition, Severity};
use api::{CertificateStatus, Drive, FanStatus, Job, JobState, PoolReport, UpsStatus};
use engine::pool::{PoolStatus, VdevStatus};
use health::{Finding, Grade};

/// Percentages of used space at which a pool raises its alert again, after the configured one.
const SPACE_STEPS: [u64; 2] = [90, 95];
/// The time in seconds for which a failed job is a condition.
const JOB_AGE: u64 = 24 * 60 * 60;

/// The state of the parts that have conditions.
#[derive(Clone, Copy, Default)]
pub(crate) struct Parts<'a> {
    pub(crate) pools: &'a [PoolReport],
    pub(crate) drives: &'a [Drive],
    pub(crate) jobs: &'a [Job],
    pub(crate) ups: Option<&'a UpsStatus>,
    pub(crate) fans: Option<&'a FanStatus>,
    pub(crate) certificate: Option<&'a CertificateStatus>,
}

/// The conditions, the most urgent first. `space` is the percentage of used space from which a pool has one.
pub(crate) fn find(parts: Parts<'_>, space: u64, now: u64) -> Vec<Condition> {
    let Parts { pools, drives, jobs, .. } = parts;
    let mut all = ups::find(parts.ups);
    all.extend(fans::find(parts.fans));
    all.extend(certificate::find(parts.certificate, now));
    for pool in pools {
        let status = &pool.status;
        all.extend(pool_state(status));
        all.extend(scan_errors(status));
        all.extend(space_used(status, space));
        for vdev in status.vdevs.iter().chain(&status.caches).chain(&status.spares) {
            add_devices(status, vdev, &mut all);
        }
    }
    all.extend(drives.iter().filter_map(drive_condition));
    all.extend(smartctl_missing(drives));
    all.extend(jobs.iter().filter_map(|job| failed_job(job, now)));
    all.sort_by_key(|condition| std::cmp::Reverse(condition.severity));
    all
}

fn pool_state(pool: &PoolStatus) -> Option<Condition> {
    let name = &pool.name;
    let why = pool.error.as_deref().unwrap_or("devices are missing");
    let (severity, sentence, action) = match pool.state.as_str() {
        "ONLINE" => return None,
        "SUSPENDED" => (
            Severity::Critical,
            format!("Writes wait, and programs with them; nothing is lost so far: {why}."),
            format!("Bring the devices back, then: poolhouse zpool clear {name}"),
        ),
        "DEGRADED" => (
            Severity::Warning,
            "All data can be read and written, and bears the loss of fewer devices.".to_owned(),
            format!("See which device it is: poolhouse zpool status {name}"),
        ),
        _ => (
            Severity::Critical,
            format!("Its data cannot be reached: {why}."),
            format!("Bring the devices back; see: poolhouse zpool status {name}"),
        ),
    };
    Some(Condition {
        key: format!("pool/{name}/state"),
        severity,
        level: 0,
        title: format!("Pool {name} is {}", pool.state),
        sentence,
        action,
    })
}

fn scan_errors(pool: &PoolStatus) -> Option<Condition> {
    let scan = pool.scan.as_ref().filter(|scan| scan.errors > 0)?;
    let name = &pool.name;
    let count = scan.errors;
    Some(Condition {
        key: format!("pool/{name}/scan/{}", scan.started),
        severity: Severity::Critical,
        level: magnitude(count),
        title: format!("Pool {name} has {count} damaged blocks"),
        sentence: "A scan found blocks that no copy and no parity could repair.".to_owned(),
        action: format!("See the damaged files: poolhouse zpool status -v {name}"),
    })
}

fn space_used(pool: &PoolStatus, first_step: u64) -> Option<Condition> {
    let percent = u128::from(pool.allocated) * 100 / u128::from(pool.size.max(1));
    let steps = std::iter::once(first_step).chain(SPACE_STEPS);
    let level = steps.filter(|step| percent >= u128::from(*step)).count() as u64;
    if level == 0 {
        return None;
    }
    let name = &pool.name;
    let is_nearly_full = percent >= 95;
    Some(Condition {
        key: format!("pool/{name}/space"),
        severity: if is_nearly_full { Severity::Critical } else { Severity::Warning },
        level,
        title: format!("Pool {name} is {percent} % full"),
        sentence: "Writes become slower as free space runs out, and fail when there is none."
            .to_owned(),
        action: format!("See the largest datasets: poolhouse zfs list -r -S used {name}"),
    })
}

/// Adds a condition for each device that does not work, and for each one with errors.
fn add_devices(pool: &PoolStatus, vdev: &VdevStatus, all: &mut Vec<Condition>) {
    for child in &vdev.children {
        add_devices(pool, child, all);
    }
    if !vdev.children.is_empty() {
        return;
    }
    let (name, device, state) = (&pool.name, &vdev.name, &vdev.state);
    if !matches!(state.as_str(), "ONLINE" | "AVAIL" | "INUSE") {
        let is_planned = state == "OFFLINE";
        all.push(Condition {
            key: format!("pool/{name}/device/{}/state", vdev.guid),
            severity: if is_planned { Severity::Notice } else { Severity::Warning },
            level: 0,
            title: format!("Device {device} of pool {name} is {state}"),
            sentence: "The pool works without it, as far as its redundancy goes.".to_owned(),
            action: format!("Check its cable, or: poolhouse zpool replace {name} {device} NEW"),
        });
    }
    let counts = [vdev.read_errors, vdev.write_errors, vdev.checksum_errors];
    let total: u128 = counts.into_iter().map(u128::from).sum();
    if total > 0 {
        let [read, write, checksum] = counts;
        all.push(Condition {
            key: format!("pool/{name}/device/{}/errors", vdev.guid),
            severity: Severity::Warning,
            level: u64::from(u128::BITS - total.leading_zeros()),
            title: format!("Device {device} of pool {name} has errors"),
            sentence: format!(
                "It counted {read} read, {write} write and {checksum} checksum errors."
            ),
            action: format!(
                "If the drive is sound: poolhouse zpool clear {name} {device}, and scrub the pool."
            ),
        });
    }
}

/// The condition of a drive: all its findings that are not noted. The pool's own counts are conditions of its
/// devices.
fn drive_condition(drive: &Drive) -> Option<Condition> {
    let is_told = |finding: &&Finding| {
        !finding.is_noted
            && !finding.key.starts_with("pool_")
            && matches!(finding.grade, Grade::Watch | Grade::Failing)
    };
    let findings: Vec<_> = drive.verdict.findings.iter().filter(is_told).collect();
    let first = findings.first()?;
    let is_failing = first.grade == Grade::Failing;
    let bay = drive.bay.as_ref().map_or_else(String::new, |bay| format!(" in bay {bay}"));
    let model = drive.model.as_deref().unwrap_or("drive");
    let state = if is_failing { "is failing" } else { "needs attention" };
    // it grows with each new finding, and when a value doubles
    let level = findings.iter().map(|finding| 1 + magnitude(finding.value)).sum();
    Some(Condition {
        key: format!("drive/{}", drive.id()),
        severity: if is_failing { Severity::Critical } else { Severity::Warning },
        level,
        title: format!("{} {}{bay} ({model}, {}) {state}", drive.kind, drive.name, drive.id()),
        sentence: findings.iter().map(|it| it.sentence.as_str()).collect::<Vec<_>>().join(" "),
        action: first.action.clone(),
    })
}

/// One condition for all drives if the program that reads them is missing.
fn smartctl_missing(drives: &[Drive]) -> Option<Condition> {
    let is_missing = |drive: &&Drive| drive.verdict.sentence.contains("smartctl is not installed");
    let count = drives.iter().filter(is_missing).count();
    (count > 0).then(|| Condition {
        key: "drives/smartctl".to_owned(),
        severity: Severity::Notice,
        level: 0,
        title: "The health of drives is not known".to_owned(),
        sentence: format!("smartctl is not installed, so that {count} drives are not watched."),
        action: "Install it: apt-get install smartmontools".to_owned(),
    })
}

fn failed_job(job: &Job, now: u64) -> Option<Condition> {
    let ended = job.finished.filter(|_| job.state == JobState::Failed)?;
    if now.checked_sub(ended).is_some_and(|age| age > JOB_AGE) {
        return None;
    }
    Some(Condition {
        key: format!("job/{}", job.id),
        severity: Severity::Warning,
        level: 0,
        title: format!("Job {} ({} of {}) failed", job.id, job.kind, job.subject),
        sentence: job.log.last().cloned().unwrap_or_else(|| "It gave no reason.".to_owned()),
        action: "See: poolhouse jobs".to_owned(),
    })
}

/// The number of binary digits of a count: it grows when the count doubles.
fn magnitude(count: u64) -> u64 {
    u64::from(u64::BITS - count.leading_zeros())
}

#[cfg(test)]
mod tests {
    use api::{Drive, Job, JobProgress, JobState, PoolReport};
    use engine::pool::PoolStatus;
    use health::{Finding, Grade, Verdict};

    use super::{Parts, find};

    fn titles(pools: &[PoolReport], drives: &[Drive], jobs: &[Job]) -> Vec<String> {
        let parts = Parts { pools, drives, jobs, ..Parts::default() };
        find(parts, 80, 1000).into_iter().map(|it| it.title).collect()
    }

    fn pool(state: &str, allocated: u64) -> PoolReport {
        let mut status = PoolStatus::unavailable("tank", 1, "2 devices are missing");
        (status.state, status.size, status.allocated) = (state.to_owned(), 100, allocated);
        PoolReport { status, altroot: None }
    }

    #[test]
    fn pools_have_conditions_by_state_and_space() {
        assert!(titles(&[pool("ONLINE", 79)], &[], &[]).is_empty());
        assert_eq!(titles(&[pool("DEGRADED", 0)], &[], &[]), ["Pool tank is DEGRADED"]);
        let pools = [pool("SUSPENDED", 91)];
        let full = find(Parts { pools: &pools, ..Parts::default() }, 80, 0);
        let found: Vec<_> = full.iter().map(|it| (it.title.as_str(), it.level)).collect();
        assert_eq!(found, [("Pool tank is SUSPENDED", 0), ("Pool tank is 91 % full", 2)]);
    }

    #[test]
    fn findings_are_conditions_unless_noted() {
        let finding = |key: &str, is_noted| Finding {
            key: key.to_owned(),
            value: 9,
            grade: Grade::Watch,
            sentence: String::new(),
            action: String::new(),
            is_noted,
        };
        let findings = vec![
            finding("media_errors", false),
            finding("temperature", true),
            finding("pool_read_errors", false),
        ];
        let verdict = Verdict { findings, ..Verdict::default() };
        let (name, kind) = ("sda".to_owned(), "HDD".to_owned());
        let drive = Drive { name, kind, verdict, bay: Some("1-2".to_owned()), ..Drive::default() };
        let found = titles(&[], &[drive], &[]);
        assert_eq!(found, ["HDD sda in bay 1-2 (drive, sda) needs attention"]);
    }

    #[test]
    fn failed_jobs_are_conditions_for_a_day() {
        let job = |state, finished| Job {
            id: 7,
            kind: "scrub".to_owned(),
            subject: "tank".to_owned(),
            uid: 0,
            state,
            progress: JobProgress::default(),
            started: 0,
            finished: Some(finished),
            log: Vec::new(),
        };
        let jobs = [job(JobState::Failed, 900), job(JobState::Finished, 900)];
        assert_eq!(titles(&[], &[], &jobs), ["Job 7 (scrub of tank) failed"]);
        let parts = Parts { jobs: &jobs, ..Parts::default() };
        assert!(find(parts, 80, 900 + 86_401).is_empty());
    }
}
