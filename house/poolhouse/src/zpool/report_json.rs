//! Pools and their vdevs as JSON, with the keys of `zpool status -j` and `zpool list -j`.

use api::PoolReport;
use engine::pool::{ExpansionStatus, PoolStatus, ScanKind, ScanStatus, VdevStatus};
use serde_json::{Map, Value, json};

use super::advice::advice;
use super::status::error_count;
use crate::json::NumberStyle;
use crate::time;

/// The versions of pools with feature flags, and of file systems.
const POOL_VERSION: u64 = 5000;
const FILESYSTEM_VERSION: u64 = 5;

/// The entries that all commands give of a pool.
pub(super) fn pool_head(pool: &PoolStatus, style: NumberStyle) -> Map<String, Value> {
    let mut facts = Map::new();
    let mut add = |key: &str, value| facts.insert(key.to_owned(), value);
    add("name", json!(pool.name));
    add("state", json!(pool.state));
    add("pool_guid", style.count(pool.guid));
    add("txg", style.count(pool.txg));
    add("spa_version", style.count(POOL_VERSION));
    add("zpl_version", style.count(FILESYSTEM_VERSION));
    facts
}

/// A pool as `zpool status -j` has it, of the vdevs those that `is_shown` admits.
pub(super) fn pool_status(
    report: &PoolReport,
    style: NumberStyle,
    is_shown: &dyn Fn(&VdevStatus) -> bool,
) -> Value {
    let pool = &report.status;
    let mut facts = pool_head(pool, style);
    facts.extend(advice_facts(pool));
    if let Some(scan) = &pool.scan {
        facts.insert("scan_stats".to_owned(), scan_stats(scan, style));
    }
    if let Some(expansion) = &pool.expansion {
        facts.insert("raidz_expand_stats".to_owned(), expand_stats(expansion, style));
    }
    if let Some(checkpoint) = &pool.checkpoint {
        let stats = json!({
            "state": checkpoint.state.to_uppercase(),
            "start_time": time::format_date_in_zone(checkpoint.time),
            "space": style.space(checkpoint.bytes),
        });
        facts.insert("checkpoint_stats".to_owned(), stats);
    }
    let of_class = |class: Option<&str>| {
        let of = pool.vdevs.iter().filter(|vdev| vdev.class.as_deref() == class && is_shown(vdev));
        of.map(|vdev| {
            (vdev.name.clone(), vdev_facts(vdev, class.unwrap_or("normal"), true, style, is_shown))
        })
        .collect::<Map<_, _>>()
    };
    if !pool.is_unavailable() {
        facts.insert(
            "vdevs".to_owned(),
            json!({ &pool.name: root_facts(pool, &of_class(None), style) }),
        );
    }
    for (key, class) in [("dedup", "dedup"), ("special", "special"), ("logs", "log")] {
        let vdevs = of_class(Some(class));
        if !vdevs.is_empty() {
            facts.insert(key.to_owned(), Value::Object(vdevs));
        }
    }
    for (key, class, all) in
        [("l2cache", "l2cache", &pool.caches), ("spares", "spare", &pool.spares)]
    {
        let all = all.iter().filter(|vdev| is_shown(vdev));
        let all: Map<_, _> =
            all.map(|vdev| (vdev.name.clone(), auxiliary_facts(vdev, class, style))).collect();
        if !all.is_empty() {
            facts.insert(key.to_owned(), Value::Object(all));
        }
    }
    facts.insert("error_count".to_owned(), style.count(pool.data_errors.len() as u64));
    if !pool.data_errors.is_empty() {
        facts.insert("errlist".to_owned(), json!(pool.data_errors));
    }
    // the facts that zpool(8) does not have
    let own = json!({
        "cache_counts": pool.cache_counts,
        "dedup": pool.dedup,
        "dedup_ratio_percent": pool.dedup_ratio,
        "slow_drives": pool.slow_drives,
    });
    facts.insert("poolhouse".to_owned(), own);
    Value::Object(facts)
}

/// The problem of a pool and the next step, if it needs attention.
fn advice_facts(pool: &PoolStatus) -> Map<String, Value> {
    let mut facts = Map::new();
    if let Some(advice) = advice(pool) {
        let one_line = |text: &str| text.replace("\n\t", " ");
        facts.insert("status".to_owned(), json!(one_line(&advice.status)));
        facts.insert("action".to_owned(), json!(one_line(advice.action)));
        if let (Some(id), Some(page)) = (advice.message_id, advice.see()) {
            facts.insert("msgid".to_owned(), json!(id));
            facts.insert("moreinfo".to_owned(), json!(page));
        }
    }
    facts
}

fn expand_stats(expansion: &ExpansionStatus, style: NumberStyle) -> Value {
    json!({
        "name": expansion.vdev,
        "state": if expansion.state == "finished" { "FINISHED" } else { "SCANNING" },
        "start_time": time::format_date_in_zone(expansion.started),
        "end_time": time::format_date_in_zone(expansion.ended),
        "to_reflow": style.space(expansion.total),
        "reflowed": style.space(expansion.copied),
        "waiting_for_resilver": style.count(u64::from(expansion.pause.is_some())),
    })
}

fn root_facts(pool: &PoolStatus, vdevs: &Map<String, Value>, style: NumberStyle) -> Value {
    json!({
        "name": pool.name,
        "vdev_type": "root",
        "guid": style.count(pool.guid),
        "class": "normal",
        "state": pool.state,
        "alloc_space": style.space(pool.allocated),
        "total_space": style.space(pool.size),
        "def_space": style.space(pool.size),
        "read_errors": style.count(0),
        "write_errors": style.count(0),
        "checksum_errors": style.count(0),
        "vdevs": vdevs,
    })
}

/// The name, kind, number, place, class and state of a vdev.
pub(super) fn vdev_head(vdev: &VdevStatus, class: &str, style: NumberStyle) -> Map<String, Value> {
    let mut facts = Map::new();
    let mut add = |key: &str, value| facts.insert(key.to_owned(), value);
    add("name", json!(vdev.name));
    add("vdev_type", json!(vdev_type(vdev)));
    add("guid", style.count(vdev.guid));
    if vdev.children.is_empty() && vdev.name.starts_with('/') {
        add("path", json!(vdev.name));
    }
    add("class", json!(class));
    add("state", json!(vdev.state));
    facts
}

fn vdev_facts(
    vdev: &VdevStatus,
    class: &str,
    is_top: bool,
    style: NumberStyle,
    is_shown: &dyn Fn(&VdevStatus) -> bool,
) -> Value {
    let mut facts = vdev_head(vdev, class, style);
    let mut add = |key: &str, value| facts.insert(key.to_owned(), value);
    if is_top {
        add("alloc_space", style.space(vdev.allocated));
        add("total_space", style.space(vdev.size));
        add("def_space", style.space(vdev.size));
    }
    if vdev.children.is_empty() && vdev.physical_size > 0 {
        add("phys_space", style.space(vdev.physical_size));
    }
    add("read_errors", style.count(vdev.read_errors));
    add("write_errors", style.count(vdev.write_errors));
    add("checksum_errors", style.count(vdev.checksum_errors));
    if vdev.children.is_empty() {
        add("slow_ios", style.count(vdev.slow_requests));
        for (key, sweep) in [("init", &vdev.initialize), ("trim", &vdev.trim)] {
            if let Some(sweep) = sweep {
                add(&format!("{key}_state"), json!(sweep.state.to_uppercase()));
                add(&format!("{key}_percent"), style.count(sweep.percent));
                add(&format!("{key}_time"), json!(time::format_date_in_zone(sweep.time)));
            }
        }
    }
    if let Some(note) = &vdev.note {
        add("note", json!(note));
    }
    let children = vdev.children.iter().filter(|child| is_shown(child));
    let children: Map<_, _> = children
        .map(|child| (child.name.clone(), vdev_facts(child, class, false, style, is_shown)))
        .collect();
    if !children.is_empty() {
        add("vdevs", Value::Object(children));
    }
    Value::Object(facts)
}

/// A spare or cache drive.
fn auxiliary_facts(vdev: &VdevStatus, class: &str, style: NumberStyle) -> Value {
    let mut facts = vdev_head(vdev, class, style);
    if error_count(vdev) > 0 || class == "l2cache" {
        facts.insert("read_errors".to_owned(), style.count(vdev.read_errors));
        facts.insert("write_errors".to_owned(), style.count(vdev.write_errors));
        facts.insert("checksum_errors".to_owned(), style.count(vdev.checksum_errors));
    }
    Value::Object(facts)
}

/// The kind of a vdev in the words of zpool(8): a drive has a path, the others are named after their kind.
fn vdev_type(vdev: &VdevStatus) -> String {
    if vdev.children.is_empty() && vdev.name.starts_with('/') {
        let is_file = std::fs::metadata(&vdev.name).is_ok_and(|facts| facts.is_file());
        return if is_file { "file" } else { "disk" }.to_owned();
    }
    let kind = vdev.name.rsplit_once('-').map_or(vdev.name.as_str(), |(kind, _)| kind);
    match kind {
        kind if kind.starts_with("raidz") => "raidz".to_owned(),
        kind if kind.starts_with("draid") && vdev.children.is_empty() => "dspare".to_owned(),
        kind if kind.starts_with("draid") => "draid".to_owned(),
        kind => kind.to_owned(),
    }
}

fn scan_stats(scan: &ScanStatus, style: NumberStyle) -> Value {
    let function = if scan.scan == ScanKind::Scrub { "SCRUB" } else { "RESILVER" };
    let has_ended = scan.state != "scanning";
    json!({
        "function": function,
        "state": scan.state.to_uppercase(),
        "start_time": time::format_date_in_zone(scan.started),
        "end_time": if has_ended { time::format_date_in_zone(scan.ended) } else { "-".to_owned() },
        "to_examine": style.space(scan.total),
        "examined": style.space(scan.scanned),
        "processed": style.space(scan.written),
        "errors": style.count(scan.errors),
        "issued": style.space(scan.read),
    })
}
