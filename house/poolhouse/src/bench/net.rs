//! `poolhouse bench net`: measures the network between two machines.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use lab::System;
use lab::net::{self, DEFAULT_PORT, Listener, Options};
use lab::progress::Progress;

use super::measurement_progress::MeasurementProgress;
use super::path::{parse_duration, parse_size};
use super::result::{self, ResultArgs};
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::{interrupt, print};

/// `poolhouse bench net`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "One machine is the server, the other the client; nothing is written to any drive.

Examples:
  poolhouse bench net --listen                    on the NAS
  poolhouse bench net nas -o network.json         on the other machine
  poolhouse bench net nas --quick
  poolhouse bench net 192.168.1.2:7476 --streams 8 --buffers 1M,4M"
)]
pub(crate) struct Args {
    /// The machine that listens: a name or an address, with a port if it is not 7476
    #[arg(required_unless_present = "listen", conflicts_with = "listen")]
    host: Option<String>,
    /// Listen for clients until Ctrl-C; at this address, or at any
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "")]
    listen: Option<String>,
    /// A look of less than a minute
    #[arg(long, conflicts_with = "seconds")]
    quick: bool,
    /// How often each thing is measured
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// How long a run takes
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Streams at a time, to be compared with a single one
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    streams: u16,
    /// Sizes of socket buffers to be compared with the system's own choice
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "64K,256K,1M,4M")]
    buffers: Vec<String>,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    result: ResultArgs,
}

/// Seconds of a run of a quick look, all runs of which take less than a minute.
const QUICK_RUN_SECONDS: f64 = 0.9;
/// The largest socket buffer.
const MAX_SOCKET_BUFFER: u64 = 1 << 30;

impl Args {
    pub(crate) fn run(&self) -> CommandResult {
        match &self.host {
            Some(host) => self.measure(host),
            None => self.serve(self.listen.as_deref().unwrap_or_default()),
        }
    }

    fn measure(&self, host: &str) -> CommandResult {
        let wish = self.options(host)?;
        if self.dry_run {
            return result::print_dry_run(&wish.describe_plan());
        }
        self.result.warn_if_unsaved();
        let watch = MeasurementProgress::new(self.result.quiet);
        let course = Progress::new(&watch);
        let heading = self.result.heading(host);
        let measured = watch.run(|| net::measure(&wish, heading, &course, &System::default()));
        self.result.save_and_print(&measured?)
    }

    fn options(&self, host: &str) -> Result<Options, Failure> {
        let buffer = |text: &String| {
            let bytes = parse_size(text)?;
            let fits = usize::try_from(bytes).ok().filter(|_| bytes <= MAX_SOCKET_BUFFER);
            fits.ok_or_else(|| Failure::usage(format!("a socket buffer of {text} is too large")))
        };
        Ok(Options {
            host: host.to_owned(),
            runs: self.runs.into(),
            time: parse_duration(if self.quick { QUICK_RUN_SECONDS } else { self.seconds })?,
            stream_count: self.streams.into(),
            buffer_sizes: self.buffers.iter().map(buffer).collect::<Result<_, _>>()?,
        })
    }

    fn serve(&self, address: &str) -> CommandResult {
        let address = (!address.is_empty()).then(|| parse_socket_address(address)).transpose()?;
        if self.dry_run {
            let at =
                address.map_or_else(|| format!("any, port {DEFAULT_PORT}"), |at| at.to_string());
            return result::print_dry_run(&[format!("Would listen at {at} until Ctrl-C.")]);
        }
        let listener = Listener::bind(address, System::default())?;
        if let Some(at) = listener.address() {
            let mut out = std::io::stdout().lock();
            writeln!(out, "listening at {at}; Ctrl-C ends it")?;
            out.flush()?;
        }
        interrupt::install_handler();
        let quiet = self.result.quiet;
        let came = move |from: SocketAddr| {
            if !quiet {
                print::warning(&format!("{} measures", from.ip().to_canonical()));
            }
        };
        listener.serve(interrupt::is_interrupted, came);
        Ok(Outcome::Complete)
    }
}

/// `192.168.1.2`, `192.168.1.2:7476`, `::1`, `[::1]:7476`.
fn parse_socket_address(text: &str) -> Result<SocketAddr, Failure> {
    let alone = || text.trim_matches(['[', ']']).parse::<IpAddr>();
    let parsed = text.parse().or_else(|_| alone().map(|ip| SocketAddr::new(ip, DEFAULT_PORT)));
    parsed.map_err(|_| {
        Failure::usage(format!("'{text}' is not an address: write 192.168.1.2:{DEFAULT_PORT}"))
    })
}

#[cfg(test)]
mod tests {
    use super::parse_socket_address;

    #[test]
    fn addresses_have_a_port_or_the_usual_one() {
        for (text, wanted) in [
            ("127.0.0.1", "127.0.0.1:7476"),
            ("127.0.0.1:5", "127.0.0.1:5"),
            ("::1", "[::1]:7476"),
            ("[::1]:5", "[::1]:5"),
        ] {
            assert_eq!(parse_socket_address(text).unwrap().to_string(), wanted);
        }
        assert!(parse_socket_address("nas").is_err());
    }
}
