//! Pools that could be imported, as `zpool import` lists them.

use api::ImportablePool;
use engine::summary::{PoolSummary, Vdev, VdevState};

/// A pool that was found on devices.
pub(super) fn to_importable(pool: &PoolSummary) -> ImportablePool {
    let mut vdevs = Vec::new();
    let shown =
        || pool.vdevs.iter().filter(|vdev| !matches!(vdev.kind.as_str(), "hole" | "indirect"));
    shown().filter(|vdev| vdev.class.is_none()).for_each(|vdev| push_vdev(&mut vdevs, 1, vdev));
    for (class, head) in [("dedup", "dedup"), ("special", "special"), ("log", "logs")] {
        let of_class = || shown().filter(|vdev| vdev.class.as_deref() == Some(class));
        if of_class().next().is_some() {
            vdevs.push((0, head.to_owned(), String::new()));
        }
        of_class().for_each(|vdev| push_vdev(&mut vdevs, 1, vdev));
    }
    let healthy = shown().all(|vdev| vdev.state == VdevState::Online);
    let gone =
        |vdev: &&Vdev| vdev.state == VdevState::Missing && vdev.class.as_deref() != Some("log");
    let lost: Vec<&str> = pool.vdevs.iter().filter(gone).map(|vdev| vdev.name.as_str()).collect();
    let lost = (!lost.is_empty()).then(|| {
        let all = lost.join(", ");
        format!(
            "whole vdevs are missing ({all}): add their folder with -d, or copy the readable files with `poolhouse rescue`"
        )
    });
    let only_read = pool.read_only_reason.as_ref().map(|why| {
        format!("It cannot be changed, as {why}: import it with -o readonly=on to look at it.")
    });
    let health = match (pool.readable && lost.is_none(), healthy) {
        (false, _) => "UNAVAIL",
        (true, true) => "ONLINE",
        (true, false) => "DEGRADED",
    };
    ImportablePool {
        name: pool.name.clone(),
        guid: pool.guid,
        state: pool.state.clone(),
        host: pool.host.clone(),
        health: health.to_owned(),
        reason: pool.reason.clone().or(lost).or(only_read),
        vdevs,
    }
}

fn push_vdev(rows: &mut Vec<(usize, String, String)>, depth: usize, vdev: &Vdev) {
    let state = match vdev.state {
        VdevState::Online => "ONLINE",
        VdevState::Degraded | VdevState::Stale => "DEGRADED",
        VdevState::Missing | VdevState::Truncated => "UNAVAIL",
        VdevState::Removed => "REMOVED",
    };
    let name = vdev.found.as_ref().or(vdev.path.as_ref()).unwrap_or(&vdev.name);
    rows.push((depth, name.clone(), state.to_owned()));
    vdev.children.iter().for_each(|child| push_vdev(rows, depth + 1, child));
}
