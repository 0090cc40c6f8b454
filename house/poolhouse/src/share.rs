//! `poolhouse share`: datasets that clients reach over the network.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use api::{
    AddShare, GetShares, ImportShares, ImportedShares, Protocol, RemoveShare, ShareClient,
    ShareFileFormat, ShareState, ShareStatus,
};

use units::human_bytes;

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;
use crate::property_values::parse_assignment;
use crate::table::{Align, Table, escape_control};

/// Share datasets over the network, and list the clients
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Shares are in config.toml as [[share]]; `add` and `remove` change that file and keep its comments.
The properties sharenfs and sharesmb share file systems, too. A protocol listens only where its section
says so. Volumes are shared by nbd, iscsi and nvme, file systems by nfs and smb.

  [nbd]
  listen = \"0.0.0.0:10809\"      every network; a port alone means this machine only

  [[share]]
  protocol = \"nbd\"
  dataset = \"tank/disk\"
  networks = \"10.0.0.0/24\"      without it this machine only

Examples:
  poolhouse config set nbd.listen 0.0.0.0:10809
  poolhouse share add nbd tank/disk -o networks=10.0.0.0/24
  poolhouse share status"
)]
pub(crate) struct Share {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// List the shares of all protocols
    List(ListArgs),
    /// Add a share to the configuration file
    Add(AddArgs),
    /// Remove a share from the configuration file
    Remove(RemoveArgs),
    /// Import the shares of another server from its configuration files
    Import(ImportArgs),
    /// Show the shares with their clients, and why one is not served
    Status(StatusArgs),
}

/// List the shares of all protocols
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse share list")]
struct ListArgs {}

/// Add a share to the configuration file
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Fields: networks and read_only for all; name for smb and nbd; path, read_only_networks, squash,
anonuid, anongid and privileged_ports for nfs; users, hidden, guest, nfs4_acls and
time_machine for smb; target, lun, initiators,
block_size, chap_user, chap_secret_file, mutual_user and mutual_secret_file for iscsi;
nqn, namespace, hosts, block_size, dhchap_secret_file and dhchap_ctrl_secret_file for nvme.

Examples:
  poolhouse share add smb tank/photos -o users=anna,ben
  poolhouse share add nbd tank/disk@monday -o name=monday
  poolhouse share add nvme tank/disk -o networks=10.0.0.0/24"
)]
struct AddArgs {
    /// nfs, smb, iscsi, nbd or nvme
    #[arg(value_parser = parse_protocol)]
    protocol: Protocol,
    /// A file system, a volume, or a snapshot of a volume
    dataset: String,
    /// A field of [[share]]; may be given several times
    #[arg(short = 'o', value_name = "FIELD=VALUE")]
    options: Vec<String>,
}

/// Remove a share from the configuration file
#[derive(clap::Args, Debug)]
#[command(after_help = "Its clients are disconnected; the data stays.

Example:
  poolhouse share remove nbd tank/disk")]
struct RemoveArgs {
    /// nfs, smb, iscsi, nbd or nvme
    #[arg(value_parser = parse_protocol)]
    protocol: Protocol,
    /// The dataset, or its name for clients
    name: String,
}

/// Import the shares of another server from its configuration files
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Files: exports of the kernel's NFS server, smb.conf of Samba, targets.conf of tgt, scst.conf,
saveconfig.json of LIO, config.json of nvmetcli.
Directories must be mountpoints of imported pools, devices must be /dev/zvol/POOL/NAME. A share is taken over
only if it admits no more clients and users than before; of each other one the reason is printed. Passwords
are not copied: `poolhouse user add` gives a user one. End the other server before this one listens.

Examples:
  poolhouse share import -n /etc/exports /etc/samba/smb.conf
  poolhouse share import /etc/exports /etc/samba/smb.conf"
)]
struct ImportArgs {
    /// Only show what would be added
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// The format of the files; the default depends on their names
    #[arg(long, value_parser = parse_format, value_name = "FORMAT")]
    format: Option<ShareFileFormat>,
    /// The files
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

/// The words for formats.
const FORMATS: [(&str, ShareFileFormat); 6] = [
    ("exports", ShareFileFormat::Exports),
    ("smb.conf", ShareFileFormat::SmbConf),
    ("targets.conf", ShareFileFormat::TargetsConf),
    ("scst.conf", ShareFileFormat::Scst),
    ("saveconfig.json", ShareFileFormat::Lio),
    ("config.json", ShareFileFormat::Nvmet),
];

fn parse_format(word: &str) -> Result<ShareFileFormat, String> {
    let found = FORMATS.iter().find(|(known, _)| *known == word);
    found.map(|(_, format)| *format).ok_or_else(|| {
        "exports, smb.conf, targets.conf, scst.conf, saveconfig.json or config.json is wanted"
            .to_owned()
    })
}

/// The format of a file, by its name.
fn format_of(file: &Path) -> Result<ShareFileFormat, Failure> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let by_folder = if file.parent().is_some_and(|dir| dir.ends_with("exports.d")) {
        Some(ShareFileFormat::Exports)
    } else if file.parent().is_some_and(|dir| dir.ends_with("tgt/conf.d")) {
        Some(ShareFileFormat::TargetsConf)
    } else {
        None
    };
    by_folder.or_else(|| parse_format(&name).ok()).ok_or_else(|| {
        Failure::usage(format!(
            "'{}': its name does not tell its format: use --format, with one of exports, smb.conf, \
             targets.conf, scst.conf, saveconfig.json and config.json",
            file.display()
        ))
    })
}

/// Show the shares with their clients, and why one is not served
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse share status
  poolhouse share status --json | jq '.shares[].clients'")]
struct StatusArgs {}

fn parse_protocol(word: &str) -> Result<Protocol, String> {
    Protocol::from_word(word).ok_or_else(|| "nfs, smb, iscsi, nbd or nvme is wanted".to_owned())
}

impl Share {
    /// Runs the command.
    pub(crate) fn run(&self) -> CommandResult {
        match &self.command {
            Command::List(ListArgs {}) => self.list(),
            Command::Add(args) => self.add(args),
            Command::Remove(args) => {
                let (protocol, name) = (args.protocol, args.name.clone());
                self.daemon.execute(&RemoveShare { protocol, name })
            }
            Command::Import(args) => self.import(args),
            Command::Status(StatusArgs {}) => self.status(),
        }
    }

    fn list(&self) -> CommandResult {
        let ShareStatus { shares, .. } = self.daemon.request(&GetShares {})?;
        if self.daemon.json {
            print::json(&shares)?;
            return Ok(Outcome::Complete);
        }
        let columns = ["PROTOCOL", "DATASET", "NAME", "ACCESS", "SOURCE"];
        let mut table = Table::with_header(&columns.map(|column| (column, Align::Left)));
        for share in &shares {
            table.add_row([
                share.protocol.as_str().to_owned(),
                share.dataset.clone(),
                name_of(share).to_owned(),
                access(share).to_owned(),
                share.source.clone(),
            ]);
        }
        table.print(&mut io::stdout().lock())?;
        Ok(Outcome::Complete)
    }

    fn add(&self, args: &AddArgs) -> CommandResult {
        let options = args.options.iter().map(|text| parse_assignment(text));
        let options = options.collect::<Result<_, _>>().map_err(Failure::usage)?;
        let (protocol, dataset) = (args.protocol, args.dataset.clone());
        self.daemon.execute(&AddShare { protocol, dataset, options })
    }

    fn import(&self, args: &ImportArgs) -> CommandResult {
        let mut all = ImportedShares::default();
        for file in &args.files {
            let format = args.format.map_or_else(|| format_of(file), Ok)?;
            let text = std::fs::read_to_string(file)
                .map_err(|why| Failure::usage(format!("'{}': {why}", file.display())))?;
            let dry_run = args.dry_run;
            let done = self.daemon.request(&ImportShares { format, text, dry_run })?;
            if !self.daemon.json {
                print_import(&file.display().to_string(), &done, &mut io::stdout().lock())?;
            }
            all.added.extend(done.added);
            all.skipped.extend(done.skipped);
        }
        if self.daemon.json {
            print::json(&all)?;
        }
        Ok(Outcome::complete_unless(!all.skipped.is_empty()))
    }

    fn status(&self) -> CommandResult {
        let status = self.daemon.request(&GetShares {})?;
        if self.daemon.json {
            print::json(&status)?;
        } else {
            print_status(&status, &mut io::stdout().lock())?;
        }
        Ok(Outcome::Complete)
    }
}

fn name_of(share: &ShareState) -> &str {
    share.target.as_deref().or(share.path.as_deref()).unwrap_or("-")
}

fn access(share: &ShareState) -> &'static str {
    if share.read_only { "ro" } else { "rw" }
}

/// Prints the shares of a file: imported ones in the form of the configuration.
fn print_import(file: &str, done: &ImportedShares, out: &mut dyn Write) -> io::Result<()> {
    for share in &done.added {
        writeln!(out, "\n# {}: {}", escape_control(file), escape_control(&share.origin))?;
        writeln!(out, "[[share]]\nprotocol = \"{}\"", share.protocol.as_str())?;
        writeln!(out, "dataset = \"{}\"", share.dataset)?;
        for (field, value) in &share.options {
            writeln!(out, "{field} = {}", escape_control(value.trim()))?;
        }
        if !share.ignored.is_empty() {
            let ignored = share.ignored.join(", ");
            writeln!(out, "# without meaning here: {}", escape_control(&ignored))?;
        }
    }
    for skipped in &done.skipped {
        let (origin, reason) = (escape_control(&skipped.origin), escape_control(&skipped.reason));
        writeln!(out, "\n# {}: {origin} is skipped: {reason}", escape_control(file))?;
    }
    Ok(())
}

/// Prints each share with its clients below it.
fn print_status(status: &ShareStatus, out: &mut dyn Write) -> io::Result<()> {
    if status.shares.is_empty() {
        return writeln!(out, "nothing is shared: see `poolhouse share --help`");
    }
    for (at, share) in status.shares.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        let address = match (&share.address, share.port) {
            (Some(address), Some(port)) if address.contains(':') => format!("[{address}]:{port}"),
            (Some(address), Some(port)) => format!("{address}:{port}"),
            _ => "not served".to_owned(),
        };
        let lines = [
            ("share", format!("{} {}", share.protocol, name_of(share))),
            ("dataset", share.dataset.clone()),
            ("source", share.source.clone()),
            ("access", access(share).to_owned()),
            ("address", address),
        ];
        for (label, text) in lines {
            writeln!(out, "{label:>8}: {}", escape_control(&text))?;
        }
        if let Some(problem) = &share.problem {
            writeln!(out, "{:>8}: {}", "problem", escape_control(problem))?;
        }
        if let Some(waits) = share.log_waits.filter(|waits| *waits > 0) {
            writeln!(out, "{:>8}: {waits} requests wait for the intent log", "log")?;
        }
        print_clients(&share.clients, out)?;
    }
    for note in &status.notes {
        writeln!(out, "\n{}", escape_control(note))?;
    }
    Ok(())
}

fn print_clients(clients: &[ShareClient], out: &mut dyn Write) -> io::Result<()> {
    if clients.is_empty() {
        return writeln!(out, "{:>8}: none", "clients");
    }
    writeln!(out, "{:>8}:", "clients")?;
    let mut table = Table::with_header(&[
        ("ADDRESS", Align::Left),
        ("USER", Align::Left),
        ("SECONDS", Align::Right),
        ("OPEN", Align::Right),
        ("READ", Align::Right),
        ("WRITTEN", Align::Right),
        ("READ/S", Align::Right),
        ("WRITTEN/S", Align::Right),
    ])
    .with_indent(10);
    let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
    let bytes = |bytes: Option<u64>| bytes.map_or("-".to_owned(), human_bytes);
    for client in clients {
        table.add_row([
            client.address.clone(),
            client.user.clone().unwrap_or("-".to_owned()),
            number(client.connected),
            number(client.open),
            bytes(client.read_bytes),
            bytes(client.written_bytes),
            bytes(client.read_rate),
            bytes(client.write_rate),
        ]);
    }
    table.print(out)
}

#[cfg(test)]
mod tests {
    use api::{Protocol, ShareClient, ShareState, ShareStatus};

    use super::print_status;

    #[test]
    fn status_names_clients_and_problems() {
        let served = ShareState {
            protocol: Protocol::Nbd,
            dataset: "tank/disk".to_owned(),
            target: Some("disk".to_owned()),
            path: None,
            address: Some("::1".to_owned()),
            port: Some(10809),
            read_only: true,
            source: "config.toml line 3".to_owned(),
            problem: None,
            clients: vec![ShareClient {
                address: "10.0.0.7:999".to_owned(),
                open: Some(17),
                read_bytes: Some(1 << 20),
                read_rate: Some(3 << 10),
                ..ShareClient::default()
            }],
            log_waits: Some(5),
        };
        let closed = ShareState {
            address: None,
            port: None,
            problem: Some("NBD listens nowhere".to_owned()),
            clients: Vec::new(),
            log_waits: None,
            ..served.clone()
        };
        let mut out = Vec::new();
        let notes = vec!["NFS clients wait for the drives".to_owned()];
        print_status(&ShareStatus { shares: vec![served, closed], notes }, &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        for part in [
            "share: NBD disk",
            "[::1]:10809",
            "10.0.0.7:999",
            " 17 ",
            "1M",
            "3K",
            "5 requests wait for the intent log",
            "problem: NBD listens",
        ] {
            assert!(out.contains(part), "{out}");
        }
        assert!(out.ends_with("\nNFS clients wait for the drives\n"), "{out}");
        assert!(out.contains("address: not served") && out.contains("clients: none"), "{out}");
    }
}
