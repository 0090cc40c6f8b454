//! Values of properties as users write them.

use super::table::{FILESYSTEM, Flavor, Form, Row, VOLUME, find};
use crate::settings::Setting;
use crate::{Error, Kind, Result};

/// Bytes of a name and of a user's value.
const LONGEST_NAME: usize = 255;
const LONGEST_VALUE: usize = 8191;

/// What a property is set to by a text, if it can be set and that is a value of it.
pub fn parse(name: &str, kind: Kind, text: &str) -> Result<Setting> {
    let bad = |why| Error::BadValue { property: name.to_owned(), value: text.to_owned(), why };
    if text.len() > LONGEST_VALUE {
        return Err(bad("it is longer than 8191 bytes"));
    }
    let Some(row) = settable(name, kind)? else { return Ok(Setting::Text(text.to_owned())) };
    let value = match row.form {
        Form::Index(words) => {
            let found = words.iter().find(|(word, _)| *word == text);
            Setting::Number(found.ok_or_else(|| bad("there is no such word for it"))?.1)
        }
        Form::Limit if text == "none" => Setting::Number(u64::MAX),
        Form::Limit => Setting::Number(text.parse().map_err(|_| bad("it is no number"))?),
        Form::Number if text == "none" => Setting::Number(0),
        Form::Number => match units::parse_binary(text) {
            None => return Err(bad("it is no number")),
            Some(0) if matches!(name, "quota" | "refquota") => {
                return Err(bad("`none` is no limit"));
            }
            Some(number) => Setting::Number(number),
        },
        Form::Text => Setting::Text(text.to_owned()),
        Form::Ratio => return Err(bad("it is a fact")),
    };
    judge(row, &value).map_err(bad)?;
    Ok(value)
}

/// The number of a word for a property that is chosen when a dataset is made.
pub fn parse_once(name: &str, text: &str) -> Option<u64> {
    let row = find(name).filter(|row| row.flavor == Flavor::Once)?;
    let Form::Index(words) = row.form else { return None };
    words.iter().find(|(word, _)| *word == text).map(|(_, number)| *number)
}

/// Whether users may set a property on datasets of a kind; or why not.
pub fn is_settable(name: &str, kind: Kind) -> Result<()> {
    settable(name, kind).map(drop)
}

fn settable(name: &str, kind: Kind) -> Result<Option<&'static Row>> {
    let bad = |why| Error::BadProperty { property: name.to_owned(), why };
    let Some(row) = find(name) else {
        let letter = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b":-._".contains(&byte)
        };
        return match name {
            _ if !name.contains(':') => Err(bad("there is no such property")),
            _ if name.len() > LONGEST_NAME => Err(bad("its name is longer than 255 bytes")),
            _ if !name.bytes().all(letter) => {
                Err(bad("a user's own has only lower-case letters, digits and : - . _"))
            }
            _ => Ok(None),
        };
    };
    if matches!(row.flavor, Flavor::ReadOnly | Flavor::Once | Flavor::OnceDefault) {
        return Err(bad("it cannot be changed"));
    }
    if name == "version" {
        return Err(bad("the format of a file system is not chosen, and goes up only"));
    }
    let has = match kind {
        Kind::Filesystem => row.kinds & FILESYSTEM != 0,
        Kind::Volume => row.kinds & VOLUME != 0,
        Kind::Snapshot | Kind::Bookmark => false,
    };
    if has { Ok(Some(row)) } else { Err(bad("this kind of dataset has no such property")) }
}

/// Whether a number is among those that the property may have.
fn judge(row: &Row, value: &Setting) -> std::result::Result<(), &'static str> {
    let number = match value {
        Setting::Number(number) => number,
        Setting::Text(text) => return judge_text(row, text),
    };
    let power = number.is_power_of_two();
    match row.name {
        "recordsize" if !power || !(512..=16 << 20).contains(number) => {
            Err("it is a power of two from 512 to 16M")
        }
        "special_small_blocks" if *number != 0 && (!power || !(512..=1 << 20).contains(number)) => {
            Err("it is 0 or a power of two from 512 to 1M")
        }
        _ => Ok(()),
    }
}

fn judge_text(row: &Row, text: &str) -> std::result::Result<(), &'static str> {
    match row.name {
        "mlslabel" if text != "none" => Err("labels of security levels are not kept here"),
        "mountpoint" if !text.starts_with('/') && !matches!(text, "none" | "legacy") => {
            Err("it is an absolute path, none or legacy")
        }
        _ => Ok(()),
    }
}
