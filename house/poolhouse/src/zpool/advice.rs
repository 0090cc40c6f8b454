//! The `status:` and `action:` lines of `zpool status`, in the words of zpool(8) where it has them:
//! users and scripts search for these.

use engine::pool::{PoolStatus, SlowDrive, VdevStatus};

use super::status::{is_healthy, unavailable_caches};

/// The lines about a pool with devices that are not ONLINE, by the state of such a device. The
/// first match is shown.
const DEGRADED: [(&str, &str, &str); 4] = [
    (
        "FAULTED",
        "One or more devices are faulted in response to persistent errors.\n\
         \tSufficient replicas exist for the pool to continue functioning in a\n\
         \tdegraded state.",
        "Replace the faulted device, or use 'zpool clear' to mark the device\n\trepaired.",
    ),
    (
        "UNAVAIL",
        "One or more devices could not be opened.  Sufficient replicas exist for\n\
         \tthe pool to continue functioning in a degraded state.",
        "Attach the missing device and online it using 'zpool online'.",
    ),
    (
        "OFFLINE",
        "One or more devices has been taken offline by the administrator.\n\
         \tSufficient replicas exist for the pool to continue functioning in a\n\
         \tdegraded state.",
        "Online the device using 'zpool online' or replace the device with\n\t'zpool replace'.",
    ),
    (
        "REMOVED",
        "One or more devices has been removed by the administrator.\n\
         \tSufficient replicas exist for the pool to continue functioning in a\n\
         \tdegraded state.",
        "Online the device using 'zpool online' or replace the device with\n\t'zpool replace'.",
    ),
];

/// The problem, and the action.
pub(super) fn status_and_action(pool: &PoolStatus) -> Option<(String, &'static str)> {
    if let (Some(why), true) = (&pool.error, pool.is_unavailable()) {
        let action = "bring the drives back: it is imported as soon as they are there. Or import \
                      it from elsewhere, or have it forgotten with `zpool export`.";
        return Some((format!("it was imported here and cannot be imported again: {why}"), action));
    }
    if let Some(why) = &pool.error {
        let what = format!("One or more devices are faulted in response to IO failures.\n\t{why}");
        let action = "Make sure the affected devices are connected, then run 'zpool clear'.";
        return Some((what, action));
    }
    if pool.scan.as_ref().is_some_and(|scan| {
        scan.state == "scanning" && scan.scan == engine::pool::ScanKind::Resilver
    }) {
        let what = "One or more devices is currently being resilvered.  The pool will\n\
                    \tcontinue to function, possibly in a degraded state.";
        return Some((what.to_owned(), "Wait for the resilver to complete."));
    }
    let is_in = |state: &str| pool.vdevs.iter().any(|vdev| has_state(vdev, state));
    let degraded = DEGRADED.iter().find(|(state, ..)| is_in(state));
    if let Some((_, what, action)) = degraded {
        return Some(((*what).to_owned(), action));
    }
    if pool.needs_resilver {
        let what = "drives lack some of what the others have, as they failed when it was written";
        return Some((what.to_owned(), "run `zpool clear`, which has them resilvered."));
    }
    let lost = unavailable_caches(pool);
    if lost > 0 {
        let what = format!("{lost} of the cache drives cannot be used; nothing is lost by that");
        let action = "bring it back and run `zpool clear`, or remove it with `zpool remove`.";
        return Some((what, action));
    }
    if let (Some(slow), true) = (pool.slow_drives.first(), is_healthy(pool)) {
        return Some((describe_slow_drive(slow), SLOW_ACTION));
    }
    (!is_healthy(pool)).then(|| {
        let what = "One or more devices has experienced an unrecoverable error.  An\n\
                    \tattempt was made to correct the error.  Applications are unaffected.";
        let action = "Determine if the device needs to be replaced, and clear the errors\n\
                      \tusing 'zpool clear' or replace the device with 'zpool replace'.";
        (what.to_owned(), action)
    })
}

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
