//! The layout that `zpool create -n` and `zpool add -n` show: the present vdevs of a pool, then the new ones,
//! each class below its own head.

use api::{VdevLayout, VdevRole};
use engine::pool::{PoolStatus, VdevStatus};

use super::vdevs::{VdevSpec, draid};
use crate::table::escape_control;

/// The classes in the order of zpool(8), and their heads. The head of data is the pool's name.
const CLASSES: [(VdevRole, &str); 6] = [
    (VdevRole::Data, ""),
    (VdevRole::Dedup, "dedup"),
    (VdevRole::Special, "special"),
    (VdevRole::Log, "logs"),
    (VdevRole::Cache, "cache"),
    (VdevRole::Spare, "spares"),
];

/// The layout of a new pool.
pub(super) fn format_new(pool: &str, vdevs: &[VdevSpec]) -> String {
    let title = format!("would create '{pool}' with the following layout:");
    format_classes(&title, pool, vdevs, |_| Vec::new())
}

/// The layout of a pool with vdevs that are added. `name` gives the name of a present vdev.
pub(super) fn format_added(
    pool: &PoolStatus,
    vdevs: &[VdevSpec],
    name: &dyn Fn(&VdevStatus) -> String,
) -> String {
    let title = format!("would update '{}' to the following configuration:", pool.name);
    format_classes(&title, &pool.name, vdevs, |role| {
        let mut lines = Vec::new();
        for vdev in present_vdevs(pool, role) {
            add_present(&mut lines, vdev, (role, 1), name);
        }
        lines
    })
}

fn format_classes(
    title: &str,
    pool: &str,
    vdevs: &[VdevSpec],
    present: impl Fn(VdevRole) -> Vec<String>,
) -> String {
    let mut lines = vec![title.to_owned(), String::new()];
    for (role, head) in CLASSES {
        let mut rows = present(role);
        for vdev in vdevs.iter().filter(|(_, of, _)| *of == role) {
            add_new(&mut rows, vdev);
        }
        if role == VdevRole::Data || !rows.is_empty() {
            let head = if role == VdevRole::Data { pool } else { head };
            lines.push(format!("\t{}", escape_control(head)));
        }
        lines.extend(rows);
    }
    lines.join("\n") + "\n"
}

/// The vdevs of a class. Removed ones are left out.
fn present_vdevs(pool: &PoolStatus, role: VdevRole) -> Vec<&VdevStatus> {
    let class = match role {
        VdevRole::Data => None,
        VdevRole::Dedup => Some("dedup"),
        VdevRole::Special => Some("special"),
        VdevRole::Log => Some("log"),
        VdevRole::Cache => return pool.caches.iter().collect(),
        VdevRole::Spare => return pool.spares.iter().collect(),
    };
    let own = pool.vdevs.iter().filter(|vdev| vdev.class.as_deref() == class);
    own.filter(|vdev| !vdev.name.starts_with("indirect-")).collect()
}

fn add_present(
    lines: &mut Vec<String>,
    vdev: &VdevStatus,
    (role, depth): (VdevRole, usize),
    name: &dyn Fn(&VdevStatus) -> String,
) {
    let shown = name(vdev);
    // zpool(8) numbers the vdevs for data only
    let shown = match shown.rsplit_once('-') {
        Some((kind, _)) if role != VdevRole::Data && !vdev.children.is_empty() => kind.to_owned(),
        _ => shown,
    };
    lines.push(format!("\t{}{}", "  ".repeat(depth), escape_control(&shown)));
    for child in &vdev.children {
        add_present(lines, child, (role, depth + 1), name);
    }
}

fn add_new(lines: &mut Vec<String>, (layout, _, drives): &VdevSpec) {
    let group = match layout {
        VdevLayout::Single => None,
        VdevLayout::Mirror => Some("mirror".to_owned()),
        VdevLayout::Raidz(parity) => Some(format!("raidz{parity}")),
        VdevLayout::Draid { .. } => Some(draid::format_layout(*layout, drives.len())),
    };
    let indent = if group.is_some() { "    " } else { "  " };
    lines.extend(group.map(|group| format!("\t  {group}")));
    let drives = drives.iter().map(|drive| drive.display().to_string());
    lines.extend(drives.map(|drive| format!("\t{indent}{}", escape_control(&drive))));
}

#[cfg(test)]
mod tests {
    use super::super::vdevs::parse_vdevs;
    use super::format_new;

    #[test]
    fn classes_of_a_layout_are_sorted() {
        let words = "mirror /a /b spare /c log mirror /d /e cache /f special /g";
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let text = format_new("tank", &parse_vdevs(&words).unwrap());
        assert_eq!(
            text,
            "would create 'tank' with the following layout:\n\n\ttank\n\t  mirror\n\t    /a\n\t    /b\n\
             \tspecial\n\t  /g\n\tlogs\n\t  mirror\n\t    /d\n\t    /e\n\tcache\n\t  /f\n\tspares\n\t  /c\n"
        );
    }
}
