//! Prometheus metrics, made from the overview, so that no scrape waits for a drive.
//!
//! ```text
//! GET /metrics     text format 0.0.4
//! zfs_pool_*, zfs_dataset_* as zfs_exporter names them
//! node_zfs_zpool_state      as node_exporter names it
//! smartctl_device_*         as smartctl_exporter names them
//! network_ups_tools_*       as nut_exporter names them
//! poolhouse_*               facts that those programs do not have
//! ```
//!
//! A client shows the token of the API, or asks from this machine: see [`is_local`].

mod text;

use std::net::IpAddr;
use std::sync::Arc;

use ::ups::PowerSource;
use alerts::Severity;
use api::{Drive, FanStatus, JobState, Overview, PoolReport, UpsStatus, pool_of};
use axum::http::{HeaderMap, header};
use engine::dataset::Dataset;
use engine::pool::{PoolStatus, VdevStatus};
use health::Grade;

use text::Metrics;

/// The values of `zfs_pool_health`, by zfs_exporter's numbers.
const HEALTH: [&str; 7] =
    ["ONLINE", "DEGRADED", "FAULTED", "OFFLINE", "UNAVAIL", "REMOVED", "SUSPENDED"];
/// Properties in bytes, and zfs_exporter's names for them.
const DATASET_METRICS: [(&str, &str); 9] = [
    ("available", "zfs_dataset_available_bytes"),
    ("logicalused", "zfs_dataset_logical_used_bytes"),
    ("quota", "zfs_dataset_quota_bytes"),
    ("referenced", "zfs_dataset_referenced_bytes"),
    ("used", "zfs_dataset_used_bytes"),
    ("usedbydataset", "zfs_dataset_used_by_dataset_bytes"),
    ("usedbysnapshots", "zfs_dataset_used_by_snapshot_bytes"),
    ("volsize", "zfs_dataset_volume_size_bytes"),
    ("written", "zfs_dataset_written_bytes"),
];
/// The headers of a proxy: the request comes from another machine then.
const PROXY_HEADERS: [&str; 3] = ["forwarded", "x-forwarded-for", "x-real-ip"];

/// The media type of the text format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether a request was made on this machine, by a program that names it as itself. A page in a browser that reaches
/// this port by a name of its own is refused, as is a proxy.
pub(crate) fn is_local(client: IpAddr, headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("");
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host.split(':').next(),
    };
    let name = name.unwrap_or("");
    let is_own_name =
        name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    client.is_loopback()
        && is_own_name
        && !PROXY_HEADERS.iter().any(|name| headers.contains_key(*name))
}

/// The metrics of an overview, and of the file systems and volumes of each pool.
pub(crate) fn render(overview: &Overview, datasets: &[Arc<Vec<Dataset>>]) -> String {
    let mut metrics = Metrics::default();
    for dataset in datasets.iter().flat_map(|list| list.iter()) {
        add_dataset(&mut metrics, dataset);
    }
    metrics.add("poolhouse_overview_timestamp_seconds", &[], overview.time);
    for pool in &overview.pools {
        add_pool(&mut metrics, pool);
    }
    for drive in &overview.drives.drives {
        add_drive(&mut metrics, drive);
    }
    if let Some(ups) = &overview.ups {
        add_ups(&mut metrics, ups);
    }
    if let Some(fans) = &overview.fans {
        add_fans(&mut metrics, fans);
    }
    for severity in [Severity::Notice, Severity::Warning, Severity::Critical] {
        let open = overview.alerts.iter().filter(|alert| alert.severity == severity).count();
        metrics.add("poolhouse_alerts_open", &[("severity", severity.as_str())], open);
    }
    let running = overview.jobs.iter().filter(|job| job.state == JobState::Running).count();
    metrics.add("poolhouse_jobs_running", &[], running);
    metrics.into_text()
}

fn add_pool(metrics: &mut Metrics, report: &PoolReport) {
    let pool: &PoolStatus = &report.status;
    let labels = [("pool", pool.name.as_str())];
    let health = HEALTH.iter().position(|state| *state == pool.state);
    // a state that zfs_exporter does not know gives no health metric
    metrics.add("zfs_pool_health", &labels, health.unwrap_or(4));
    for state in HEALTH {
        let labels = [("state", &*state.to_lowercase()), ("zpool", pool.name.as_str())];
        metrics.add("node_zfs_zpool_state", &labels, u8::from(state == pool.state));
    }
    if pool.size > 0 {
        metrics.add("zfs_pool_size_bytes", &labels, pool.size);
        metrics.add("zfs_pool_allocated_bytes", &labels, pool.allocated);
        metrics.add("zfs_pool_free_bytes", &labels, pool.size - pool.allocated.min(pool.size));
        metrics.add_hundredths("zfs_pool_deduplication_ratio", &labels, pool.dedup_ratio);
    }
    if let Some(percent) = pool.fragmentation {
        metrics.add_hundredths("zfs_pool_fragmentation_ratio", &labels, percent);
    }
    if let Some(scan) = &pool.scan {
        metrics.add("poolhouse_pool_scan_errors", &labels, scan.errors);
        metrics.add("poolhouse_pool_scan_running", &labels, u8::from(scan.state == "scanning"));
    }
    for vdev in pool.vdevs.iter().chain(&pool.caches).chain(&pool.spares) {
        add_devices(metrics, &pool.name, vdev);
    }
}

fn add_dataset(metrics: &mut Metrics, dataset: &Dataset) {
    let labels = [
        ("name", dataset.name.as_str()),
        ("pool", pool_of(&dataset.name)),
        ("type", dataset.kind.as_str()),
    ];
    for (property, name) in DATASET_METRICS {
        let bytes = match dataset.property_value(property) {
            Some("none") => Some(0),
            value => value.and_then(|value| value.parse::<u64>().ok()),
        };
        // a file system has no size of a volume
        if let Some(bytes) = bytes {
            metrics.add(name, &labels, bytes);
        }
    }
}

fn add_devices(metrics: &mut Metrics, pool: &str, vdev: &VdevStatus) {
    vdev.children.iter().for_each(|child| add_devices(metrics, pool, child));
    if !vdev.children.is_empty() {
        return;
    }
    let counts = [
        ("read", vdev.read_errors),
        ("write", vdev.write_errors),
        ("checksum", vdev.checksum_errors),
    ];
    for (kind, count) in counts {
        let labels = [("pool", pool), ("device", vdev.name.as_str()), ("type", kind)];
        metrics.add("poolhouse_device_errors_total", &labels, count);
    }
}

fn add_drive(metrics: &mut Metrics, drive: &Drive) {
    let serial = drive.serial.as_deref().unwrap_or("");
    let model = drive.model.as_deref().unwrap_or("");
    let bay = drive.bay.as_deref().unwrap_or("");
    let device = drive.name.as_str();
    let labels = [("device", device), ("model_name", model), ("serial_number", serial)];
    metrics.add("smartctl_device", &labels, 1);
    metrics.add("smartctl_device_capacity_bytes", &[("device", device)], drive.size);
    if let Some(celsius) = drive.temperature {
        let labels = [("device", device), ("temperature_type", "current")];
        metrics.add("smartctl_device_temperature", &labels, celsius);
    }
    if let Some(hours) = drive.power_on_hours {
        let seconds = hours.saturating_mul(3600);
        metrics.add("smartctl_device_power_on_seconds", &[("device", device)], seconds);
    }
    let labels = [("device", device), ("serial_number", serial), ("bay", bay)];
    metrics.add("poolhouse_drive_asleep", &labels, u8::from(drive.is_asleep));
    for grade in [Grade::Ok, Grade::Watch, Grade::Failing, Grade::Unknown] {
        let labels = [("device", device), ("serial_number", serial), ("verdict", grade.as_str())];
        metrics.add("poolhouse_drive_verdict", &labels, u8::from(drive.verdict.grade == grade));
    }
}

fn add_ups(metrics: &mut Metrics, ups: &UpsStatus) {
    let labels = [("ups", ups.server.as_str())];
    metrics.add("poolhouse_ups_reachable", &labels, u8::from(ups.error.is_none()));
    metrics.add("poolhouse_ups_stage", &labels, ups.stage as u8);
    let Some(reading) = ups.reading.as_ref().filter(|_| ups.error.is_none()) else { return };
    let on_battery = u8::from(reading.source == PowerSource::Battery);
    for (flag, value) in [
        ("OL", 1 - on_battery),
        ("OB", on_battery),
        ("LB", u8::from(reading.is_battery_low)),
        ("RB", u8::from(reading.needs_battery)),
        ("FSD", u8::from(reading.is_forced_shutdown)),
    ] {
        let labels = [("ups", ups.server.as_str()), ("flag", flag)];
        metrics.add("network_ups_tools_ups_status", &labels, value);
    }
    for (name, value) in [
        ("network_ups_tools_battery_charge", reading.charge),
        ("network_ups_tools_battery_runtime", reading.runtime),
        ("network_ups_tools_ups_load", reading.load),
    ] {
        if let Some(value) = value {
            metrics.add(name, &labels, value);
        }
    }
}

fn add_fans(metrics: &mut Metrics, status: &FanStatus) {
    metrics.add("poolhouse_fan_faults", &[], status.faults.len());
    for fan in &status.fans {
        let labels = [("fan", fan.name.as_str())];
        if let Some(percent) = fan.percent {
            metrics.add_hundredths("poolhouse_fan_speed_ratio", &labels, percent);
        }
        if let Some(rpm) = fan.rpm {
            metrics.add("poolhouse_fan_rpm", &labels, rpm);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use api::{Drive, Overview, PoolReport};
    use axum::http::{HeaderMap, HeaderValue, header};
    use engine::pool::PoolStatus;

    use super::{is_local, render};

    #[test]
    fn overview_becomes_metrics() {
        let mut status = PoolStatus::unavailable("tank", 1, "why");
        (status.state, status.size, status.allocated) = ("DEGRADED".to_owned(), 100, 30);
        status.fragmentation = Some(7);
        let name = "sd\"a\\\n".to_owned();
        let mut overview = Overview::default();
        overview.pools.push(PoolReport { status, altroot: None });
        overview.drives.drives.push(Drive { name, temperature: Some(-3), ..Drive::default() });
        let text = render(&overview, &[]);
        for line in [
            "# TYPE zfs_pool_health gauge",
            "zfs_pool_health{pool=\"tank\"} 1",
            "node_zfs_zpool_state{state=\"degraded\",zpool=\"tank\"} 1",
            "node_zfs_zpool_state{state=\"online\",zpool=\"tank\"} 0",
            "zfs_pool_free_bytes{pool=\"tank\"} 70",
            "zfs_pool_fragmentation_ratio{pool=\"tank\"} 0.07",
            "smartctl_device_temperature{device=\"sd\\\"a\\\\\\n\",temperature_type=\"current\"} -3",
            "poolhouse_alerts_open{severity=\"critical\"} 0",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        // the lines of one name follow its type
        let types: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
        let mut once = types.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), types.len());
    }

    #[test]
    fn only_programs_of_this_machine_are_local() {
        let check = |client: &str, host: &'static str, more: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static(host));
            if let Some(name) = more {
                headers.insert(name, HeaderValue::from_static("10.0.0.1"));
            }
            is_local(client.parse::<IpAddr>().unwrap(), &headers)
        };
        assert!(check("127.0.0.1", "localhost:8080", None));
        assert!(check("::1", "[::1]:8080", None));
        assert!(check("127.0.0.1", "127.0.0.1", None));
        assert!(!check("10.0.0.2", "localhost", None));
        assert!(!check("127.0.0.1", "evil.example.org:8080", None));
        assert!(!check("127.0.0.1", "localhost", Some("x-forwarded-for")));
        assert!(!is_local("127.0.0.1".parse().unwrap(), &HeaderMap::new()));
    }
}
