//! Prints a list in the form of OpenZFS's tools.

use std::fmt::{Display, Formatter, Result};

use super::{Nvlist, Value};

impl Display for Nvlist {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        lines(self, 0, f)
    }
}

fn lines(list: &Nvlist, indent: usize, f: &mut Formatter<'_>) -> Result {
    let deeper = indent.saturating_add(4);
    for (name, value) in list.iter() {
        match value {
            Value::List(inner) => {
                writeln!(f, "{:indent$}{name}:", "")?;
                lines(inner, deeper, f)?;
            }
            Value::Lists(all) => {
                for (index, inner) in all.iter().enumerate() {
                    writeln!(f, "{:indent$}{name}[{index}]:", "")?;
                    lines(inner, deeper, f)?;
                }
            }
            Value::Flag => writeln!(f, "{:indent$}{name}", "")?,
            Value::U64s(all) => {
                for (index, each) in all.iter().enumerate() {
                    writeln!(f, "{:indent$}{name}[{index}]: {each}", "")?;
                }
            }
            _ => writeln!(f, "{:indent$}{name}: {value}", "")?,
        }
    }
    Ok(())
}

fn row<T: Display>(all: impl IntoIterator<Item = T>, f: &mut Formatter<'_>) -> Result {
    f.write_str("[")?;
    for (index, each) in all.into_iter().enumerate() {
        let between = if index == 0 { "" } else { ", " };
        write!(f, "{between}{each}")?;
    }
    f.write_str("]")
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Flag => f.write_str("true"),
            Self::Byte(n) | Self::U8(n) => write!(f, "{n}"),
            Self::I8(n) => write!(f, "{n}"),
            Self::I16(n) => write!(f, "{n}"),
            Self::U16(n) => write!(f, "{n}"),
            Self::I32(n) => write!(f, "{n}"),
            Self::U32(n) => write!(f, "{n}"),
            Self::I64(n) | Self::HrTime(n) => write!(f, "{n}"),
            Self::U64(n) => write!(f, "{n}"),
            Self::Double(n) => write!(f, "{n}"),
            Self::Bool(b) => write!(f, "{b}"),
            Self::Str(bytes) => write!(f, "'{}'", String::from_utf8_lossy(bytes)),
            Self::Bytes(all) | Self::U8s(all) => row(all, f),
            Self::I8s(all) => row(all, f),
            Self::I16s(all) => row(all, f),
            Self::U16s(all) => row(all, f),
            Self::I32s(all) => row(all, f),
            Self::U32s(all) => row(all, f),
            Self::I64s(all) => row(all, f),
            Self::U64s(all) => row(all, f),
            Self::Bools(all) => row(all, f),
            Self::Strs(all) => {
                row(all.iter().map(|each| format!("'{}'", String::from_utf8_lossy(each))), f)
            }
            Self::List(list) => write!(f, "{list}"),
            Self::Lists(all) => row(all, f),
        }
    }
}
