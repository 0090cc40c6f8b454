//! Task management, and the text requests of the full feature phase.

use std::io;
use std::sync::Arc;

use crate::connection::{Connection, Reader};
use crate::scsi::{LogicalUnit, parse_unit_number};
use crate::target::PORTAL_GROUP;
use crate::wire::request::{TaskManagement, TextRequest};
use crate::wire::response::Response;
use crate::wire::text::Text;

/// Results of a task management request.
const DONE: u8 = 0;
const NO_SUCH_TASK: u8 = 1;
const NO_SUCH_UNIT: u8 = 2;
const NO_REASSIGNMENT: u8 = 4;
const NOT_SUPPORTED: u8 = 5;

impl Connection<'_> {
    /// Carries out a task management request, and answers when the aborted tasks do nothing any more.
    pub(crate) fn manage(&self, request: &TaskManagement) {
        let response = self.carry_out(request);
        self.session.tasks.complete(request.number);
        let sent = self.sender.send(&Response::TaskManagement { tag: request.tag, response }, &[]);
        if sent.is_err() {
            self.client.abort();
        }
        if request.function == 7 && response == DONE {
            // a cold reset ends all sessions with the target, this one after its answer
            self.shared.end_sessions(|session, _| self.is_same_target(session));
        }
    }

    fn is_same_target(&self, other: &crate::session::Session) -> bool {
        match (&self.session.target, &other.target) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            _ => false,
        }
    }

    fn carry_out(&self, request: &TaskManagement) -> u8 {
        let tasks = &self.session.tasks;
        match request.function {
            // ABORT TASK
            1 => {
                let aborted = tasks.abort(|tag, _| tag == request.referenced_tag);
                if aborted > 0 { DONE } else { NO_SUCH_TASK }
            }
            // ABORT TASK SET, and CLEAR TASK SET: each path has a task set of its own
            2 | 4 => self.with_unit(request, |unit| {
                tasks.abort(|_, logical| logical.is_some_and(|logical| Arc::ptr_eq(logical, unit)));
            }),
            // LOGICAL UNIT RESET
            5 => self.with_unit(request, |unit| self.reset(unit)),
            // TARGET WARM RESET, TARGET COLD RESET
            6 | 7 => {
                let units = self.session.target.as_ref().map(|target| target.units());
                for unit in units.iter().flat_map(|units| units.values()) {
                    self.reset(unit);
                }
                DONE
            }
            8 => NO_REASSIGNMENT,
            _ => NOT_SUPPORTED,
        }
    }

    fn with_unit(&self, request: &TaskManagement, work: impl FnOnce(&Arc<LogicalUnit>)) -> u8 {
        let units = self.session.target.as_ref().map(|target| target.units()).unwrap_or_default();
        let number = parse_unit_number(request.lun);
        match number.and_then(|number| units.get(&number)) {
            Some(unit) => {
                work(unit);
                DONE
            }
            None => NO_SUCH_UNIT,
        }
    }

    fn reset(&self, unit: &Arc<LogicalUnit>) {
        self.shared.abort_tasks(|_| true, unit);
        unit.reset();
    }

    /// Answers a text request: the targets that the initiator may use, or keys that are not for now.
    pub(crate) fn answer_text(
        &self,
        reader: &mut Reader,
        request: &TextRequest,
        data: &[u8],
    ) -> io::Result<()> {
        // the answers fit into one request, so do the questions
        let keys = Text::parse(data).map_err(io::Error::other)?;
        if request.continues {
            return Err(io::Error::other("a text request goes on"));
        }
        let mut answer = Text::default();
        for (key, value) in keys.iter() {
            match key {
                "SendTargets" => self.send_targets(value, &mut answer)?,
                _ => answer.push(key, "NotUnderstood"),
            }
        }
        if !keys.is_empty() {
            reader.text_rest = answer.encode();
        }
        let length = reader.text_rest.len().min(self.session.parameters.max_send_segment);
        let rest = reader.text_rest.split_off(length);
        let part = std::mem::replace(&mut reader.text_rest, rest);
        let continues = !reader.text_rest.is_empty();
        let response = Response::Text { tag: request.tag, is_final: !continues, continues };
        self.sender.send(&response, &part)
    }

    fn send_targets(&self, value: &str, answer: &mut Text) -> io::Result<()> {
        let targets = self.shared.targets.read();
        let visible = targets.visible(&self.session.initiator, self.client.address());
        let own = self.session.target.as_ref().map(|target| &target.name);
        let address = self.client.stream.local_addr()?;
        for name in visible {
            // All in a discovery session; else a name, or nothing for the own target
            let is_wanted = match (value, own) {
                ("All", None) => true,
                ("", Some(own)) => *own == name,
                _ => value == name,
            };
            if is_wanted {
                answer.push("TargetName", &name);
                answer.push("TargetAddress", &format!("{address},{PORTAL_GROUP}"));
            }
        }
        Ok(())
    }
}
