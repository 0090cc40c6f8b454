//! Connect, properties, discovery, and the end of controllers.

use std::time::Duration;

use nvmet::ServerOptions;

use crate::host::{
    Connect, DISCOVERY, Entry, Host, Queue, SUBSYSTEM, enable, host_name, le16, le32, le64,
    log_page,
};
use crate::served_pool::{ServedPool, options, start_server, subsystem, wait_until};

const INVALID_PARAMETER: u16 = 0x182;
const INVALID_HOST: u16 = 0x184;
const COMMAND_SEQUENCE: u16 = 0x00c;

#[test]
fn discovery_names_subsystems_of_the_host() {
    let served = ServedPool::start();
    let mut private = subsystem(&served.namespace);
    private.name = "nqn.2026-01.org.example:private".to_owned();
    private.hosts = vec![host_name(2)];
    served.server.set_subsystems(vec![subsystem(&served.namespace), private.clone()]).unwrap();
    for (host, names) in
        [(1, vec![DISCOVERY, SUBSYSTEM]), (2, vec![DISCOVERY, SUBSYSTEM, &private.name])]
    {
        let mut admin = Queue::open(served.address(), 0);
        let connect = Connect { subsystem: DISCOVERY, host, ..Connect::default() };
        assert_eq!(connect.run(&mut admin).status, 0);
        enable(&mut admin);
        let length = 1024 * (names.len() + 1);
        let page = log_page(&mut admin, 0x70, length).data;
        assert_eq!(le64(&page, 8), u64::try_from(names.len()).unwrap());
        let text = |at: usize, size: usize| {
            let text = page[at..at + size].split(|byte| *byte == 0).next().unwrap();
            std::str::from_utf8(text).unwrap().to_owned()
        };
        for (number, name) in names.iter().enumerate() {
            let at = 1024 * (number + 1);
            assert_eq!(
                (text(at + 256, 256), text(at + 512, 256)),
                ((*name).to_owned(), "127.0.0.1".to_owned())
            );
            assert_eq!(text(at + 32, 32), served.address().port().to_string());
        }
    }
}

#[test]
fn wrong_connects_are_refused() {
    let served = ServedPool::start();
    let good = served.host();
    let status = |connect: Connect<'_>| {
        let mut queue = Queue::open(served.address(), 0);
        let done = connect.run(&mut queue);
        assert!(done.status == 0 || queue.receive().is_none(), "the connection ends");
        done.status
    };
    let connect = Connect::default();
    assert_eq!(
        status(Connect { subsystem: "nqn.2026-01.org.example:other", ..connect }),
        INVALID_PARAMETER
    );
    assert_eq!(status(Connect { subsystem: "disk", ..connect }), INVALID_PARAMETER);
    assert_eq!(status(Connect { controller: 5, ..connect }), INVALID_PARAMETER);
    assert_eq!(status(Connect { last_entry: 0, ..connect }), INVALID_PARAMETER);
    assert_eq!(status(Connect { last_entry: u16::MAX, ..connect }), INVALID_PARAMETER);
    // an I/O queue of another host, of an unknown controller, a second time, with a wrong number
    let io = Connect { queue: 2, controller: good.controller, ..connect };
    assert_eq!(status(Connect { host: 2, ..io }), INVALID_PARAMETER);
    assert_eq!(status(Connect { controller: 77, ..io }), INVALID_PARAMETER);
    assert_eq!(status(Connect { queue: 1, ..io }), INVALID_PARAMETER);
    assert_eq!(status(Connect { queue: 5000, ..io }), INVALID_PARAMETER);
    assert_eq!(status(io), 0);
}

#[test]
fn commands_before_connect_are_refused() {
    let served = ServedPool::start();
    let mut queue = Queue::open(served.address(), 0);
    assert_eq!(queue.read(0, 1).status, COMMAND_SEQUENCE);
    assert_eq!(queue.read_property(0, true).status, COMMAND_SEQUENCE);
    let connected = Connect::default().run(&mut queue);
    assert_eq!(connected.status, 0);
    // an I/O queue needs an enabled controller
    let mut io = Queue::open(served.address(), 0);
    let controller = le16(&connected.result.to_le_bytes(), 0);
    let connect = Connect { queue: 1, controller, ..Connect::default() };
    assert_eq!(connect.run(&mut io).status, 0x181);
    assert_eq!(Connect::default().run(&mut queue).status, 0x002, "connected already");
}

#[test]
fn hosts_outside_of_the_list_are_refused() {
    let served = ServedPool::start();
    let mut private = subsystem(&served.namespace);
    private.hosts = vec![host_name(7)];
    let mut host = served.host();
    served.server.set_subsystems(vec![private]).unwrap();
    // the controller of the host ends
    assert!(host.io.receive().is_none());
    let mut queue = Queue::open(served.address(), 0);
    assert_eq!(Connect::default().run(&mut queue).status, INVALID_HOST);
    assert_eq!(Host::connect(served.address(), 7).io.read(0, 1).status, 0);
    let mut closed = subsystem(&served.namespace);
    closed.networks = vec!["10.0.0.0/8".parse().unwrap()];
    served.server.set_subsystems(vec![closed]).unwrap();
    let mut queue = Queue::open(served.address(), 0);
    assert_eq!(Connect::default().run(&mut queue).status, INVALID_PARAMETER);
}

#[test]
fn reload_keeps_hosts_connected() {
    let served = ServedPool::start();
    let mut host = served.host();
    let mut more = subsystem(&served.namespace);
    more.name = "nqn.2026-01.org.example:more".to_owned();
    served.server.set_subsystems(vec![subsystem(&served.namespace), more]).unwrap();
    assert_eq!(host.io.write(0, &[7; 512]).status, 0);
    let status = served.server.status();
    assert_eq!(status.controllers.len(), 1);
    let controller = &status.controllers[0];
    assert_eq!((controller.host.as_str(), controller.queues), (host_name(1).as_str(), 1));
    assert_eq!(controller.counters.written_bytes, 512);
}

#[test]
fn controllers_end_with_their_admin_queue() {
    let served = ServedPool::start();
    let Host { admin, mut io, .. } = served.host();
    drop(admin);
    assert!(io.receive().is_none());
    wait_until("the end of the controller", || served.server.status().controllers.is_empty());
    assert_eq!(served.host().io.read(0, 1).status, 0);
}

#[test]
fn disconnect_ends_one_queue() {
    let served = ServedPool::start();
    let mut host = served.host();
    assert_eq!(host.io.run(Entry::new(0x7f, 8)).status, 0);
    assert!(host.io.receive().is_none());
    wait_until("the end of the queue", || served.server.status().controllers[0].queues == 0);
    let mut io = Queue::open(served.address(), 0);
    let connect = Connect { queue: 1, controller: host.controller, ..Connect::default() };
    assert_eq!(connect.run(&mut io).status, 0);
    assert_eq!(io.read(0, 1).status, 0);
}

#[test]
fn silent_hosts_lose_their_controller() {
    let served = ServedPool::start();
    let connect = Connect { keep_alive: 1, ..Connect::default() };
    let mut silent = Host::connect_with(served.address(), 0, connect);
    let patient = Connect { host: 2, ..Connect::default() };
    let mut patient = Host::connect_with(served.address(), 0, patient);
    assert!(silent.io.receive().is_none());
    assert!(silent.admin.receive().is_none());
    assert_eq!(patient.io.read(0, 1).status, 0);
    wait_until("the end of the controller", || served.server.status().controllers.len() == 1);
}

#[test]
fn keep_alive_of_the_options_holds_for_all() {
    let limit = Some(Duration::from_millis(1));
    let served = ServedPool::start_with(&ServerOptions { max_keep_alive: limit, ..options() });
    let mut silent = Host::connect_with(served.address(), 0, Connect::default());
    assert!(silent.admin.receive().is_none());
}

#[test]
fn controller_properties_are_those_of_fabrics() {
    let served = ServedPool::start();
    let mut host = served.host();
    let capabilities = host.admin.read_property(0, true).result;
    // 128 entries, contiguous queues, the NVM command set
    assert_eq!(
        (capabilities & 0xffff, capabilities >> 16 & 1, capabilities >> 37 & 0xff),
        (127, 1, 1)
    );
    assert_eq!(host.admin.read_property(8, false).result, 0x0002_0000);
    assert_eq!(host.admin.read_property(0x9999, false).status, 2);
    // a shutdown is complete when it is answered
    assert_eq!(host.admin.write_property(0x14, 0x0046_4001).status, 0);
    assert_eq!(host.admin.read_property(0x1c, false).result >> 2 & 3, 2);
    let page = host.identify(1, 0).data;
    assert_eq!(le32(&page, 80), 0x0002_0000);
    assert_eq!(page[77], 8, "1 MiB");
    assert!(page[768..].starts_with(SUBSYSTEM.as_bytes()));
    assert_eq!(le16(&page, 78), host.controller);
}

#[test]
fn names_outlast_the_server() {
    let served = ServedPool::start();
    let names = |host: &mut Host| host.identify(3, 1).data[..80].to_vec();
    let before = names(&mut served.host());
    assert_eq!((before[0], before[12], before[32]), (1, 2, 3));
    assert_eq!(served.server.stop(), 0);
    let again = start_server(&options(), vec![subsystem(&served.namespace)]);
    let mut host = Host::connect(again.addresses()[0], 1);
    assert_eq!(names(&mut host), before);
    assert_eq!(host.identify(0, 1).data[104..120], before[16..32], "NGUID");
}

#[test]
fn features_are_read_and_set() {
    let served = ServedPool::start();
    let mut host = served.host();
    let set = |number, value| Entry::new(9, 0).dword(10, number).dword(11, value);
    // more queues than there are
    assert_eq!(host.admin.run(set(7, 0x3_0063)).result, 0x3_000f);
    assert_eq!(host.admin.run(set(0x0f, 5000)).status, 0);
    assert_eq!(host.admin.run(Entry::new(0x0a, 0).dword(10, 0x0f)).result, 5000);
    assert_eq!(host.admin.run(set(0x99, 1)).status, 2);
    let id = host.admin.run_for(Entry::new(0x0a, 0).dword(10, 0x81), 16);
    assert_eq!(id.data, [1; 16]);
}
