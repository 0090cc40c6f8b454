//! Targets that read the objects of backup repositories.

use repository::{Head, IndexObject, Manifest, PackFooter};

/// Footers of packs, index objects, heads and manifests: unchanged, and with right magic numbers
/// and checksums, so that the code behind them is reached.
pub fn repository(data: &[u8]) {
    let _ = (PackFooter::parse(data), IndexObject::parse(data));
    let _ = (Head::parse(data), Manifest::parse(data));
    let mut index = b"PHINDEX\x01".to_vec();
    index.extend_from_slice(data);
    index.extend_from_slice(blake3::hash(&index).as_bytes());
    if let Ok(index) = IndexObject::parse(&index) {
        for location in index.iter() {
            let _ = index.find(&location.block.key);
        }
    }
    if let Some((records, trailer)) = data.split_last_chunk::<24>() {
        let mut footer = records.to_vec();
        footer.extend_from_slice(b"PHPACK\0\x01");
        footer.extend_from_slice(trailer);
        footer.extend_from_slice(blake3::hash(&footer).as_bytes());
        let _ = PackFooter::parse(&footer);
    }
    let mut sealed = data.to_vec();
    sealed.extend_from_slice(format!("\n{}\n", blake3::hash(data).to_hex()).as_bytes());
    let _ = Head::parse(&sealed);
    if let Ok(manifest) = Manifest::parse(&sealed) {
        let _ = (manifest.root_pointer(), manifest.salt());
        let _ = manifest.key.map(|key| key.wrapped().is_ok());
    }
}
