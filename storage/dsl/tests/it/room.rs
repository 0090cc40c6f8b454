//! What may still be written to a head.

use dsl::write::{self, By, Room};
use dsl::{Kind, Setting};
use ondisk::ObjectType;

use crate::world::{USABLE, World, block};

#[test]
fn quotas_and_reservations_leave_what_they_leave() {
    let (mut world, skeleton) = World::full();
    let (first, second) = (block(3, 4, ObjectType::OBJSET), block(10, 5, ObjectType::OBJSET));
    world.write(skeleton.root, std::slice::from_ref(&first), &[], &first);
    world.txg += 1;
    let id = world.change(|change| write::create(change, "tank/a")).unwrap();
    world.write(id, std::slice::from_ref(&second), &[], &second);
    // 3: one copy of four sectors; 10: two copies of four and another
    let (root, own) = (2048, 5120);
    let room = || world.change(|change| write::room(change, id)).unwrap();
    let set = |name: &str, property: &str, number| {
        let value = Setting::Number(number);
        let set = (property, &value);
        world.change(|it| write::set(it, name, Kind::Filesystem, set, By::User)).unwrap();
    };
    let pool = USABLE - root - own;
    assert_eq!(room(), Room { bytes: pool, quota: false });
    set("tank", "quota", 100_000);
    assert_eq!(room(), Room { bytes: 100_000 - root - own, quota: true });
    set("tank/a", "refquota", 50_000);
    assert_eq!(room(), Room { bytes: 50_000 - own, quota: true });
    set("tank/a", "refquota", 0);
    set("tank/a", "refreservation", 30_000);
    // what is kept for it is its own to use
    assert_eq!(room(), Room { bytes: 100_000 - root - own, quota: true });
    let other = world.change(|change| write::create(change, "tank/b")).unwrap();
    let room = |id| world.change(|change| write::room(change, id)).unwrap();
    assert_eq!(room(other), Room { bytes: 100_000 - root - 30_000, quota: true });
    set("tank/b", "reservation", 60_000);
    assert_eq!(room(id), Room { bytes: 100_000 - root - 60_000 - own, quota: true });
}
