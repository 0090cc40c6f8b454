//! NUT's own server with its simulated UPS (Debian: nut-server). Without the package a test prints
//! so.
//!
//! The tests of `poolhouse` include this file as well.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The folder of NUT's drivers and of the real upsd in Debian.
const NUT: &str = "/lib/nut";
/// The password of the user `nas`.
pub(crate) const PASSWORD: &str = "two words";

/// upsd with one simulated UPS. Both processes end with it.
pub(crate) struct DummyUps {
    dir: PathBuf,
    pub(crate) port: u16,
    children: Vec<Child>,
}

impl DummyUps {
    /// Starts it; none: NUT is not installed.
    pub(crate) fn start(name: &str) -> Option<Self> {
        let drivers = Path::new(NUT);
        if !drivers.join("dummy-ups").exists() || !drivers.join("upsd").exists() {
            eprintln!("not checked: NUT is not installed (nut-server)");
            return None;
        }
        let dir = std::env::temp_dir().join(format!("ph-nut-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = probe.local_addr().unwrap().port();
        drop(probe);
        let file = |name: &str, text: String| fs::write(dir.join(name), text).unwrap();
        let device = dir.join("cellar.dev");
        file(
            "ups.conf",
            format!(
                "[cellar]\ndriver = dummy-ups\nport = {}\npollinterval = 1\n",
                device.display()
            ),
        );
        file("upsd.conf", format!("LISTEN 127.0.0.1 {port}\n"));
        file("upsd.users", format!("[nas]\npassword = \"{PASSWORD}\"\nupsmon primary\n"));
        let mut ups = Self { dir, port, children: Vec::new() };
        ups.set_status("OL", 100);
        ups.spawn("dummy-ups", &["-F", "-u", "root", "-a", "cellar"]);
        ups.spawn("upsd", &["-F", "-u", "root"]);
        Some(ups)
    }

    fn spawn(&mut self, program: &str, args: &[&str]) {
        let mut command = Command::new(Path::new(NUT).join(program));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        for name in ["NUT_CONFPATH", "NUT_STATEPATH", "NUT_ALTPIDPATH"] {
            command.env(name, &self.dir);
        }
        self.children.push(command.spawn().unwrap());
    }

    /// Sets the status words and the charge in percent.
    pub(crate) fn set_status(&self, status: &str, charge: u64) {
        self.set_script(&format!(
            "ups.status: {status}\nups.mfr: House\nups.model: Dummy\nbattery.charge: {charge}\n\
             battery.runtime: 1800.5\n"
        ));
    }

    /// Replaces the script that the simulated UPS plays once.
    pub(crate) fn set_script(&self, text: &str) {
        fs::write(self.dir.join("new"), text).unwrap();
        fs::rename(self.dir.join("new"), self.dir.join("cellar.dev")).unwrap();
    }
}

impl Drop for DummyUps {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}
