//! The context that the daemon gives to each service.

use std::sync::{Arc, OnceLock};

use engine::pool::Environment;
use lun::UnitTable;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::acme_store::AcmeStore;
use crate::config::ConfigStore;
use crate::dataset_cache::DatasetCache;
use crate::drives::{DriveMonitor, PowerMonitor};
use crate::events::Events;
use crate::fans::FanMonitor;
use crate::hours::HoursMonitor;
use crate::jobs::Jobs;
use crate::log::Log;
use crate::overview::OverviewCache;
use crate::pools::Pools;
use crate::replica::ReplicaStates;
use crate::reservation_files::unit_table;
use crate::ups::UpsMonitor;
use crate::web_tls::WebTls;
use crate::{Result, StateDir};

/// The parts of the daemon that all services use.
pub(crate) struct Context {
    pub(crate) state_dir: StateDir,
    pub(crate) pools: Arc<Pools>,
    /// The volumes that block protocols serve.
    pub(crate) units: Arc<UnitTable>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) events: Arc<Events>,
    pub(crate) config: ConfigStore,
    pub(crate) drives: DriveMonitor,
    pub(crate) power: PowerMonitor,
    pub(crate) hours: HoursMonitor,
    pub(crate) ups: UpsMonitor,
    pub(crate) fans: FanMonitor,
    pub(crate) overview: OverviewCache,
    /// The space of datasets, for metrics.
    pub(crate) datasets: DatasetCache,
    pub(crate) log: Arc<Log>,
    /// The certificate of a public CA.
    pub(crate) acme: AcmeStore,
    /// The certificate of the listeners that encrypt.
    pub(crate) web_tls: Arc<WebTls>,
    /// The newest copies that the replicas hold.
    pub(crate) replicas: ReplicaStates,
    /// Locked while a configured replica is brought up to date.
    pub(crate) replica_lock: Mutex<()>,
    /// Locked while the snapshot policies run.
    pub(crate) policy_lock: Mutex<()>,
    /// The calls of all services, once they are known.
    pub(crate) routes: OnceLock<axum::Router>,
    /// Ends the daemon when it is notified.
    pub(crate) stop: Notify,
}

impl Context {
    /// The context of a daemon that has no pools yet.
    pub(crate) fn new(
        state_dir: StateDir,
        log: Arc<Log>,
        environment: Environment,
    ) -> Result<Arc<Self>> {
        let events = Arc::new(Events::load(&state_dir, &log));
        let jobs = Arc::new(Jobs::load(&state_dir, Arc::clone(&events), Arc::clone(&log))?);
        let pools = Pools::new(
            state_dir.clone(),
            Arc::clone(&log),
            environment,
            Arc::clone(&events),
            Arc::clone(&jobs),
        );
        let config = ConfigStore::load(state_dir.config());
        let replicas = ReplicaStates::load(&state_dir, Arc::clone(&log))?;
        let (pools, routes, stop) = (Arc::new(pools), OnceLock::new(), Notify::new());
        let drives = DriveMonitor::new(&state_dir, Arc::clone(&log));
        let ups = UpsMonitor::new(&state_dir, Arc::clone(&log));
        let fans = FanMonitor::new(Arc::clone(&log));
        let overview = OverviewCache::default();
        let web_tls = Arc::new(WebTls::new(&state_dir, &log));
        let acme = AcmeStore::load(&state_dir, &log);
        let units = Arc::new(unit_table(&state_dir, &log));
        Ok(Arc::new(Self {
            state_dir,
            pools,
            units,
            jobs,
            events,
            config,
            drives,
            power: PowerMonitor::default(),
            hours: HoursMonitor::default(),
            ups,
            fans,
            overview,
            datasets: DatasetCache::default(),
            log,
            acme,
            web_tls,
            replicas,
            replica_lock: Mutex::default(),
            policy_lock: Mutex::default(),
            routes,
            stop,
        }))
    }

    /// Answers calls that wait for events.
    pub(crate) fn end_long_polls(&self) {
        self.events.close();
    }
}
