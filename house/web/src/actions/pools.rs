//! Actions on pools and their devices.

use api::{
    ClearPool, CreatePool, DetachDevice, ExportPool, OfflineDevice, OnlineDevice, ReplaceDevice,
    ScrubPool,
};

use super::Action;
use super::vdevs::vdevs_of_layout;
use crate::forms::Form;
use crate::pages::{pool_path, replace_path};

pub(super) fn find(name: &str, form: &Form) -> Result<Action, String> {
    match name {
        "scrub" => scrub(form),
        "clear" => clear(form),
        "offline" => offline(form),
        "online" => online(form),
        "replace" => replace(form),
        "detach" => detach(form),
        "export" => export(form),
        _ => create(form),
    }
}

fn scrub(form: &Form) -> Result<Action, String> {
    let pool = form.required("pool")?;
    let (stop, pause) = (form.field("mode") == "stop", form.field("mode") == "pause");
    let call = ScrubPool { name: pool.to_owned(), stop, pause, ..ScrubPool::default() };
    let (verb, consequence, option): (_, _, &[&str]) = if stop {
        let consequence = "The scrub ends. Blocks that it has not read yet stay unchecked.";
        ("Stop the scrub", consequence, &["-s"])
    } else if pause {
        let consequence = "The scrub keeps its position. Start a scrub to continue it.";
        ("Pause the scrub", consequence, &["-p"])
    } else {
        let consequence = "It reads every block and repairs what is damaged. The pool stays in use, and is slower \
                           meanwhile.";
        ("Start a scrub", consequence, &[])
    };
    let command = [&["zpool", "scrub"], option, &[pool]].concat();
    let action = Action::new(format!("{verb} of {pool}"), consequence, &call, &command)?;
    Ok(action.leads_to(pool_path(pool)))
}

fn clear(form: &Form) -> Result<Action, String> {
    let pool = form.required("pool")?;
    let device = Some(form.field("device")).filter(|device| !device.is_empty());
    let call = ClearPool { name: pool.to_owned(), device: device.map(str::to_owned) };
    let command = [&["zpool", "clear", pool][..], device.as_slice()].concat();
    let title = format!("Clear the errors of {}", device.unwrap_or(pool));
    let consequence = "The counters of errors begin at 0 again, and a suspended pool resumes. Damage that is still \
                       there is counted again when it is read.";
    Ok(Action::new(title, consequence, &call, &command)?.leads_to(pool_path(pool)))
}

fn offline(form: &Form) -> Result<Action, String> {
    let (pool, device) = (form.required("pool")?, form.required("device")?);
    let (name, target) = (pool.to_owned(), device.to_owned());
    let call = OfflineDevice { name, device: target, temporary: false, fault: false };
    let consequence = "The pool works on without it, with less redundancy, and no longer writes to it. The pool \
                       refuses this if data would be lost.";
    let title = format!("Take {device} of {pool} offline");
    let action = Action::new(title, consequence, &call, &["zpool", "offline", pool, device])?;
    Ok(action.leads_to(next_of(form, pool)))
}

fn online(form: &Form) -> Result<Action, String> {
    let (pool, device) = (form.required("pool")?, form.required("device")?);
    let call = OnlineDevice { name: pool.to_owned(), device: device.to_owned(), expand: false };
    let consequence = "The pool uses it again, and resilvers what it missed.";
    let title = format!("Bring {device} of {pool} online");
    let action = Action::new(title, consequence, &call, &["zpool", "online", pool, device])?;
    Ok(action.leads_to(pool_path(pool)))
}

fn replace(form: &Form) -> Result<Action, String> {
    let (pool, old) = (form.required("pool")?, form.required("device")?);
    let typed = form.field("path");
    let new = if typed.is_empty() { form.required("new")? } else { typed };
    let force = form.field("force") == "1";
    let (name, target) = (pool.to_owned(), old.to_owned());
    let call = ReplaceDevice {
        name,
        old: target,
        new: Some(new.into()),
        force,
        sequential: false,
        ashift: None,
    };
    let option: &[&str] = if force { &["-f"] } else { &[] };
    let command = [&["zpool", "replace"], option, &[pool, old, new]].concat();
    let consequence = format!(
        "The pool writes all data of {old} to {new}, and then uses {new} in its place. Everything that is on {new} \
         now is lost. The pool stays in use meanwhile."
    );
    let title = format!("Replace {old} of {pool} by {new}");
    let action = Action::new(title, &consequence, &call, &command)?;
    let action = if force { action.destroys(new) } else { action };
    Ok(action.leads_to(next_of(form, pool)))
}

fn detach(form: &Form) -> Result<Action, String> {
    let (pool, device) = (form.required("pool")?, form.required("device")?);
    let call = DetachDevice { name: pool.to_owned(), device: device.to_owned() };
    let consequence = "The mirror, spare or replacement goes on without it. The pool refuses this if data would be \
                       lost.";
    let title = format!("Detach {device} from {pool}");
    let action = Action::new(title, consequence, &call, &["zpool", "detach", pool, device])?;
    Ok(action.administer().leads_to(pool_path(pool)))
}

fn export(form: &Form) -> Result<Action, String> {
    let pool = form.required("pool")?;
    let call = ExportPool { name: pool.to_owned(), force: false };
    let consequence = "Its file systems are unmounted and its shares end. The data stays on the drives: zpool import \
                       brings the pool back.";
    let title = format!("Export {pool}");
    let action = Action::new(title, consequence, &call, &["zpool", "export", pool])?;
    Ok(action.administer())
}

/// Creates a pool: the drives in their order, by the layout in the planner's words.
fn create(form: &Form) -> Result<Action, String> {
    let (pool, layout) = (form.required("pool")?, form.required("layout")?);
    let drives: Vec<&str> = form.all("drive").collect();
    let (vdevs, more) = vdevs_of_layout(layout, &drives)?;
    let words = [["zpool", "create", pool].map(str::to_owned).to_vec(), more].concat();
    let call = CreatePool {
        name: pool.to_owned(),
        temporary_name: None,
        vdevs,
        ashift: None,
        pool_properties: Vec::new(),
        no_default_features: false,
        filesystem_properties: Vec::new(),
        altroot: None,
        force: false,
        secret: None,
        dry_run: false,
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let consequence = format!(
        "The pool is made of {}. Everything that is on them now is lost.",
        drives.join(", ")
    );
    let action = Action::new(format!("Create pool {pool}, {layout}"), &consequence, &call, &words)?;
    // the overview shows it as soon as the daemon has looked at it
    Ok(action.destroys(pool))
}

/// The guide to replace a device goes on there; other forms lead to the pool.
fn next_of(form: &Form, pool: &str) -> String {
    match form.field("guide") {
        "" => pool_path(pool),
        device => replace_path(pool, device),
    }
}

#[cfg(test)]
mod tests {
    use super::find;
    use crate::forms::Form;

    #[test]
    fn layouts_become_commands() {
        let form = b"pool=tank&layout=raidz1+3,spare+1&drive=/a&drive=/b&drive=/c&drive=/d";
        let action = find("create-pool", &Form::parse(form)).unwrap();
        assert_eq!(action.request.command, "zpool create tank raidz1 /a /b /c spare /d");
        let body = String::from_utf8(action.request.encoded.body).unwrap();
        let vdevs = r#"[[{"raidz":1},"data",["/a","/b","/c"]],["single","spare",["/d"]]]"#;
        assert!(body.contains(vdevs), "{body}");
        assert_eq!(action.typed.as_deref(), Some("tank"));
        let wrong = Form::parse(b"pool=tank&layout=raidz1+3&drive=/a");
        assert!(find("create-pool", &wrong).is_err());
    }

    #[test]
    fn forced_replacement_asks_for_the_drive() {
        let form = |text: &str| find("replace", &Form::parse(text.as_bytes())).unwrap();
        let plain = form("pool=tank&device=/a&new=/b&path=");
        assert_eq!(plain.request.command, "zpool replace tank /a /b");
        assert_eq!(plain.typed, None);
        let forced = form("pool=tank&device=/a&path=/c&force=1");
        assert_eq!(forced.request.command, "zpool replace -f tank /a /c");
        assert_eq!(forced.typed.as_deref(), Some("/c"));
    }
}
