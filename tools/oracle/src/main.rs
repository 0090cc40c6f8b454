//! Sets what `poolhouse` shows of pools against what real OpenZFS recorded of them:
//!
//!     oracle POOLHOUSE FOLDER...    each FOLDER has images d0.img, ... and their manifest.json
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let Some((poolhouse, folders)) = words.split_first() else {
        eprintln!("oracle POOLHOUSE FOLDER...");
        return ExitCode::from(2);
    };
    let mut all_agree = true;
    for folder in folders {
        all_agree &= report_folder(poolhouse, folder);
    }
    if all_agree { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Checks a folder and prints the result.
fn report_folder(poolhouse: &Path, folder: &Path) -> bool {
    let name = folder.display();
    match oracle::check_manifest(poolhouse, folder) {
        Ok(lines) if lines.is_empty() => {
            println!("{name}: agrees");
            true
        }
        Ok(lines) => {
            println!("{name}: {} differences", lines.len());
            lines.iter().take(40).for_each(|line| println!("    {line}"));
            false
        }
        Err(error) => {
            println!("{name}: {error}");
            false
        }
    }
}
