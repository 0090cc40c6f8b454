//! Actions on drives, alerts and jobs.

use api::{AcknowledgeAlert, BurnInDrive, CancelJob, LocateDrive, NoteDrive, TestDrive};
use health::SelfTestKind;

use super::Action;
use crate::forms::Form;
use crate::pages::{drive_path, replace_path};

/// The seconds for which the light of a drive blinks.
const LOCATE_SECONDS: u64 = 60;

pub(super) fn find(name: &str, form: &Form) -> Result<Action, String> {
    match name {
        "note" => note_drive(form),
        "locate" => locate(form),
        "self-test" => self_test(form),
        "burn-in" => burn_in(form),
        "acknowledge" => acknowledge(form),
        _ => cancel_job(form),
    }
}

fn note_drive(form: &Form) -> Result<Action, String> {
    let drive = form.required("drive")?;
    let call = NoteDrive { drive: drive.to_owned(), forget: false };
    let consequence = "The verdict ignores the findings until they get worse.";
    let title = format!("Note the findings of drive {drive}");
    let action = Action::new(title, consequence, &call, &["drives", "note", drive])?;
    Ok(action.leads_to(drive_path(drive)))
}

fn locate(form: &Form) -> Result<Action, String> {
    let drive = form.required("drive")?;
    let call = LocateDrive { drive: drive.to_owned(), seconds: LOCATE_SECONDS };
    let consequence = "The locate light of its bay blinks for a minute, or its activity light by reads, which wake it.";
    let title = format!("Let the light of drive {drive} blink");
    let action = Action::new(title, consequence, &call, &["drives", "locate", drive])?;
    Ok(action.leads_to(match form.field("guide") {
        "" => drive_path(drive),
        device => replace_path(form.field("pool"), device),
    }))
}

fn self_test(form: &Form) -> Result<Action, String> {
    let drive = form.required("drive")?;
    let (kind, command, consequence): (_, &[&str], _) = if form.field("kind") == "long" {
        let consequence =
            "The drive reads all of its surface, which takes hours, and stays in use.";
        (SelfTestKind::Long, &["drives", "test", "--long", drive], consequence)
    } else {
        let consequence = "The drive tests itself for some minutes, and stays in use.";
        (SelfTestKind::Short, &["drives", "test", drive], consequence)
    };
    let call = TestDrive { drive: drive.to_owned(), kind };
    let title = format!("Start a self-test of drive {drive}");
    Ok(Action::new(title, consequence, &call, command)?.leads_to(drive_path(drive)))
}

fn burn_in(form: &Form) -> Result<Action, String> {
    let drive = form.required("drive")?;
    let call = BurnInDrive {
        drive: drive.to_owned(),
        confirm: drive.to_owned(),
        quick: false,
        force: false,
        resume: false,
    };
    let consequence = "A pattern is written over the whole drive, read back and compared, which may take days. \
                       All data on the drive are lost.";
    let title = format!("Start a burn-in of drive {drive}");
    let action = Action::new(title, consequence, &call, &["drives", "burn-in", "--yes", drive])?;
    Ok(action.destroys(drive).leads_to(drive_path(drive)))
}

fn acknowledge(form: &Form) -> Result<Action, String> {
    let key = form.required("key")?;
    let call = AcknowledgeAlert { key: key.to_owned() };
    let consequence =
        "The alert stays in the list, and the verdict ignores it until it gets worse.";
    let title = format!("Acknowledge the alert {key}");
    let action = Action::new(title, consequence, &call, &["alerts", "ack", key])?;
    Ok(action.leads_to("/alerts".to_owned()))
}

fn cancel_job(form: &Form) -> Result<Action, String> {
    let word = form.required("job")?;
    let id = word.parse().map_err(|_| format!("'{word}' is not the number of a job"))?;
    let consequence = "It stops where it leaves something whole. The work so far stays.";
    let title = format!("Cancel job {id}");
    Action::new(title, consequence, &CancelJob { id }, &["jobs", "cancel", word])
}
