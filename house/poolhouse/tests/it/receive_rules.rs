//! The rules of `zfs receive`: received properties, refusals, dry runs and quotas.

use crate::command::path_arg;
use crate::streams::{import_fixture, import_sent, receive_file, send_to_file};
use crate::test_nas::{TestNas, cannot_mount, random_bytes};

/// Sends and receives; returns the exit status and the words of the receive.
fn pass(nas: &TestNas, send: &str, receive: &str) -> (i32, String) {
    send_to_file(nas, send);
    receive_file(nas, receive, &nas.0.join("sent.zstream"))
}

fn pass_ok(nas: &TestNas, send: &str, receive: &str) {
    let (status, said) = pass(nas, send, receive);
    assert_eq!((status, said.as_str()), (0, ""), "{send} | {receive}");
}

fn property(nas: &TestNas, words: &str) -> String {
    nas.run_ok(&format!("zfs get -Ho value,source {words}")).trim().to_owned()
}

#[test]
fn received_properties_follow_the_sender() {
    let nas = import_sent("recv-props");
    nas.run_ok("zfs create -o mountpoint=none -o compression=gzip-3 -o test:note=kept tank/src");
    nas.run_ok("zfs set quota=1G tank/src");
    nas.run_ok("zfs snapshot -o test:of=snapshot tank/src@a");
    pass_ok(&nas, "zfs send -p tank/src@a", "zfs receive -u -x quota tank/dst");
    assert_eq!(property(&nas, "compression tank/dst"), "gzip-3\treceived");
    assert_eq!(property(&nas, "quota tank/dst"), "none\tdefault");
    assert_eq!(property(&nas, "test:of tank/dst@a"), "snapshot\treceived");
    nas.run_ok("zfs set atime=off tank/dst");
    nas.run_ok("zfs inherit test:note tank/src");
    nas.run_ok("zfs snapshot tank/src@b");
    pass_ok(
        &nas,
        "zfs send -p -i @a tank/src@b",
        "zfs receive -u -x compression -x atime -x exec tank/dst",
    );
    assert_eq!(property(&nas, "test:note tank/dst"), "-\t-");
    assert_eq!(property(&nas, "quota tank/dst"), "1G\treceived");
    assert_eq!(property(&nas, "atime tank/dst"), "off\tlocal");
    assert_eq!(property(&nas, "exec tank/dst"), "on\tdefault");
    assert!(property(&nas, "compression tank/dst").ends_with("inherited from tank"));
    // the hidden value is there
    nas.run_ok("zfs inherit -S compression tank/dst");
    assert_eq!(property(&nas, "compression tank/dst"), "gzip-3\treceived");
}

#[test]
fn set_property_is_inherited_below_the_top() {
    let nas = import_sent("recv-top");
    nas.run_ok("zfs create -o mountpoint=none -o compression=gzip-3 tank/src");
    nas.run_ok("zfs create -o compression=lz4 tank/src/child");
    nas.run_ok("zfs snapshot -r tank/src@a");
    pass_ok(&nas, "zfs send -R tank/src@a", "zfs receive -u -o compression=zstd tank/dst");
    assert_eq!(property(&nas, "compression tank/dst"), "zstd\tlocal");
    assert_eq!(property(&nas, "compression tank/dst/child"), "zstd\tinherited from tank/dst");
}

#[test]
fn dry_run_does_not_check_the_base() {
    let nas = import_sent("recv-dry");
    for words in ["zfs create -o mountpoint=none tank/src", "zfs snapshot tank/src@a"] {
        nas.run_ok(words);
    }
    pass_ok(&nas, "zfs send tank/src@a", "zfs receive -u tank/dst");
    nas.run_ok("zfs snapshot tank/src@b");
    nas.run_ok("zfs snapshot tank/dst@newer");
    let (status, _) = pass(&nas, "zfs send -i @a tank/src@b", "zfs receive tank/dst");
    assert_eq!(status, 1);
    pass_ok(&nas, "zfs send -i @a tank/src@b", "zfs receive -n tank/dst");
    let (status, said) = pass(&nas, "zfs send -i @a tank/src@b", "zfs receive -n tank/none");
    assert!(status == 1 && said.contains("destination 'tank/none' does not exist"), "{said}");
}

#[test]
fn replacing_receive_is_refused_in_known_words() {
    let nas = import_fixture("recv-replace", "sent-raw");
    nas.run_ok("zfs create -s -V 1M tank/disk");
    nas.run_ok("zfs snapshot tank/disk@a");
    nas.run_ok("zfs create -o mountpoint=none tank/top");
    nas.run_ok("zfs create tank/top/below");
    for (send, receive, words) in [
        ("tank/disk@a", "tank/top", "must specify -F to overwrite it"),
        ("tank/disk@a", "-F tank/top", "destination has children (eg. tank/top/below)"),
        ("tank/disk@a", "-F tank/plain", "destination has snapshots (eg. tank/plain@one)"),
        ("-w tank/secret@one", "-F tank/top/below", "an unencrypted one with an encrypted one"),
    ] {
        let (status, said) =
            pass(&nas, &format!("zfs send {send}"), &format!("zfs receive -u {receive}"));
        assert!(status == 1 && said.contains(words), "{receive}: {said}");
    }
    nas.run_ok("zfs destroy tank/top/below");
    pass_ok(&nas, "zfs send tank/disk@a", "zfs receive -F tank/top");
    assert_eq!(property(&nas, "type tank/top"), "volume\t-");
}

#[test]
fn receive_obeys_the_refquota_of_its_target() {
    let nas = import_sent("recv-refquota");
    if cannot_mount() {
        return;
    }
    nas.run_ok("zfs create -o mountpoint=/src tank/src");
    nas.run_ok("zfs create -o refquota=1M tank/dst");
    std::fs::write(nas.altroot().join("src/file"), random_bytes(3 << 20)).unwrap();
    nas.run_ok("zfs snapshot tank/src@a");
    let (status, said) = pass(&nas, "zfs send tank/src@a", "zfs receive -F tank/dst");
    assert!(status == 1 && said.contains("space quota exceeded"), "{said}");
    nas.run_failing("zfs list tank/dst@a", 1);
    nas.run_ok("zfs set refquota=none tank/dst");
    pass_ok(&nas, "zfs send tank/src@a", "zfs receive -F tank/dst");
    nas.run_ok("zfs list tank/dst@a");
    // a received one is set after the data, which may exceed it
    nas.run_ok("zfs create -o mountpoint=/other tank/other");
    let file = nas.altroot().join("other/file");
    std::fs::write(&file, random_bytes(3 << 20)).unwrap();
    nas.run_ok("zfs snapshot tank/other@a");
    std::fs::remove_file(&file).unwrap();
    nas.run_ok("zfs snapshot tank/other@b");
    nas.run_ok("zfs set refquota=1M tank/other");
    pass_ok(&nas, "zfs send -R tank/other@b", "zfs receive -u tank/copy");
    assert_eq!(property(&nas, "refquota tank/copy"), "1M\treceived");
}

#[test]
fn mount_follows_a_received_mountpoint() {
    let nas = import_sent("recv-mountpoint");
    if cannot_mount() {
        return;
    }
    nas.run_ok("zfs create -o mountpoint=/src tank/src");
    std::fs::write(nas.altroot().join("src/file"), "text").unwrap();
    nas.run_ok("zfs snapshot tank/src@a");
    pass_ok(&nas, "zfs send tank/src@a", "zfs receive -o mountpoint=/first tank/dst");
    assert!(nas.altroot().join("first/file").exists());
    nas.run_ok("zfs snapshot tank/src@b");
    pass_ok(&nas, "zfs send -i @a tank/src@b", "zfs receive -o mountpoint=/second tank/dst");
    assert!(!nas.altroot().join("first/file").exists());
    assert!(nas.altroot().join("second/file").exists());
}

#[test]
fn raw_tree_gets_the_senders_key_location() {
    let nas = import_fixture("recv-keylocation", "sent-raw");
    let key = nas.0.join("user.key");
    std::fs::write(&key, "correct horse battery staple").unwrap();
    let location = format!("file://{}", path_arg(&key));
    nas.run_ok(&format!("zfs load-key -L {location} tank/secret"));
    nas.run_ok(&format!("zfs set keylocation={location} tank/secret"));
    pass_ok(&nas, "zfs send -w -p tank/secret@two", "zfs receive -u tank/safe");
    assert_eq!(property(&nas, "keylocation tank/safe"), format!("{location}\tlocal"));
    nas.run_ok("zfs load-key tank/safe");
}

#[test]
fn received_tree_gets_one_key_of_its_own() {
    let nas = import_sent("recv-key");
    let file = nas.0.join("key");
    let key = path_arg(&file);
    std::fs::write(&file, "correct horse battery staple\n").unwrap();
    nas.run_ok("zfs create -o mountpoint=none tank/src");
    nas.run_ok("zfs create tank/src/child");
    nas.run_ok("zfs snapshot -r tank/src@a");
    nas.run_ok("zfs snapshot -r tank/src@b");
    let own = format!("-o encryption=on -o keyformat=passphrase -o keylocation=file://{key}");
    pass_ok(&nas, "zfs send -R tank/src@b", &format!("zfs receive -u {own} tank/dst"));
    let facts = "zfs get -Ho value encryption,encryptionroot,keystatus tank/dst tank/dst/child";
    assert_eq!(nas.run_ok(facts), "aes-256-gcm\ntank/dst\navailable\n".repeat(2));
    assert_eq!(property(&nas, "keylocation tank/dst"), format!("file://{key}\tlocal"));
    // below an encrypted file system, and without a key that standard input would have to bring
    pass_ok(&nas, "zfs send -R tank/src@b", "zfs receive -u -x encryption tank/dst/below");
    let root = nas.run_ok("zfs get -Ho value encryptionroot tank/dst/below/child");
    assert_eq!(root, "tank/dst\n");
    let prompt = "zfs receive -u -o encryption=on -o keyformat=passphrase tank/other";
    let (status, said) = pass(&nas, "zfs send tank/src@a", prompt);
    assert!(status == 2 && said.contains("stdin is in use"), "{status} {said}");
    let (status, said) = pass(&nas, "zfs send -w tank/dst@a", "zfs receive -x encryption tank/raw");
    assert!(status == 1 && said.contains("or excluded for raw streams"), "{status} {said}");
}

#[test]
fn raw_increment_brings_a_new_encryption_root() {
    let nas = import_sent("recv-newroot");
    let (words, digits) = (nas.0.join("words"), nas.0.join("digits"));
    std::fs::write(&words, "correct horse battery staple").unwrap();
    std::fs::write(&digits, "5a".repeat(32)).unwrap();
    let [words, digits] = [&words, &digits].map(|file| format!("file://{}", path_arg(file)));
    let key = format!("-o encryption=on -o keyformat=passphrase -o keylocation={words}");
    nas.run_ok(&format!("zfs create -o mountpoint=none {key} tank/src"));
    nas.run_ok("zfs create tank/src/child");
    nas.run_ok("zfs snapshot -r tank/src@a");
    pass_ok(&nas, "zfs send -w -R tank/src@a", "zfs receive -u tank/dst");
    nas.run_ok(&format!("zfs change-key -o keyformat=hex -o keylocation={digits} tank/src/child"));
    nas.run_ok("zfs snapshot -r tank/src@b");
    pass_ok(&nas, "zfs send -w -R -i @a tank/src@b", "zfs receive -u tank/dst");
    let facts = "zfs get -Ho value encryptionroot,keylocation tank/dst/child";
    assert_eq!(nas.run_ok(facts), format!("tank/dst/child\n{digits}\n"));
    nas.run_ok("zfs load-key tank/dst/child");
    nas.run_ok(&format!("zfs load-key -L {words} tank/dst"));
}

#[test]
fn stream_with_holds_may_be_named() {
    let nas = import_sent("recv-holds");
    nas.run_ok("zfs create -o mountpoint=none tank/src");
    nas.run_ok("zfs snapshot tank/src@a");
    nas.run_ok("zfs hold kept tank/src@a");
    pass_ok(&nas, "zfs send -h tank/src@a", "zfs receive -u tank/dst@first");
    assert!(nas.run_ok("zfs holds tank/dst@first").contains("kept"));
    nas.run_ok("zfs snapshot tank/src@b");
    pass_ok(&nas, "zfs send -p -i @a tank/src@b", "zfs receive -u tank/dst@second");
    nas.run_ok("zfs list tank/dst@second");
    let (status, said) = pass(&nas, "zfs send -R tank/src@b", "zfs receive -u tank/all@one");
    assert!(status == 1 && said.contains("keeps their names"), "{status} {said}");
}

#[test]
fn unknown_received_property_is_no_failure() {
    let nas = import_sent("recv-unknown");
    let drive = nas.0.join("old.img");
    std::fs::File::create(&drive).unwrap().set_len(96 << 20).unwrap();
    let drive = path_arg(&drive);
    nas.run_ok(&format!(
        "zpool create -O mountpoint=none -o feature@large_blocks=disabled \
         -o feature@large_microzap=disabled old {drive}"
    ));
    nas.run_ok("zfs create -o mountpoint=none -o recordsize=1M tank/src");
    nas.run_ok("zfs snapshot tank/src@a");
    let (status, said) = pass(&nas, "zfs send -p tank/src@a", "zfs receive -u old/dst");
    assert!(said.contains("cannot receive recordsize property on old/dst"), "{said}");
    assert_eq!(status, 0, "{said}");
    nas.run_ok("zfs list old/dst@a");
}
