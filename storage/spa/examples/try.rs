//! Opens the pools in the folders given.
use std::path::PathBuf;
fn main() {
    for dir in std::env::args().skip(1) {
        let found = device::probe(&[PathBuf::from(&dir)]);
        let (pools, others) = spa::scan(&found.devices);
        for pool in pools {
            print!("{dir}: {} {} devices {} others {}: ", pool.name(), pool.guid, pool.devices.len(), others.len());
            match pool.open(&spa::Options::default()) {
                Ok(open) => {
                    print!("{open:?} {:?} ", open.verdict());
                    let mut n = 0;
                    let mut bad = 0;
                    open.mos().walk(&dmu::Plan::default(), &mut |_, f| { n += 1; if matches!(f, dmu::Found::Trouble(..)) { bad += 1; } dmu::Next::Deeper });
                    let _ = open.space().map(|s| print!("alloc {:?} ", s.iter().map(|t| t.allocated).collect::<Vec<_>>()));
                    println!("{n} pointers, {bad} bad");
                }
                Err(error) => println!("ERROR {error}"),
            }
        }
    }
}
