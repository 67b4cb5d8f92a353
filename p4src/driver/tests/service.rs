//! The model through the driver's interface, with cables for ports.

use calumma_bfrt::client::update;
use calumma_bfrt::proto::{Entity, EntityKind, UpdateType};
use calumma_bfrt::{Client, ClientError, Match, Options, Value};
use calumma_interface::{Cable, MAX_FRAME, Plug};
use calumma_tna::{Program, Switch};
use calumma_tna_driver::{Driver, Pipe, Port};
use tokio::net::TcpListener;
use tonic::Code;

/// The edge program, served, with cables at its ports 1 and 2.
async fn served() -> (Options, [Cable; 2]) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../edge.p4");
    let program = Program::load(path, &[]).unwrap();
    let (near, far): (Vec<_>, Vec<_>) = (0..2).map(|_| Cable::pair().unwrap()).unzip();
    let ports = (1..).zip(far).map(|(number, cable)| Port { number, plug: Box::new(cable) });
    let (pipe, _) = Pipe::start(Switch::new(&program), ports.collect()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let driver = Driver::new(pipe, "edge", &program);
    tokio::spawn(driver.serve_on(listener, std::future::pending()));
    let options = Options { address, device: 0, client: 1, program: "edge".to_owned() };
    (options, near.try_into().unwrap())
}

#[tokio::test]
async fn entries_that_were_written_can_be_read_and_forward_packets() {
    let (options, [mut one, mut two]) = served().await;
    let client = Client::connect(options).await.unwrap();
    let table = client.info().table("port_pair").unwrap();
    let key = table.key(&[("ingress_port", Match::Exact(1))]).unwrap();
    let data = table.data(Some("send"), &[("port", Value::Number(2))]).unwrap();
    let entry = table.entry(Some(key), Some(data));
    client.write(vec![update(UpdateType::Insert, entry.clone())]).await.unwrap();
    let all = client.read(vec![table.entry(None, None)]).await.unwrap();
    // What happens on a miss comes along.
    let miss = table.default_entry(table.data(Some("NoAction"), &[]).unwrap());
    let wrapped =
        all.into_iter().map(|entry| Entity { entity: Some(EntityKind::TableEntry(entry)) });
    assert_eq!(wrapped.collect::<Vec<_>>(), [entry, miss]);

    one.send(&[9; 64]);
    let mut buffer = vec![0; MAX_FRAME];
    let frame = loop {
        match two.receive(&mut buffer) {
            Some(frame) => break frame.to_vec(),
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(frame, [9; 64]);
    // Neither from a host nor measured.
    let counted = client.elements("Ingress.packets", 0..4).await.unwrap();
    assert_eq!(counted.iter().map(|cell| cell[0]).collect::<Vec<_>>(), [1, 0, 0, 0]);
}

#[tokio::test]
async fn the_update_that_failed_is_named_and_the_others_are_done() {
    let (options, _cables) = served().await;
    let client = Client::connect(options).await.unwrap();
    let ports = client.info().table("Ingress.host_ports").unwrap();
    let entry = |port| {
        let key = ports.key(&[("ingress_port", Match::Exact(port))]).unwrap();
        ports.entry(Some(key), Some(ports.data(Some("host"), &[]).unwrap()))
    };
    let insert = |port| update(UpdateType::Insert, entry(port));
    let error = client.write(vec![insert(1), insert(1), insert(2)]).await.unwrap_err();
    match &error {
        ClientError::Refused { table, code, .. } => {
            assert_eq!((&**table, *code), ("pipe.Ingress.host_ports", Code::AlreadyExists));
        }
        other => panic!("{other:?}"),
    }
    // Two ports, and what happens on a miss.
    assert_eq!(client.read(vec![ports.entry(None, None)]).await.unwrap().len(), 3);
}

#[tokio::test]
async fn registers_are_written_read_and_cleared() {
    let (options, _cables) = served().await;
    let client = Client::connect(options).await.unwrap();
    let name = "Egress.downstream.array1.counts";
    let register = client.info().table(name).unwrap();
    let data = register.data(None, &[("counts.f1", Value::Number(77))]).unwrap();
    let entry = register.entry(Some(register.index_key(6143).unwrap()), Some(data));
    client.write(vec![update(UpdateType::Modify, entry)]).await.unwrap();
    assert_eq!(client.elements(name, 6142..6144).await.unwrap(), [vec![0], vec![77]]);
    let all = update(UpdateType::Delete, register.entry(None, None));
    client.write(vec![all]).await.unwrap();
    assert_eq!(client.elements(name, 6143..6144).await.unwrap(), [vec![0]]);
}
