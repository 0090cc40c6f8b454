//! The `status:` and `action:` lines of `zpool status`, in the words of zpool(8) where it has them:
//! users and scripts search for these.

use engine::pool::{PoolStatus, SlowDrive, VdevStatus};

use super::status::{is_healthy, unavailable_caches};

/// The `status:`, `action:` and `see:` of a pool that needs attention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Advice {
    /// The problem.
    pub(super) status: String,
    /// The next step.
    pub(super) action: &'static str,
    /// The number of OpenZFS's page about it, as in `ZFS-8000-2Q`.
    pub(super) message_id: Option<&'static str>,
}

impl Advice {
    fn new(status: impl Into<String>, action: &'static str) -> Self {
        Self { status: status.into(), action, message_id: None }
    }

    fn with_id(status: impl Into<String>, action: &'static str, id: &'static str) -> Self {
        Self { message_id: Some(id), ..Self::new(status, action) }
    }

    /// The address of OpenZFS's page about it.
    pub(super) fn see(&self) -> Option<String> {
        self.message_id.map(|id| format!("https://openzfs.github.io/openzfs-docs/msg/{id}"))
    }
}

/// The lines about a pool of whose devices some are not ONLINE, by the state of such a device. The first
/// that fits is shown.
const DEGRADED: [(&str, &str, &str, Option<&str>); 4] = [
    (
        "FAULTED",
        "One or more devices are faulted in response to persistent errors.\n\
         \tSufficient replicas exist for the pool to continue functioning in a\n\
         \tdegraded state.",
        "Replace the faulted device, or use 'zpool clear' to mark the device\n\trepaired.",
        Some("ZFS-8000-4J"),
    ),
    (
        "UNAVAIL",
        "One or more devices could not be opened.  Sufficient replicas exist for\n\
         \tthe pool to continue functioning in a degraded state.",
        "Attach the missing device and online it using 'zpool online'.",
        Some("ZFS-8000-2Q"),
    ),
    (
        "OFFLINE",
        "One or more devices has been taken offline by the administrator.\n\
         \tSufficient replicas exist for the pool to continue functioning in a\n\
         \tdegraded state.",
        "Online the device using 'zpool online' or replace the device with\n\t'zpool replace'.",
        None,
    ),
    (
        "REMOVED",
        "One or more devices has been removed by the administrator.\n\
         \tSufficient replicas exist for the pool to continue functioning in a\n\
         \tdegraded state.",
        "Online the device using 'zpool online' or replace the device with\n\t'zpool replace'.",
        None,
    ),
];

/// The problem of a pool and the next step, if it needs attention.
pub(super) fn advice(pool: &PoolStatus) -> Option<Advice> {
    if let (Some(why), true) = (&pool.error, pool.is_unavailable()) {
        let action = "Connect the drives: the pool is imported as soon as they are there. Or import\n\tit from \
                      other places, or forget it with 'zpool export'.";
        return Some(Advice::new(format!("The pool cannot be imported: {why}"), action));
    }
    if let Some(why) = &pool.error {
        let what = format!("One or more devices are faulted in response to IO failures.\n\t{why}");
        let action = "Make sure the affected devices are connected, then run 'zpool clear'.";
        return Some(Advice::with_id(what, action, "ZFS-8000-HC"));
    }
    if pool
        .scan
        .as_ref()
        .is_some_and(|scan| scan.is_scanning() && scan.scan == engine::pool::ScanKind::Resilver)
    {
        let what = "One or more devices is currently being resilvered.  The pool will\n\
                    \tcontinue to function, possibly in a degraded state.";
        return Some(Advice::new(what, "Wait for the resilver to complete."));
    }
    if !pool.data_errors.is_empty() {
        let what = "One or more devices has experienced an error resulting in data\n\
                    \tcorruption.  Applications may be affected.";
        let action = "Restore the file in question if possible.  Otherwise restore the\n\
                      \tentire pool from backup.";
        return Some(Advice::with_id(what, action, "ZFS-8000-8A"));
    }
    let is_in = |state: &str| pool.vdevs.iter().any(|vdev| has_state(vdev, state));
    let degraded = DEGRADED.iter().find(|(state, ..)| is_in(state));
    if let Some((_, status, action, message_id)) = degraded {
        return Some(Advice { message_id: *message_id, ..Advice::new(*status, action) });
    }
    if pool.needs_resilver {
        let what = "One or more devices lack recent writes, as they failed meanwhile.";
        return Some(Advice::new(what, "Run 'zpool clear', which resilvers them."));
    }
    let lost = unavailable_caches(pool);
    if lost > 0 {
        let what = format!("{lost} of the cache drives cannot be used; nothing is lost by that");
        let action = "bring it back and run `zpool clear`, or remove it with `zpool remove`.";
        return Some(Advice::new(what, action));
    }
    if let (Some(slow), true) = (pool.slow_drives.first(), is_healthy(pool)) {
        return Some(Advice::new(describe_slow_drive(slow), SLOW_ACTION));
    }
    if is_healthy(pool) {
        return upgrade_advice(pool);
    }
    let what = "One or more devices has experienced an unrecoverable error.  An\n\
                \tattempt was made to correct the error.  Applications are unaffected.";
    let action = "Determine if the device needs to be replaced, and clear the errors\n\
                  \tusing 'zpool clear' or replace the device with 'zpool replace'.";
    Some(Advice::with_id(what, action, "ZFS-8000-9P"))
}

/// The lines about a healthy pool that an upgrade would change.
fn upgrade_advice(pool: &PoolStatus) -> Option<Advice> {
    if pool.version > 0 && pool.version < FEATURES_VERSION {
        let what = "The pool is formatted using a legacy on-disk format.  The pool can\n\
                    \tstill be used, but some features are unavailable.";
        let action = "Upgrade the pool using 'zpool upgrade'.  Once this is done, the\n\
                      \tpool will no longer be accessible on software that does not support\n\
                      \tfeature flags.";
        return Some(Advice::new(what, action));
    }
    pool.has_disabled_features.then(|| {
        let what = "Some supported and requested features are not enabled on the pool.\n\
                    \tThe pool can still be used, but some features are unavailable.";
        let action = "Enable all features using 'zpool upgrade'. Once this is done,\n\
                      \tthe pool may no longer be accessible by software that does not support\n\
                      \tthe features. See zpool-features(7) for details.";
        Advice::new(what, action)
    })
}

/// The first version that counts features.
const FEATURES_VERSION: u64 = 5000;

/// The action for a drive that is far slower than its siblings.
const SLOW_ACTION: &str = "See 'zpool iostat -vl' and 'poolhouse drives'; check its cable and port, or\n\
                           \treplace it with 'zpool replace'.";

/// The meaning of a drive that is far slower than its siblings.
fn describe_slow_drive(slow: &SlowDrive) -> String {
    let time =
        |microseconds: u64| format!("{}.{} ms", microseconds / 1000, microseconds % 1000 / 100);
    format!(
        "One device is slow: {} of {} take {} of late, those of its siblings {}.\n\tThe pool is as \
         fast as its slowest device. The data is safe.",
        slow.requests,
        slow.device,
        time(slow.microseconds),
        time(slow.sibling_microseconds)
    )
}

/// Whether a vdev, or one below it, is in that state.
fn has_state(vdev: &VdevStatus, state: &str) -> bool {
    vdev.state == state || vdev.children.iter().any(|child| has_state(child, state))
}
