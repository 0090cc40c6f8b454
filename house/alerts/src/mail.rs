//! Mail by the sendmail command, which msmtp, postfix, exim and others bring along.

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::channel::ascii;
use crate::{DeliveryError, Message};

/// The time that the program may take.
const TIME_LIMIT: Duration = Duration::from_mins(1);
/// The time between two looks whether the program has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Sends a mail.
pub(crate) fn send(
    program: &Path,
    to: &str,
    from: Option<&str>,
    message: &Message,
    host: &str,
) -> Result<(), DeliveryError> {
    let failed = |why: String| DeliveryError::Mail { program: program.to_owned(), why };
    let mut command = Command::new(program);
    command.arg("-i");
    if let Some(from) = from {
        command.args(["-f", from]);
    }
    command.args(["--", to]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|why| match why.kind() {
        ErrorKind::NotFound => failed(
            "it is not installed; install msmtp-mta, postfix or another mail program, or set alerts.sendmail"
                .to_owned(),
        ),
        _ => failed(why.to_string()),
    })?;
    let text = format_mail(to, from, message, host);
    let (sender, written) = mpsc::channel();
    if let Some(mut input) = child.stdin.take() {
        // a program that reads nothing must not block this thread
        let writer = thread::Builder::new().name("mail".to_owned());
        let spawned = writer.spawn(move || sender.send(input.write_all(text.as_bytes())));
        spawned.map_err(|why| failed(why.to_string()))?;
    }
    let status = wait(&mut child)
        .ok_or_else(|| failed(format!("it did not end within {} seconds", TIME_LIMIT.as_secs())))?;
    if !status.success() {
        return Err(failed(format!("it ended with {status}; its own log has the reason")));
    }
    match written.recv_timeout(TIME_LIMIT) {
        Ok(Ok(())) => Ok(()),
        _ => Err(failed("it did not read the mail".to_owned())),
    }
}

fn format_mail(to: &str, from: Option<&str>, message: &Message, host: &str) -> String {
    let subject = ascii(&format!("[{host}] {}: {}", message.severity.as_str(), message.title));
    let from = from.map_or_else(String::new, |from| format!("From: {from}\n"));
    format!(
        "{from}To: {to}\nSubject: {subject}\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n\
         Content-Transfer-Encoding: 8bit\nAuto-Submitted: auto-generated\n\n{}\n\n{}\n\n-- \npoolhouse on {host}\n",
        message.title, message.text
    )
}

/// Waits until the program ends; nothing if the time limit passed.
fn wait(child: &mut Child) -> Option<std::process::ExitStatus> {
    let last = Instant::now() + TIME_LIMIT;
    while Instant::now() < last {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) => thread::sleep(POLL_INTERVAL),
            Err(_) => break,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}
