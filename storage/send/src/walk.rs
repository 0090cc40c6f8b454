//! The walk of an object's block pointers that ends with the first error.

use dmu::{BlockVisit, Object, WalkControl, WalkOptions};
use ondisk::Blkptr;
use units::Zbookmark;

use crate::Result;

/// Shows the pointers of an object to `visit`, which says where the walk goes on. The walk ends where that fails, or
/// where a block cannot be read.
pub(crate) fn walk_pointers(
    object: &Object,
    options: &WalkOptions,
    mut visit: impl FnMut(Zbookmark, &Blkptr) -> Result<WalkControl>,
) -> Result<()> {
    let mut result = Ok(());
    object.walk(options, &mut |zbookmark, found| {
        let next = match found {
            BlockVisit::Pointer(pointer) => visit(zbookmark, pointer),
            BlockVisit::Error(why) => Err(why.clone().into()),
        };
        next.unwrap_or_else(|why| {
            result = Err(why);
            WalkControl::Stop
        })
    });
    result
}
