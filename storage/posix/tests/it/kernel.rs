//! Access decisions compared with the kernel's, over seeded cases.
//!
//! Each case is a directory with a file in it, of random owners, modes and POSIX ACLs. A thread takes the
//! credentials of a random caller and makes one system call; the rules must predict its error. Linux keeps
//! credentials for each thread, so the test needs no other process. It needs root.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use posix::access::{self, Denied, OpenMode, Target, TargetAcl};
use posix::acl::nfs4::mask;
use posix::acl::{PosixAclEntry, posix1e};
use posix::{
    Capability, Credentials, FileFlags, FileType, RenameMode, SetAttributes, SetTime, Time,
};
use rustix::fs::{
    Access, AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, XattrFlags, accessat, mkdirat,
    mknodat, openat, renameat, setxattr, unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

const UIDS: [u32; 3] = [1001, 1002, 1003];
const GIDS: [u32; 4] = [101, 102, 103, 104];
const CAPABILITIES: [(Capability, CapabilitySet); 6] = [
    (Capability::Chown, CapabilitySet::CHOWN),
    (Capability::DacOverride, CapabilitySet::DAC_OVERRIDE),
    (Capability::DacReadSearch, CapabilitySet::DAC_READ_SEARCH),
    (Capability::FileOwner, CapabilitySet::FOWNER),
    (Capability::FileSetId, CapabilitySet::FSETID),
    (Capability::MakeNode, CapabilitySet::MKNOD),
];

/// A xorshift generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 >> 33).unwrap() % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(u32::try_from(from.len()).unwrap())).unwrap()]
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.below(count) == 0
    }

    fn caller(&mut self) -> (Credentials, CapabilitySet) {
        let groups: Vec<u32> = GIDS.into_iter().filter(|_| self.one_in(3)).collect();
        let (mut uid, mut given) = (self.pick(&UIDS), CapabilitySet::empty());
        let mut capabilities = Vec::new();
        if self.one_in(4) {
            uid = 0;
            for (ours, theirs) in CAPABILITIES {
                if self.one_in(2) {
                    capabilities.push(ours);
                    given |= theirs;
                }
            }
        }
        let base = Credentials::new(uid, self.pick(&GIDS)).with_groups(&groups);
        (capabilities.into_iter().fold(base, Credentials::with_capability), given)
    }

    fn acl(&mut self) -> Vec<PosixAclEntry> {
        let mut entries = Vec::new();
        let mut push = |random: &mut Self, tag, id| {
            let permissions = u16::try_from(random.below(8)).unwrap();
            entries.push(PosixAclEntry { tag, permissions, id });
        };
        let none = u32::MAX;
        push(self, posix1e::tag::USER_OBJ, none);
        for uid in UIDS {
            if self.one_in(2) {
                push(self, posix1e::tag::USER, uid);
            }
        }
        push(self, posix1e::tag::GROUP_OBJ, none);
        for gid in GIDS {
            if self.one_in(2) {
                push(self, posix1e::tag::GROUP, gid);
            }
        }
        push(self, posix1e::tag::MASK, none);
        push(self, posix1e::tag::OTHER, none);
        entries
    }
}

fn encode_acl(entries: &[PosixAclEntry]) -> Vec<u8> {
    let mut out = 2_u32.to_le_bytes().to_vec();
    for entry in entries {
        out.extend(entry.tag.to_le_bytes());
        out.extend(entry.permissions.to_le_bytes());
        out.extend(entry.id.to_le_bytes());
    }
    out
}

/// Gives a path random owners, a random mode and sometimes an ACL. Returns the input of the rules.
fn set_random(random: &mut Random, path: &Path, kind: FileType) -> Target {
    let (uid, gid) = (random.pick(&UIDS), random.pick(&GIDS));
    chown(path, Some(uid), Some(gid)).expect("chown");
    // mostly generous modes, so that the later checks of a call are reached too
    let mode = if random.one_in(2) { random.below(0o10000) } else { 0o777 | random.below(8) << 9 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
    let mut acl = TargetAcl::Mode;
    if random.one_in(2) {
        let entries = random.acl();
        let name = "system.posix_acl_access";
        match setxattr(path, name, &encode_acl(&entries), XattrFlags::empty()) {
            Ok(()) => acl = TargetAcl::Posix(entries),
            Err(why) => assert_eq!(why, Errno::OPNOTSUPP, "an ACL is refused"),
        }
    }
    let mode = fs::metadata(path).expect("stat").mode() & 0o7777;
    Target { kind, mode, uid, gid, flags: FileFlags::NONE, acl }
}

/// A directory and a file in it.
struct Case {
    dir: PathBuf,
    file: PathBuf,
    dir_target: Target,
    file_target: Target,
}

impl Case {
    fn create(random: &mut Random, at: &Path) -> Self {
        let (dir, file) = (at.join("dir"), at.join("dir/file"));
        fs::create_dir(&dir).expect("mkdir");
        let kind = random.pick(&[FileType::File, FileType::File, FileType::Directory]);
        if kind.is_directory() {
            fs::create_dir(&file).expect("mkdir");
        } else {
            fs::write(&file, b"content").expect("write");
        }
        let _ = setxattr(&file, "user.known", b"value", XattrFlags::empty());
        let file_target = set_random(random, &file, kind);
        let dir_target = set_random(random, &dir, FileType::Directory);
        Self { dir, file, dir_target, file_target }
    }
}

type Outcome = Result<u32, Denied>;

/// The result of a system call as the rules express it.
fn outcome(result: Result<(), Errno>) -> Outcome {
    match result {
        Ok(()) => Ok(0),
        Err(Errno::ACCESS) => Err(Denied::Access),
        Err(Errno::PERM) => Err(Denied::NotPermitted),
        Err(why) => panic!("an error that no access check gives: {why}"),
    }
}

/// The predictions of the rules for a caller.
type Rule = dyn Fn(&Case, &Credentials) -> Outcome;

/// A system call on a case, and the rule for it.
struct Call {
    name: &'static str,
    kernel: Box<dyn Fn(&Case) -> Outcome + Sync>,
    rule: Box<Rule>,
}

fn call(
    name: &'static str,
    kernel: impl Fn(&Case) -> Result<(), Errno> + Sync + 'static,
    rule: impl Fn(&Case, &Credentials) -> Result<(), Denied> + 'static,
) -> Call {
    let kernel = move |case: &Case| outcome(kernel(case));
    let rule = move |case: &Case, by: &Credentials| rule(case, by).map(|()| 0);
    Call { name, kernel: Box::new(kernel), rule: Box::new(rule) }
}

/// A call on the file, whose path leads through the directory.
fn file_call(
    name: &'static str,
    kernel: impl Fn(&Path) -> Result<(), Errno> + Sync + 'static,
    rule: impl Fn(&Target, &Credentials) -> Result<(), Denied> + 'static,
) -> Call {
    let rule = move |case: &Case, by: &Credentials| {
        access::check(by, &case.dir_target, mask::EXECUTE)?;
        rule(&case.file_target, by)
    };
    call(name, move |case| kernel(&case.file), rule)
}

fn set_call(
    name: &'static str,
    kernel: impl Fn(&Path) -> Result<(), Errno> + Sync + 'static,
    set: SetAttributes,
) -> Call {
    let rule = move |target: &Target, by: &Credentials| {
        access::check_set_attributes(by, target, &set).map(drop)
    };
    file_call(name, kernel, rule)
}

fn calls_on_names(random: &mut Random) -> Vec<Call> {
    let device = random.one_in(2);
    let kind = if device { FileType::CharDevice } else { FileType::Fifo };
    let made =
        if device { rustix::fs::FileType::CharacterDevice } else { rustix::fs::FileType::Fifo };
    vec![
        call(
            "unlink",
            |case| {
                let is_dir = case.file_target.kind.is_directory();
                let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                unlinkat(CWD, &case.file, flags)
            },
            |case, by| access::check_delete(by, &case.dir_target, &case.file_target),
        ),
        call(
            "create",
            |case| {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                openat(CWD, case.dir.join("new"), flags, Mode::from(0o600)).map(drop)
            },
            |case, by| access::check_create(by, &case.dir_target, FileType::File, (0, 0)),
        ),
        call(
            "mkdir",
            |case| mkdirat(CWD, case.dir.join("new"), Mode::from(0o700)),
            |case, by| access::check_create(by, &case.dir_target, FileType::Directory, (0, 0)),
        ),
        call(
            "mknod",
            move |case| {
                let rdev = rustix::fs::makedev(1, 3);
                mknodat(CWD, case.dir.join("new"), made, Mode::from(0o600), rdev)
            },
            move |case, by| access::check_create(by, &case.dir_target, kind, (1, 3)),
        ),
        call(
            "rename",
            |case| renameat(CWD, &case.file, CWD, case.dir.join("new")),
            |case, by| {
                let (dir, file) = (&case.dir_target, &case.file_target);
                access::check_rename(by, (dir, file), (dir, None), true, RenameMode::Replace)
            },
        ),
    ]
}

fn calls_on_attributes(random: &mut Random) -> Vec<Call> {
    let (uid, gid) = (random.pick(&UIDS), random.pick(&GIDS));
    let owner = SetAttributes { uid: Some(uid), ..SetAttributes::default() };
    let group = SetAttributes { gid: Some(gid), ..SetAttributes::default() };
    let now = SetAttributes {
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::Now),
        ..SetAttributes::default()
    };
    let then =
        SetAttributes { atime: Some(SetTime::At(Time { seconds: 9, nanoseconds: 0 })), ..now };
    let touch = |nsec: i64| {
        move |path: &Path| {
            let time = |tv_nsec| Timespec { tv_sec: 9, tv_nsec };
            let times = Timestamps {
                last_access: time(nsec),
                last_modification: time(rustix::fs::UTIME_NOW),
            };
            utimensat(CWD, path, &times, AtFlags::empty())
        }
    };
    let chown = |uid: Option<u32>, gid: Option<u32>| {
        move |path: &Path| {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            rustix::fs::chownat(CWD, path, uid, gid, AtFlags::empty())
        }
    };
    vec![
        set_call("chown", chown(Some(uid), None), owner),
        set_call("chgrp", chown(None, Some(gid)), group),
        set_call("utimes now", touch(rustix::fs::UTIME_NOW), now),
        set_call("utimes", touch(0), then),
    ]
}

/// chmod, whose rule also gives the new mode of the file.
fn chmod_call(random: &mut Random) -> Call {
    let mode = random.below(0o10000);
    let kernel = move |case: &Case| {
        let set = rustix::fs::chmodat(CWD, &case.file, Mode::from(mode), AtFlags::empty());
        outcome(set)
    };
    let rule = move |case: &Case, by: &Credentials| {
        access::check(by, &case.dir_target, mask::EXECUTE)?;
        let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let set = access::check_set_attributes(by, &case.file_target, &set)?;
        Ok(set.mode.expect("a mode"))
    };
    Call { name: "chmod", kernel: Box::new(kernel), rule: Box::new(rule) }
}

fn calls_on_content(random: &mut Random) -> Vec<Call> {
    let wanted = random.below(7) + 1;
    let rows = [(4, mask::READ_DATA), (2, mask::WRITE_DATA), (1, mask::EXECUTE)];
    let wanted_mask = rows.iter().filter(|row| wanted & row.0 != 0).map(|row| row.1).sum();
    let open_rows = [
        (OFlags::RDONLY, OpenMode::READ),
        (OFlags::WRONLY, OpenMode { read: false, ..OpenMode::READ_WRITE }),
        (OFlags::RDWR, OpenMode::READ_WRITE),
        (OFlags::RDONLY | OFlags::NOATIME, OpenMode { no_atime: true, ..OpenMode::READ }),
    ];
    let (flags, mode) = random.pick(&open_rows);
    vec![
        file_call(
            "access",
            move |path| {
                let access = Access::from_bits_retain(wanted);
                accessat(CWD, path, access, AtFlags::EACCESS)
            },
            move |target, by| access::check(by, target, wanted_mask),
        ),
        call(
            "open",
            move |case| {
                // a directory opens to read only
                let is_dir = case.file_target.kind.is_directory();
                let path = if is_dir && mode.write { &case.dir.join(".") } else { &case.file };
                let flags = if is_dir { OFlags::RDONLY } else { flags };
                openat(CWD, path, flags, Mode::empty()).map(drop)
            },
            move |case, by| {
                access::check(by, &case.dir_target, mask::EXECUTE)?;
                let is_dir = case.file_target.kind.is_directory();
                if is_dir && mode.write {
                    return access::check_open(by, &case.dir_target, OpenMode::READ);
                }
                let mode = if is_dir { OpenMode::READ } else { mode };
                access::check_open(by, &case.file_target, mode)
            },
        ),
        file_call(
            "setxattr",
            |path| match setxattr(path, "user.new", b"value", XattrFlags::empty()) {
                Err(Errno::OPNOTSUPP) => panic!("the test directory has no extended attributes"),
                set => set,
            },
            |target, by| access::check_set_xattr(by, target, b"user.new"),
        ),
        file_call(
            "getxattr",
            |path| rustix::fs::getxattr(path, "user.known", &mut [0; 16]).map(drop),
            |target, by| access::check_get_xattr(by, target, b"user.known"),
        ),
    ]
}

/// Makes a call as a caller, on a thread that has the caller's credentials and ends with the call.
fn run_as(by: &Credentials, given: CapabilitySet, case: &Case, call: &Call) -> Outcome {
    let kernel = &call.kernel;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let groups: Vec<Gid> = by.groups().iter().copied().map(Gid::from_raw).collect();
            rustix::thread::set_thread_groups(&groups).expect("setgroups");
            let (gid, uid) = (Gid::from_raw(by.gid), Uid::from_raw(by.uid));
            rustix::thread::set_thread_res_gid(gid, gid, gid).expect("setresgid");
            rustix::thread::set_thread_res_uid(uid, uid, uid).expect("setresuid");
            if by.uid == 0 {
                let sets = CapabilitySets {
                    effective: given,
                    permitted: given,
                    inheritable: CapabilitySet::empty(),
                };
                rustix::thread::set_capabilities(None, sets).expect("capset");
            }
            kernel(case)
        });
        thread.join().expect("the call returns")
    })
}

/// A directory that is removed when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn create() -> Self {
        let path = std::env::temp_dir().join(format!("posix-access-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a directory");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
        Self(path)
    }

    /// Whether files here have extended attributes: tmpfs has them since Linux 6.6.
    fn has_xattrs(&self) -> bool {
        setxattr(&self.0, "user.known", b"value", XattrFlags::empty()).is_ok()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn decisions_agree_with_the_kernel() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let scratch = Scratch::create();
    let has_xattrs = scratch.has_xattrs();
    let (mut allowed, mut refused) = (0, 0);
    for seed in 1..=1200_u64 {
        let random = &mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        random.below(2);
        let at = scratch.0.join(seed.to_string());
        fs::create_dir(&at).expect("mkdir");
        let case = Case::create(random, &at);
        let mut calls = calls_on_names(random);
        calls.extend(calls_on_attributes(random));
        calls.extend(calls_on_content(random));
        calls.push(chmod_call(random));
        calls.retain(|call| has_xattrs || !call.name.ends_with("xattr"));
        let index = random.below(u32::try_from(calls.len()).unwrap());
        let call = calls.swap_remove(usize::try_from(index).unwrap());
        let (by, given) = random.caller();
        let mut kernel = run_as(&by, given, &case, &call);
        let rule = (call.rule)(&case, &by);
        if call.name == "chmod" && kernel.is_ok() {
            kernel = Ok(fs::metadata(&case.file).expect("stat").mode() & 0o7777);
        }
        let Case { dir_target, file_target, .. } = &case;
        let name = call.name;
        assert_eq!(
            kernel, rule,
            "seed {seed}: {name} by {by:?} of {file_target:?} in {dir_target:?}"
        );
        *(if rule.is_ok() { &mut allowed } else { &mut refused }) += 1;
        fs::remove_dir_all(&at).expect("rm");
    }
    assert!(allowed > 100 && refused > 100, "{allowed} allowed, {refused} refused");
}
