//! The daemon's services. A service is one file in this folder and one line in [`SERVICES`].
//!
//! A service adds the calls that it answers, starts and stops with the daemon, and follows the changes of
//! pools and datasets.

mod acme;
mod alerts;
mod announce;
mod backups;
mod bays;
mod benchmarks;
mod config;
mod daemon;
mod datasets;
mod events;
mod fans;
mod files;
mod health;
mod iscsi;
mod jobs;
mod keys;
mod maintenance;
mod mounts;
mod nbd;
mod nfs;
mod nvme;
mod policies;
mod pools;
mod replica_tests;
mod replicas;
mod rewrites;
mod shares;
mod smb;
mod threaded;
mod time_machine;
mod ups;
mod web;
mod zvol;

use std::sync::Arc;

use ::acme::AcmeConfig;
use ::alerts::AlertsConfig;
use ::fans::FansConfig;
use ::health::BayMap;
use ::ups::UpsConfig;
use api::Event;
use serde::de::DeserializeOwned;

pub(crate) use acme::SECTION as ACME_SECTION;
pub(crate) use replica_tests::untested_replicas;
pub(crate) use replicas::overdue_replicas;
pub(crate) use web::WebConfig;

use crate::Result;
use crate::config::{Config, Section, check_section};
use crate::context::Context;
use crate::drives::{HealthConfig, PowerConfig};
use crate::events::ChangeOptions;
use crate::hours::HoursConfig;
use crate::policy::PolicyConfig;
use crate::replica::ReplicaConfig;
use crate::repositories::{self, RepositoryConfig};
use crate::router::Router;
use crate::shares::{ShareServer, entry};
use crate::time_machine::TimeMachineConfig;

/// A part of the daemon.
pub(crate) trait Service: Send + Sync {
    /// The name in the log.
    fn name(&self) -> &'static str;

    /// Adds the calls that it answers.
    fn calls(self: Arc<Self>, router: &mut Router);

    /// Starts it, before the daemon answers the first call. The daemon runs on without a service that fails.
    fn start(&self, _context: &Arc<Context>) -> Result<()> {
        Ok(())
    }

    /// Takes over a configuration that changed while it runs. What is the same in it stays undisturbed.
    fn configure(&self, _config: &Config) -> Result<()> {
        Ok(())
    }

    /// Lets go of what coming changes of one pool need, or refuses them. The service that starts last is asked first.
    fn prepare(&self, _coming: &[Event], _options: &ChangeOptions) -> Result<()> {
        Ok(())
    }

    /// Undoes [`Self::prepare`], as the changes failed.
    fn abandon(&self, _coming: &[Event]) {}

    /// Follows what happened. Returns a sentence for each thing that it could not do. It runs on the thread
    /// of the change, and must not change datasets itself.
    fn on_events(&self, _events: &[Event], _options: &ChangeOptions) -> Vec<String> {
        Vec::new()
    }

    /// The server of a protocol that it has. The share service gives it its shares.
    fn share_server(&self) -> Option<&dyn ShareServer> {
        None
    }

    /// Ends it: the daemon ends.
    fn stop(&self) {}
}

/// A service that the daemon has.
struct Registration {
    /// Its section of the configuration.
    section: Option<Section>,
    new: fn(&Arc<Context>) -> Arc<dyn Service>,
}

impl Registration {
    const fn new(new: fn(&Arc<Context>) -> Arc<dyn Service>) -> Self {
        Self { section: None, new }
    }

    /// A service with the section `name`, whose fields are those of `T`.
    const fn with_section<T: DeserializeOwned>(
        name: &'static str,
        new: fn(&Arc<Context>) -> Arc<dyn Service>,
    ) -> Self {
        Self { section: Some(Section { name, check: check_section::<T> }), new }
    }
}

/// The services, in the order in which they start and follow changes.
const SERVICES: &[Registration] = &[
    Registration::new(|context| Arc::new(daemon::DaemonService::new(context))),
    Registration::with_section::<mounts::MountsConfig>(mounts::SECTION, |context| {
        Arc::new(mounts::MountService::new(context))
    }),
    Registration::new(|context| Arc::new(pools::PoolService::new(context))),
    Registration::new(|context| Arc::new(datasets::DatasetService::new(context))),
    Registration::with_section::<Vec<PolicyConfig>>("policy", |context| {
        Arc::new(policies::PolicyService::new(context))
    }),
    Registration::with_section::<Vec<ReplicaConfig>>("replica", |context| {
        Arc::new(replicas::ReplicaService::new(context))
    }),
    Registration::new(|context| Arc::new(keys::KeyService::new(context))),
    Registration::new(|context| Arc::new(maintenance::MaintenanceService::new(context))),
    Registration::new(|context| Arc::new(backups::BackupService::new(context))),
    Registration::with_section::<Vec<RepositoryConfig>>(repositories::SECTION, |context| {
        Arc::new(files::FileService::new(context))
    }),
    Registration::with_section::<benchmarks::BenchConfig>(benchmarks::SECTION, |context| {
        Arc::new(benchmarks::BenchmarkService::new(context))
    }),
    Registration::new(|context| Arc::new(rewrites::RewriteService::new(context))),
    Registration::new(|context| Arc::new(jobs::JobService::new(context))),
    Registration::new(|context| Arc::new(events::EventService::new(context))),
    Registration::new(|context| Arc::new(config::ConfigService::new(context))),
    Registration::with_section::<HealthConfig>("health", |context| {
        Arc::new(health::HealthService::new(context))
    }),
    Registration::with_section::<Vec<PowerConfig>>("power", |context| {
        Arc::new(threaded::ThreadedService::power(context))
    }),
    Registration::with_section::<HoursConfig>("hours", |context| {
        Arc::new(threaded::ThreadedService::hours(context))
    }),
    Registration::with_section::<BayMap>("bays", |context| {
        Arc::new(bays::BayService::new(context))
    }),
    Registration::with_section::<FansConfig>("fans", |context| {
        Arc::new(fans::FanService::new(context))
    }),
    Registration::with_section::<UpsConfig>("ups", |context| {
        Arc::new(ups::UpsService::new(context))
    }),
    Registration::with_section::<AlertsConfig>("alerts", |context| {
        Arc::new(alerts::AlertService::new(context))
    }),
    Registration::with_section::<AcmeConfig>(acme::SECTION, |context| {
        Arc::new(acme::AcmeService::new(context))
    }),
    Registration::with_section::<WebConfig>("web", |context| {
        Arc::new(web::WebService::new(context))
    }),
    Registration::with_section::<nbd::NbdConfig>("nbd", |context| {
        Arc::new(nbd::NbdService::new(context))
    }),
    Registration::with_section::<smb::SmbConfig>("smb", |context| {
        Arc::new(smb::SmbService::new(context))
    }),
    Registration::with_section::<nfs::NfsConfig>("nfs", |context| {
        Arc::new(nfs::NfsService::new(context))
    }),
    Registration::with_section::<iscsi::IscsiConfig>("iscsi", |context| {
        Arc::new(iscsi::IscsiService::new(context))
    }),
    Registration::with_section::<nvme::NvmeConfig>("nvme", |context| {
        Arc::new(nvme::NvmeService::new(context))
    }),
    Registration::with_section::<TimeMachineConfig>(time_machine::SECTION, |context| {
        Arc::new(time_machine::TimeMachineService::new(context))
    }),
    Registration::with_section::<announce::AnnounceConfig>("announce", |context| {
        Arc::new(announce::AnnounceService::new(context))
    }),
    Registration::with_section::<zvol::ZvolConfig>("zvol", |context| {
        Arc::new(zvol::ZvolService::new(context))
    }),
    // after the services of all protocols
    Registration {
        section: Some(Section { name: entry::SECTION, check: entry::check }),
        new: |context| Arc::new(shares::ShareService::new(context)),
    },
];

/// All services of a daemon.
pub(crate) fn all(context: &Arc<Context>) -> Vec<Arc<dyn Service>> {
    SERVICES.iter().map(|service| (service.new)(context)).collect()
}

/// The sections of the configuration.
pub(crate) fn sections() -> impl Iterator<Item = &'static Section> {
    SERVICES.iter().filter_map(|service| service.section.as_ref())
}
