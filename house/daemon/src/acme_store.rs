//! The account at a CA and the certificate that it issued, in a file of the state directory.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use acme::{AcmeConfig, AcmeState, IssuedCertificate};
use api::CertificateStatus;
use parking_lot::Mutex;

use crate::log::Log;
use crate::{Error, Result, StateDir, state_file};

/// The state of ACME.
pub(crate) struct AcmeStore {
    path: PathBuf,
    state: Mutex<AcmeState>,
}

impl AcmeStore {
    /// Reads the file. One that is damaged is the same as none: the CA is asked again.
    pub(crate) fn load(state_dir: &StateDir, log: &Log) -> Self {
        let path = state_dir.acme();
        let read = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|why| why.to_string()),
            Err(why) if why.kind() == ErrorKind::NotFound => Ok(AcmeState::default()),
            Err(why) => Err(engine::error::io_error_text(&why)),
        };
        let state = read.unwrap_or_else(|why| {
            log.write_line(&format!(
                "'{}' cannot be read, and the CA is asked for a new certificate: {why}",
                path.display()
            ));
            AcmeState::default()
        });
        Self { path, state: Mutex::new(state) }
    }

    /// Whether the CA is asked now.
    pub(crate) fn is_due(&self, config: &AcmeConfig, now: u64) -> bool {
        config.is_on() && self.state.lock().is_due(config, now)
    }

    /// The account at the CA; none: there is none yet.
    pub(crate) fn account(&self, config: &AcmeConfig) -> Option<String> {
        self.state.lock().account_for(config).map(str::to_owned)
    }

    /// The certificate for the names of the configuration.
    pub(crate) fn certificate(&self, config: &AcmeConfig) -> Option<IssuedCertificate> {
        self.state.lock().certificate_for(config).cloned()
    }

    /// Stores what an order led to. Returns the seconds until the next try of one that failed.
    pub(crate) fn store(
        &self,
        config: &AcmeConfig,
        result: std::result::Result<(String, IssuedCertificate), String>,
        now: u64,
    ) -> Result<u64> {
        let mut state = self.state.lock();
        let wait = match result {
            Ok((account, issued)) => {
                state.succeed(config, account, issued);
                0
            }
            Err(why) => state.fail(config, why, now),
        };
        let text = serde_json::to_vec(&*state)
            .map_err(|why| Error::file_error(&self.path, &why.into()))?;
        state_file::replace(&self.path, &text)?;
        Ok(wait)
    }

    /// The certificate as users see it; none: none is asked for.
    pub(crate) fn status(&self, config: &AcmeConfig) -> Option<CertificateStatus> {
        let state = self.state.lock();
        let issued = state.certificate_for(config);
        let is_same = state.asked == config.names && state.directory == config.directory;
        let error = state.error.clone().filter(|_| is_same);
        config.is_on().then(|| CertificateStatus {
            names: config.names.clone(),
            directory: config.directory.clone(),
            from: issued.map(|issued| issued.from),
            until: issued.map(|issued| issued.until),
            next_try: error.is_some().then_some(state.next_try),
            error,
        })
    }
}
