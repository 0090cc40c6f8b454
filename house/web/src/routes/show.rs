//! The pages of a session, which change nothing.

use std::sync::Arc;
use std::time::Duration;

use api::{
    FindImportablePools, GetBenchmarkReport, GetPolicyStatus, GetReplicaStatus, GetShares,
    ListAlerts, ListBenchmarks, ListDashboardUsers, ListDatasets, ListFileChanges, ListFiles,
    ListRepositories, ListRepositorySnapshots, ListUsers, Overview, RepositorySnapshot, Role,
};
use axum::http::StatusCode;
use axum::response::Response;

use super::{error, page, stand_alone};
use crate::actions;
use crate::dashboard::{Dashboard, Visit};
use crate::forms::Form;
use crate::pages::{self, Moment, Page, Place};

/// How often a page looks for a pool that the overview does not have yet, and how long it waits in between. The
/// overview is made every two seconds.
const OVERVIEW_CHECKS: u32 = 15;
const OVERVIEW_CHECK_INTERVAL: Duration = Duration::from_millis(200);

impl Dashboard {
    /// The page of a path.
    pub(super) async fn show(
        self: &Arc<Self>,
        segments: &[&str],
        query: &Form,
        visit: &Visit,
    ) -> Response {
        let now = self.backend.unix_seconds();
        let shown = match segments {
            [""] => Ok(pages::overview(&self.backend.overview(), now, visit)),
            ["drives", drive] => match self.backend.drive(drive) {
                Ok(details) => Ok(pages::drive(&details, now, visit)),
                Err(why) => return error(StatusCode::NOT_FOUND, &why),
            },
            ["pools", pool, "add"] => return self.show_add_vdev(pool, query, visit).await,
            ["pools", pool, rest @ ..] => return self.show_pool(pool, rest, now, visit).await,
            ["do", name] => match actions::find(name, query) {
                Ok(action) => Ok(pages::confirm(name, &action, query, None, visit)),
                Err(why) => return error(StatusCode::UNPROCESSABLE_ENTITY, &why),
            },
            ["new-pool"] => {
                Ok(pages::new_pool(&self.backend.overview().drives.drives, query, visit))
            }
            ["benchmarks", "report"] => return self.show_report(query).await,
            ["account"] => Ok(pages::account(visit, None)),
            ["account", "totp"] => self
                .new_totp_secret()
                .map(|secret| pages::totp(visit, &self.backend.overview().host, &secret, None)),
            ["users" | "imports"] if visit.role < Role::Administer => {
                return error(StatusCode::FORBIDDEN, "This needs the role administer.");
            }
            ["datasets" | "repositories", ..]
            | ["shares" | "copies" | "alerts" | "benchmarks" | "users" | "imports"] => {
                self.show_answers(segments, query, now, visit).await
            }
            _ => return error(StatusCode::NOT_FOUND, "There is no such page."),
        };
        match shown {
            Ok(shown) => page(StatusCode::OK, shown),
            Err(why) => error(StatusCode::SERVICE_UNAVAILABLE, &why),
        }
    }

    /// The pages of a pool, from memory.
    async fn show_pool(&self, name: &str, rest: &[&str], now: u64, visit: &Visit) -> Response {
        let overview = self.overview_with(name).await;
        let found = overview.pools.iter().find(|known| known.status.name == name);
        let Some(found) = found else {
            return error(StatusCode::NOT_FOUND, "There is no such pool.");
        };
        let shown = match rest {
            [] => pages::pool(&found.status, &overview, now, visit),
            ["replace", device] => pages::replace(&found.status, device, &overview, now, visit),
            _ => return error(StatusCode::NOT_FOUND, "There is no such page."),
        };
        page(StatusCode::OK, shown)
    }

    /// The overview, once it has the pool: one that was just created or imported is in the next.
    async fn overview_with(&self, pool: &str) -> Arc<Overview> {
        let mut overview = self.backend.overview();
        for _ in 0..OVERVIEW_CHECKS {
            if overview.pools.iter().any(|known| known.status.name == pool) {
                break;
            }
            tokio::time::sleep(OVERVIEW_CHECK_INTERVAL).await;
            overview = self.backend.overview();
        }
        overview
    }

    /// The pages that show answers of the API.
    async fn show_answers(
        self: &Arc<Self>,
        segments: &[&str],
        query: &Form,
        now: u64,
        visit: &Visit,
    ) -> Result<Page, String> {
        Ok(match segments {
            ["datasets"] => {
                let list = self.ask(&all_datasets(&pages::DATASET_PROPERTIES)).await?;
                // the list is more than the ages of its copies
                let replicas = self.ask(&GetReplicaStatus {}).await;
                let replicas = replicas.map(|shown| shown.value).unwrap_or_default();
                pages::datasets(&list, &replicas, now, visit)
            }
            ["datasets", name] => return self.show_dataset(name, now, visit).await,
            ["datasets", name, "files"] => return self.show_files(name, query, visit).await,
            ["datasets", _, "changes"] => {
                // names of files are read with the daemon's rights
                if visit.role < Role::Administer {
                    return Err("This needs the role administer.".to_owned());
                }
                let from = query.required("from")?;
                let call = ListFileChanges { from: from.to_owned(), to: None };
                pages::changes(from, &self.ask(&call).await?, visit)
            }
            ["shares"] => {
                let names = self.dataset_names().await;
                pages::shares(&self.ask(&GetShares {}).await?, &names, visit)
            }
            ["copies"] => {
                let replicas = self.ask(&GetReplicaStatus {}).await?;
                let policies = self.ask(&GetPolicyStatus {}).await?;
                let backups = self.ask(&ListRepositories {}).await;
                let names = self.dataset_names().await;
                pages::copies(&replicas, &policies, &backups, &names, now, visit)
            }
            ["repositories"] => {
                let location = query.required("location")?;
                let call = ListRepositorySnapshots { location: location.to_owned() };
                pages::repository(location, &self.ask(&call).await?, now, visit)
            }
            ["repositories", "files"] => return self.show_backed_up_files(query, visit).await,
            ["alerts"] => pages::alerts(&self.ask(&ListAlerts {}).await?, now, visit),
            ["benchmarks"] => pages::benchmarks(&self.ask(&ListBenchmarks {}).await?, visit),
            ["imports"] => {
                let dir = query.field("dir");
                let paths = Some(dir).filter(|dir| !dir.is_empty()).map(Into::into);
                let call =
                    FindImportablePools { paths: paths.into_iter().collect(), destroyed: false };
                pages::imports(dir, &self.ask(&call).await?, visit)
            }
            ["users"] => {
                let users = self.ask(&ListDashboardUsers {}).await?;
                pages::users(&users, &self.ask(&ListUsers {}).await?, visit)
            }
            _ => return Err("There is no such page.".to_owned()),
        })
    }
}

impl Dashboard {
    /// A dataset with its snapshots and properties.
    async fn show_dataset(
        self: &Arc<Self>,
        name: &str,
        now: u64,
        visit: &Visit,
    ) -> Result<Page, String> {
        let mut call = ListDatasets {
            names: vec![name.to_owned()],
            kinds: ["filesystem", "volume", "snapshot"].map(str::to_owned).to_vec(),
            // snapshots are one level below
            depth: Some(1),
            properties: pages::SNAPSHOT_PROPERTIES.map(str::to_owned).to_vec(),
        };
        let mut list = self.ask(&call).await?;
        list.value.retain(|it| it.name == *name || it.kind == "snapshot");
        call.kinds.retain(|kind| kind != "snapshot");
        call.depth = Some(0);
        call.properties =
            pages::EDITABLE_PROPERTIES.iter().map(|(name, _)| (*name).to_owned()).collect();
        call.properties.extend(pages::KEY_PROPERTIES.map(str::to_owned));
        let properties = self.ask(&call).await?;
        Ok(pages::dataset(name, &list, properties.value.first(), now, visit))
    }

    /// The drives that a pool may get, each layout checked as by `zpool add -n`.
    async fn show_add_vdev(self: &Arc<Self>, name: &str, query: &Form, visit: &Visit) -> Response {
        if visit.role < Role::Administer {
            return error(StatusCode::FORBIDDEN, "This needs the role administer.");
        }
        let overview = self.overview_with(name).await;
        let found = overview.pools.iter().find(|known| known.status.name == name);
        let Some(found) = found else {
            return error(StatusCode::NOT_FOUND, "There is no such pool.");
        };
        let drives = &overview.drives.drives;
        let chosen = pages::chosen_drives(drives, query);
        let paths: Vec<String> = chosen.iter().map(|it| it.path.display().to_string()).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let mut layouts = pages::candidates(&chosen);
        for checked in &mut layouts {
            checked.refusal = match actions::add_call(name, &checked.layout, &paths, true) {
                Ok((call, _)) => self.check(&call).await.err(),
                Err(why) => Some(why),
            };
        }
        page(StatusCode::OK, pages::add_vdev(&found.status, drives, &chosen, &layouts, visit))
    }

    /// The report of some results of the bench lab. It brings a style of its own, and runs no scripts.
    async fn show_report(self: &Arc<Self>, query: &Form) -> Response {
        let files = query.all("file").map(str::to_owned).collect();
        match self.ask(&GetBenchmarkReport { files }).await {
            Ok(report) => stand_alone(report.value),
            Err(why) => error(StatusCode::UNPROCESSABLE_ENTITY, &why),
        }
    }

    /// A folder at a moment: in a snapshot, or now.
    async fn show_files(
        self: &Arc<Self>,
        name: &str,
        query: &Form,
        visit: &Visit,
    ) -> Result<Page, String> {
        // names of files are read with the daemon's rights
        if visit.role < Role::Administer {
            return Err("This needs the role administer.".to_owned());
        }
        let call = ListDatasets {
            names: vec![name.to_owned()],
            kinds: vec!["snapshot".to_owned()],
            depth: Some(1),
            properties: pages::SNAPSHOT_PROPERTIES.map(str::to_owned).to_vec(),
        };
        let snapshots = self.ask(&call).await?;
        let moments: Vec<Moment> = (snapshots.value.iter())
            .map(|it| Moment {
                name: it.name.split_once('@').map_or("", |(_, name)| name).to_owned(),
                time: it.property_value("creation").and_then(|time| time.parse().ok()),
            })
            .collect();
        let (at, folder) = (query.field("at"), query.field("path").trim_matches('/'));
        let dataset = if at.is_empty() { name.to_owned() } else { format!("{name}@{at}") };
        // a folder that does not exist at this moment is shown as such, so that the slider goes on
        let call = ListFiles { dataset, path: folder.to_owned(), repository: None };
        let files = self.ask(&call).await;
        let place = Place { dataset: name, at, folder, ..Place::default() };
        Ok(pages::files(place, &moments, &files, &[], visit))
    }

    /// A folder of a snapshot in a repository of backups.
    async fn show_backed_up_files(
        self: &Arc<Self>,
        query: &Form,
        visit: &Visit,
    ) -> Result<Page, String> {
        if visit.role < Role::Administer {
            return Err("This needs the role administer.".to_owned());
        }
        let (location, dataset) = (query.required("location")?, query.required("dataset")?);
        let at = query.required("at")?;
        let place = Place {
            repository: Some(location),
            dataset,
            at,
            folder: query.field("path").trim_matches('/'),
            into: query.field("into"),
        };
        let call = ListRepositorySnapshots { location: location.to_owned() };
        let snapshots = self.ask(&call).await?;
        let is_shown = |it: &&RepositorySnapshot| it.dataset == dataset;
        let moments: Vec<Moment> = (snapshots.value.iter().filter(is_shown))
            .map(|it| Moment { name: it.name.clone(), time: Some(it.creation) })
            .collect();
        let call = ListFiles {
            dataset: format!("{dataset}@{at}"),
            path: place.folder.to_owned(),
            repository: Some(location.to_owned()),
        };
        let files = self.ask(&call).await;
        Ok(pages::files(place, &moments, &files, &self.dataset_names().await, visit))
    }

    /// The names of the file systems and volumes of all pools, for lists of suggestions: none while they cannot be read.
    async fn dataset_names(self: &Arc<Self>) -> Vec<String> {
        let datasets = self.ask(&all_datasets(&["used"])).await.map(|shown| shown.value);
        datasets.unwrap_or_default().into_iter().map(|it| it.name).collect()
    }
}

/// The file systems and volumes of all pools.
fn all_datasets(properties: &[&str]) -> ListDatasets {
    ListDatasets {
        names: Vec::new(),
        kinds: ["filesystem", "volume"].map(str::to_owned).to_vec(),
        depth: None,
        properties: properties.iter().map(|name| (*name).to_owned()).collect(),
    }
}
