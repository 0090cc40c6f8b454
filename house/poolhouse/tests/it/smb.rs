//! File systems by SMB: Samba's smbd as the daemon runs it, and smbclient.

use std::fs::Permissions;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::command::path_arg;
use crate::shares::{Running, free_port, lacks, run_client, shares};
use crate::test_nas::{TestNas, cannot_mount, mount_source, random_bytes};

const PASSWORD: &str = "geheim-7";

/// A daemon with a mounted file system that the user anna has by SMB.
struct SmbNas {
    nas: TestNas,
    port: u16,
}

/// Whether something is missing; prints so.
fn cannot_share() -> bool {
    cannot_mount() || ["smbd", "smbclient"].iter().any(|program| lacks(program))
}

/// The system user whose rights anna gets: one that is not root, if the tests can become another
/// user.
fn system_user() -> nix::unistd::User {
    let uid = nix::unistd::geteuid();
    let user = if uid.is_root() {
        nix::unistd::User::from_name("nobody")
    } else {
        nix::unistd::User::from_uid(uid)
    };
    user.unwrap().unwrap()
}

/// Runs `poolhouse` with text on its standard input.
fn run_with_input(nas: &TestNas, words: &str, input: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
    command.args(words.split_whitespace()).args(["--state", path_arg(&nas.state_dir())]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{words}: {}", nas.read_log());
}

impl SmbNas {
    fn start(name: &str) -> Self {
        let nas = TestNas::new(name, 1);
        nas.create_pool("tank", 1);
        nas.run_ok("zfs create tank/photos");
        let port = free_port();
        nas.run_ok(&format!("config set smb.listen {port}"));
        let user = system_user();
        run_with_input(&nas, &format!("user add anna --system-user {}", user.name), PASSWORD);
        nas.run_ok("share add smb tank/photos -o users=anna");
        let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
        std::os::unix::fs::chown(nas.altroot().join("tank/photos"), Some(uid), Some(gid)).unwrap();
        Self { nas, port }
    }

    fn dir(&self) -> PathBuf {
        self.nas.altroot().join("tank/photos")
    }

    /// A client of the share with commands; `password` is not in its arguments.
    fn client(&self, password: &str, commands: &str) -> Vec<String> {
        self.client_of("photos", password, commands)
    }

    fn client_of(&self, share: &str, password: &str, commands: &str) -> Vec<String> {
        let secret = self.nas.0.join(format!("secret-{password}"));
        std::fs::write(&secret, format!("username = anna\npassword = {password}\n")).unwrap();
        std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        let port = self.port.to_string();
        let share = format!("//127.0.0.1/{share}");
        let words = ["smbclient", "-A", path_arg(&secret), "-p", &port, &share];
        let mut words: Vec<_> = words.map(str::to_owned).to_vec();
        if !commands.is_empty() {
            words.extend(["-c".to_owned(), commands.to_owned()]);
        }
        words
    }

    fn run(&self, commands: &str) -> (bool, String) {
        let words = self.client(PASSWORD, commands);
        run_client(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn run_ok(&self, commands: &str) -> String {
        let (is_ok, said) = self.run(commands);
        assert!(is_ok && !said.contains("NT_STATUS"), "{commands}: {said}{}", self.log());
        said
    }

    /// Runs commands on a share.
    fn run_share_ok(&self, share: &str, commands: &str) -> String {
        let words = self.client_of(share, PASSWORD, commands);
        let (is_ok, said) = run_client(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(is_ok && !said.contains("NT_STATUS"), "{commands}: {said}{}", self.log());
        said
    }

    /// A client that stays connected, and first runs a command.
    fn stay(&self, command: &str) -> Running {
        self.stay_on("photos", command)
    }

    fn stay_on(&self, share: &str, command: &str) -> Running {
        let words = self.client_of(share, PASSWORD, "");
        let mut client = Command::new(&words[0]);
        client.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut client = client.spawn().unwrap();
        client.stdin.as_mut().unwrap().write_all(format!("{command}\n").as_bytes()).unwrap();
        Running(client)
    }

    fn log(&self) -> String {
        let path = self.nas.state_dir().join("smb/log.smbd");
        self.nas.read_log() + &std::fs::read_to_string(path).unwrap_or_default()
    }

    fn clients(&self) -> Vec<Value> {
        shares(&self.nas)[0]["clients"].as_array().unwrap().clone()
    }
}

#[test]
fn smb_clients_put_and_get_files() {
    if cannot_share() {
        return;
    }
    let smb = SmbNas::start("smb");
    let [share] = &shares(&smb.nas)[..] else { panic!("one share") };
    assert_eq!((&share["path"], &share["problem"]), (&"photos".into(), &Value::Null));
    assert_eq!((&share["address"], &share["port"]), (&"127.0.0.1".into(), &smb.port.into()));
    let (image, back) = (smb.nas.0.join("image"), smb.nas.0.join("back"));
    let bytes = random_bytes(3 << 20);
    std::fs::write(&image, &bytes).unwrap();
    let (put, get) = (path_arg(&image), path_arg(&back));
    smb.run_ok(&format!(
        "mkdir summer; cd summer; put {put} \"a ü.jpg\"; rename \"a ü.jpg\" b.jpg"
    ));
    assert!(std::fs::read(smb.dir().join("summer/b.jpg")).unwrap() == bytes);
    std::fs::write(smb.dir().join("letter"), "dear grandma").unwrap();
    let listed = smb.run_ok(&format!("get summer\\b.jpg {get}; ls"));
    assert!(std::fs::read(&back).unwrap() == bytes);
    assert!(listed.contains("letter") && listed.contains("summer"), "{listed}");
    smb.run_ok("rm summer\\b.jpg; rmdir summer");
    assert!(!smb.dir().join("summer").exists());

    // passwords: a wrong one, a new one, and none where others can read it
    let wrong = smb.client("wrong", "ls");
    let (_, said) = run_client(&wrong.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(said.contains("NT_STATUS_LOGON_FAILURE"), "{said}");
    run_with_input(&smb.nas, "user passwd anna", "another-8\n");
    assert!(smb.run("ls").1.contains("NT_STATUS_LOGON_FAILURE"));
    let changed = smb.client("another-8", "ls");
    let (is_ok, said) = run_client(&changed.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(is_ok && said.contains("letter"), "{said}");
    let mode = smb.nas.state_dir().join("smb").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0);
    assert!(!smb.log().contains(PASSWORD) && !smb.log().contains("another-8"));
    let user = system_user().name;
    let users = smb.nas.run_ok("user list --json");
    let users: Value = serde_json::from_str(&users).unwrap();
    assert_eq!((&users[0]["name"], &users[0]["system_user"]), (&"anna".into(), &user.into()));
    smb.nas.run_ok("user remove anna");
    assert_eq!(smb.nas.run_ok("user list --json").trim(), "[]");
    smb.nas.run_ok("serve --stop");
    assert!(TcpStream::connect(("127.0.0.1", smb.port)).is_err(), "smbd ends with the daemon");
}

#[test]
fn smb_shares_follow_their_file_systems() {
    if cannot_share() {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not checked: Samba tells the clients to root only");
        return;
    }
    let smb = SmbNas::start("smbfollow");
    let nas = &smb.nas;
    std::fs::write(smb.dir().join("letter"), "dear grandma").unwrap();
    let client = smb.stay("open letter");
    nas.wait_until(|| smb.clients().iter().any(|client| client["open"] == 1));
    assert_eq!(smb.clients()[0]["user"], system_user().name);
    // each process knows that the other one has the file open
    let second = smb.stay("open letter");
    nas.wait_until(|| smb.clients().iter().filter(|client| client["open"] == 1).count() == 2);
    drop(second);
    nas.wait_until(|| smb.clients().len() == 1);
    for words in ["zfs unmount tank/photos", "zfs rename tank/photos tank/pictures"] {
        let why = nas.run_failing(words, 1);
        assert!(why.contains("is in use: files that SMB clients have open: 1"), "{why}");
    }
    assert_eq!(mount_source(&smb.dir()).as_deref(), Some("tank/photos"));
    assert_eq!(smb.clients().len(), 1, "it stays connected");
    drop(client);
    nas.wait_until(|| smb.clients().is_empty());

    // a client without open files does not keep the file system from being unmounted
    let _client = smb.stay("ls");
    nas.wait_until(|| smb.clients().len() == 1);
    nas.run_ok("zfs unmount tank/photos");
    let problem = shares(nas)[0]["problem"].as_str().unwrap().to_owned();
    assert_eq!(problem, "'tank/photos' is not mounted: `zfs mount tank/photos`");
    nas.run_ok("zfs mount tank/photos");
    assert!(smb.run_ok("ls").contains("letter"));

    // umount(8) ends the share, too: clients would write to the directory below
    rustix::mount::unmount(smb.dir(), rustix::mount::UnmountFlags::DETACH).unwrap();
    nas.wait_until(|| shares(nas)[0]["problem"].as_str() == Some(problem.as_str()));
    assert!(!smb.run("ls").0, "the share has ended");
    nas.run_ok("zfs mount tank/photos");
    assert!(smb.run_ok("ls").contains("letter"));

    // an entry of the configuration follows its file system, under the name of the share that it has
    nas.run_ok("share remove smb tank/photos");
    nas.run_ok("share add smb tank/photos -o name=photos");
    nas.run_ok("zfs rename tank/photos tank/pictures");
    assert!(smb.run_ok("ls").contains("letter"));

    // smbd that dies is started again
    let pid = std::fs::read_to_string(nas.state_dir().join("smb-run/smbd.pid")).unwrap();
    let killed = Command::new("kill").args(["-9", pid.trim()]).status().unwrap();
    assert!(killed.success());
    nas.wait_until(|| smb.run("ls").1.contains("letter"));
    assert!(nas.read_log().contains("smbd ended"), "{}", nas.read_log());

    // the property shares it, too
    nas.run_ok("share remove smb photos");
    nas.run_ok("zfs set sharesmb=on tank/pictures");
    assert_eq!(shares(nas)[0]["path"], "tank_pictures");
    assert_eq!(shares(nas)[0]["problem"], Value::Null);
    nas.run_ok("zpool export tank");
    assert_eq!(shares(nas), [] as [Value; 0]);
}

/// The names of the snapshots that a client sees of a file, oldest first.
fn versions(smb: &SmbNas, file: &str) -> Vec<String> {
    let said = smb.run_ok(&format!("allinfo {file}"));
    let names = said.lines().filter(|line| line.starts_with("@GMT-"));
    let mut names: Vec<_> = names.map(|name| name.trim().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn smb_clients_see_snapshots_as_previous_versions() {
    if cannot_share() {
        return;
    }
    let smb = SmbNas::start("smbversions");
    let nas = &smb.nas;
    let back = nas.0.join("back");
    nas.run_ok("zfs create tank/photos/inner");
    std::fs::create_dir(smb.dir().join("d")).unwrap();
    let files = [smb.dir().join("d/letter"), smb.dir().join("inner/note")];
    let mut seen = Vec::new();
    for name in ["before the trip", "autosnap_2026-11-27_10:00:00_hourly"] {
        for file in &files {
            std::fs::write(file, name).unwrap();
        }
        let snapshot = format!("tank/photos@{}", name.replace(' ', "_"));
        nas.run_ok(&format!("zfs snapshot -r {snapshot}"));
        seen.push(name);
        // names of snapshots have whole seconds
        std::thread::sleep(std::time::Duration::from_millis(1100));
    }
    for file in &files {
        std::fs::write(file, "now").unwrap();
    }
    for file in ["d\\letter", "inner\\note"] {
        let versions = versions(&smb, file);
        assert_eq!(versions.len(), 2, "{versions:?}");
        for (version, content) in versions.iter().zip(&seen) {
            smb.run_ok(&format!("get {version}\\{file} {}", path_arg(&back)));
            assert_eq!(std::fs::read_to_string(&back).unwrap(), **content, "{version}");
        }
        smb.run_ok(&format!("get {file} {}", path_arg(&back)));
        assert_eq!(std::fs::read_to_string(&back).unwrap(), "now");
    }
    let oldest = &versions(&smb, "d\\letter")[0];
    let listed = smb.run_ok(&format!("ls {oldest}\\d\\*"));
    assert!(listed.contains("letter"), "{listed}");
    // a version cannot be changed
    let (_, said) = smb.run(&format!("rm {oldest}\\d\\letter"));
    assert!(said.contains("NT_STATUS"), "{said}");
    nas.run_ok("zfs set snapdir=disabled tank/photos");
    // the kernel keeps the name `.zfs` for a moment
    nas.wait_until(|| versions(&smb, "d\\letter").is_empty());
}

/// Writes the list of finished backups of a Mac, as `backupd` does at the end of each.
fn finish_backup(smb: &SmbNas, number: u32) {
    let list = smb.nas.0.join("history");
    std::fs::write(&list, format!("<plist><!-- {number} backups --></plist>")).unwrap();
    let name = "mac.sparsebundle\\com.apple.TimeMachine.SnapshotHistory.plist";
    let put = format!("put {} {name}", path_arg(&list));
    smb.run_share_ok("timemachine-anna", &put);
}

#[test]
fn finished_backups_get_snapshots_to_roll_back_to() {
    if cannot_share() {
        return;
    }
    let smb = SmbNas::start("timemachine");
    let nas = &smb.nas;
    nas.run_ok("config set timemachine.settle 1");
    let why = nas.run_failing("timemachine add ben tank/tm/ben", 14);
    assert!(why.contains("there is no user 'ben'"), "{why}");
    nas.run_ok("timemachine add anna tank/tm/anna --quota 32M");
    let listed = || -> Value {
        let said = nas.run_ok("timemachine list --json");
        serde_json::from_str::<Value>(&said).unwrap()[0].clone()
    };
    assert_eq!((&listed()["user"], &listed()["quota"]), (&"anna".into(), &(32 << 20).into()));
    let conf = std::fs::read_to_string(nas.state_dir().join("smb/smb.conf")).unwrap();
    assert!(conf.contains("fruit:time machine max size = 33554432"), "{conf}");
    let mode = nas.altroot().join("tank/tm/anna").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    // data alone is not a finished backup
    let band = nas.0.join("band");
    std::fs::write(&band, "first").unwrap();
    smb.run_share_ok(
        "timemachine-anna",
        &format!("mkdir mac.sparsebundle; put {} mac.sparsebundle\\0", path_arg(&band)),
    );
    finish_backup(&smb, 1);
    let snapshots = || listed()["snapshots"].as_array().unwrap().clone();
    nas.wait_until(|| snapshots().len() == 1);
    assert!(
        listed()["last_backup"].as_u64() > Some(1_700_000_000) && listed()["problem"].is_null()
    );
    std::fs::write(&band, "broken").unwrap();
    let put = format!("put {} mac.sparsebundle\\0", path_arg(&band));
    smb.run_share_ok("timemachine-anna", &put);

    // a Mac that is connected is disconnected
    let mac = smb.stay_on("timemachine-anna", "open mac.sparsebundle\\0");
    if nix::unistd::geteuid().is_root() {
        let is_used = |share: &Value| share["clients"] != Value::Array(Vec::new());
        nas.wait_until(|| shares(nas).iter().any(is_used));
    }
    let said = nas.run_ok("timemachine rollback anna");
    assert!(said.contains("timemachine_20") && said.contains("tank/tm/anna@"), "{said}");
    drop(mac);
    let back = nas.0.join("back");
    let get = format!("get mac.sparsebundle\\0 {}", path_arg(&back));
    smb.run_share_ok("timemachine-anna", &get);
    assert_eq!(std::fs::read_to_string(&back).unwrap(), "first");
    assert_eq!(snapshots().len(), 1, "the rollback is not a backup");

    finish_backup(&smb, 2);
    nas.wait_until(|| snapshots().len() == 2);
    let oldest = snapshots()[0]["name"].as_str().unwrap().to_owned();
    let why = nas.run_failing(&format!("timemachine rollback anna {oldest}"), 14);
    assert!(why.contains("use '-r' to force deletion"), "{why}");
    nas.run_ok(&format!("timemachine rollback -r anna {oldest}"));
    assert_eq!(snapshots().len(), 1);
}

/// The bytes of an extended attribute of a file.
fn xattr(path: &std::path::Path, name: &str) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 4096];
    let length = rustix::fs::getxattr(path, name, bytes.as_mut_slice()).ok()?;
    bytes.truncate(length);
    Some(bytes)
}

#[test]
fn files_of_smb_clients_inherit_nfs4_acls() {
    if cannot_share() {
        return;
    }
    let smb = SmbNas::start("smbacls");
    let nas = &smb.nas;
    nas.run_ok("share remove smb tank/photos");
    nas.run_ok("share add smb tank/photos -o users=anna -o nfs4_acls=true");
    let problem = shares(nas)[0]["problem"].as_str().unwrap().to_owned();
    assert!(problem.contains("`zfs set acltype=nfsv4 tank/photos`"), "{problem}");
    nas.run_ok("zfs set acltype=nfsv4 tank/photos");
    nas.run_ok("zfs set aclinherit=passthrough tank/photos");
    nas.wait_until(|| xattr(&smb.dir(), "system.nfs4_acl").is_some());
    // one entry: the owner may do all, inherited by files and directories
    let who = b"OWNER@\0\0";
    let words: [u32; 5] = [1, 0, 0x3, 0x001f_01ff, 6];
    let acl: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).chain(*who).collect();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(smb.dir(), "system.nfs4_acl", &acl, flags).unwrap();
    let local = nas.0.join("local");
    std::fs::write(&local, "dear grandma").unwrap();
    smb.run_ok(&format!("put {} letter; get letter {}", path_arg(&local), path_arg(&local)));
    let file = smb.dir().join("letter");
    let inherited = xattr(&file, "system.nfs4_acl").unwrap();
    assert!(!inherited.windows(9).any(|part| part == b"EVERYONE@"), "{inherited:?}");
    // the permissions are not kept beside the ACL, where NFS clients would not see them
    assert_eq!(xattr(&file, "security.NTACL"), None);
}

#[test]
fn shares_of_other_servers_are_imported() {
    let nas = TestNas::new("smbimport", 1);
    nas.create_pool("tank", 1);
    nas.run_ok("zfs create tank/photos");
    if cannot_mount() {
        return;
    }
    let dir = nas.altroot().join("tank/photos");
    let (exports, conf) = (nas.0.join("exports"), nas.0.join("smb.conf"));
    let dir = path_arg(&dir);
    std::fs::write(&exports, format!("{dir} 10.0.0.0/24(rw,insecure)\n/srv *(ro)\n")).unwrap();
    std::fs::write(&conf, format!("[photos]\npath = {dir}\nvalid users = anna\n")).unwrap();
    let words = format!("share import {} {}", path_arg(&exports), path_arg(&conf));
    let run = |words: &str| nas.run(words).stdout;
    let planned = run(&format!("{words} -n"));
    assert!(
        planned.contains("dataset = \"tank/photos\"") && planned.contains("'/srv'"),
        "{planned}"
    );
    assert_eq!(shares(&nas), [] as [Value; 0]);
    run(&words);
    let added = shares(&nas);
    let names: Vec<_> = added.iter().map(|it| (&it["protocol"], &it["read_only"])).collect();
    assert_eq!(names, [(&"nfs".into(), &false.into()), (&"smb".into(), &true.into())]);
    let again = run(&words);
    assert!(again.contains("is shared by NFS already"), "{again}");
}
