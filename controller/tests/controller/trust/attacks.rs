//! Strangers, and edges that play others: none of them learns the hash key, and none keeps out who
//! belongs.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use calumma_controller::config::Config;
use calumma_wire::Message;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, SupportedProtocolVersion};
use tokio::net::TcpSocket;

use super::*;
use crate::stories::{connect_from, reports_go_on, resident_bytes};

const ATTACKER: [u8; 4] = [127, 0, 0, 2];

/// What a client goes by that trusts the right authority and shows what it likes.
fn client(
    secured: &Secured,
    version: &'static SupportedProtocolVersion,
    shown: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(secured.files("e1").ca).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match shown {
        None => config.with_no_client_auth(),
        Some((chain, key)) => config.with_client_auth_cert(chain, key).unwrap(),
    })
}

fn held(files: &TlsFiles) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = vec![CertificateDer::from_pem_file(&files.certificate).unwrap()];
    (chain, PrivateKeyDer::from_pem_file(&files.key).unwrap())
}

/// A certificate of the right authority that held for a day, two days ago.
fn expired(secured: &Secured) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let read = |name: &str| std::fs::read_to_string(secured.authority.0.join(name)).unwrap();
    let record: serde_json::Value = serde_json::from_str(&read("ca.json")).unwrap();
    let mut authority = CertificateParams::default();
    authority.distinguished_name = rcgen::DistinguishedName::new();
    authority.distinguished_name.push(DnType::CommonName, record["name"].as_str().unwrap());
    let issuer = Issuer::new(authority, KeyPair::from_pem(&read("ca.key")).unwrap());
    let (mut params, key) = (CertificateParams::default(), KeyPair::generate().unwrap());
    params.subject_alt_names = vec![SanType::DnsName("e1".try_into().unwrap())];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let now = time::OffsetDateTime::now_utc();
    params.not_before = now - time::Duration::days(2);
    params.not_after = now - time::Duration::days(1);
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    (vec![certificate.der().clone()], key)
}

/// None of them is sent more than that it is refused.
#[test]
fn who_has_no_certificate_that_holds_is_told_nothing() {
    let secured = Secured::start(&["e1", "e2"], "");
    let own = held(&secured.files("e1"));
    let stranger = Folder::new();
    Authority::init(&stranger.0, &[], 1).unwrap().issue("e1", 1).unwrap();
    let of_others = held(&TlsFiles::of(&stranger.0, "e1"));
    Authority::open(&secured.authority.0).unwrap().revoke("e2").unwrap();
    secured.reload();
    let revoked = held(&secured.files("e2"));
    let controllers = held(&secured.files(CONTROLLER));
    for (what, version, name, shown) in [
        ("no certificate", &TLS13, "e1", None),
        ("another authority's", &TLS13, "e1", Some(of_others)),
        ("an expired one", &TLS13, "e1", Some(expired(&secured))),
        ("a revoked one", &TLS13, "e2", Some(revoked)),
        ("the controller's, which is no node's", &TLS13, "e1", Some(controllers)),
        ("TLS 1.2", &TLS12, "e1", Some((own.0.clone(), own.1.clone_key()))),
    ] {
        let problem = answer(secured.listen(), client(&secured, version, shown), name);
        let problem = problem.expect_err(what).to_string();
        assert!(problem.contains("alert"), "{what}: {problem}");
        assert!(secured.controller.running.hub().edges().iter().all(|edge| !edge.connected));
    }
    // The same way with what holds leads in.
    let welcome = {
        let socket = TcpStream::connect(secured.listen()).unwrap();
        let config = client(&secured, &TLS13, Some(own));
        let connection = ClientConnection::new(config, tls::controller()).unwrap();
        let mut stream = StreamOwned::new(connection, socket);
        stream.write_all(&encoded(&hello("e1"))).unwrap();
        let mut welcome = [0; 8];
        stream.read_exact(&mut welcome).map(|()| welcome)
    };
    assert!(welcome.is_ok(), "{welcome:?}");
}

/// As all did before there was TLS.
#[test]
fn who_speaks_without_tls_is_told_nothing() {
    let secured = Secured::start(&["e1", "e2"], "");
    let mut stream = TcpStream::connect(secured.listen()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&encoded(&hello("e1"))).unwrap();
    let mut told = Vec::new();
    if let Err(error) = stream.read_to_end(&mut told) {
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    // An alert at most: a record of seven bytes.
    assert!(told.len() <= 7, "{told:?}");
    assert!(secured.controller.running.hub().edges().iter().all(|edge| !edge.connected));
}

/// With a certificate that holds, but for another name.
#[test]
fn an_edge_is_let_in_by_its_own_name_only() {
    let secured = Secured::start(&["e1", "e2", "e10"], "");
    for (own, says) in [("e2", "e1"), ("e1", "e10"), ("e10", "e1"), ("e1", "E1"), ("e1", "")] {
        match peer(&secured, own, says).next() {
            Some((_, Message::Refused { reason })) => {
                assert!(reason.contains("the certificate is not of that name"), "{reason}");
            }
            other => panic!("{other:?} instead of a refusal"),
        }
    }
    let _e1 = secured.join("e1");
}

/// Handshakes that are cut off at every length, and one whose bytes come singly.
#[test]
fn handshakes_that_are_cut_off_leave_no_trace() {
    let secured = Secured::start(&["e1", "e9"], "grace_ms = 1000");
    let mut greeting = Vec::new();
    let config = client(&secured, &TLS13, None);
    let mut connection = ClientConnection::new(config, tls::controller()).unwrap();
    connection.write_tls(&mut greeting).unwrap();
    for length in (0..greeting.len()).step_by(7) {
        let mut stream = TcpStream::connect(secured.listen()).unwrap();
        stream.write_all(&greeting[..length]).unwrap();
    }
    let mut slow = TcpStream::connect(secured.listen()).unwrap();
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    let since = Instant::now();
    let bytes = greeting.iter().cycle();
    let cut = bytes.take(100).any(|&byte| {
        std::thread::sleep(Duration::from_millis(100));
        slow.write_all(&[byte]).is_err()
    });
    // Five seconds for handshake and hello together, however often bytes come.
    assert!(cut && since.elapsed() < Duration::from_secs(9), "{:?}", since.elapsed());
    let mut e9 = secured.join("e9");
    drop(secured.join("e1"));
    reports_go_on(&secured.controller, &mut e9, 1, PATIENCE);
}

/// Who has seen all that a switch sent, from the first byte of its handshake on, sends it again.
#[test]
fn a_replayed_handshake_lets_nobody_in() {
    let secured = Secured::start(&["e1", "e2"], "");
    let (way, sent) = overheard(secured.listen());
    let config = tls::node_client(&secured.files("e1")).unwrap();
    let mut stream = StreamOwned::new(
        ClientConnection::new(config, tls::controller()).unwrap(),
        TcpStream::connect(way).unwrap(),
    );
    stream.write_all(&encoded(&hello("e1"))).unwrap();
    // The welcome: whoever sent these bytes first was let in.
    stream.read_exact(&mut [0; 64]).unwrap();
    drop(stream);
    secured.controller.wait_until_gone("e1");

    let sent = sent.join().unwrap();
    let mut again = TcpStream::connect(secured.listen()).unwrap();
    again.set_read_timeout(Some(PATIENCE)).unwrap();
    // It may be cut off while it still sends.
    let _ = again.write_all(&sent);
    let mut answer = Vec::new();
    if let Err(error) = again.read_to_end(&mut answer) {
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    assert!(!secured.controller.running.hub().edges()[0].connected);
    let _e1 = secured.join("e1");
}

/// A way to `to` for one connection, and all bytes that went there by it.
fn overheard(to: SocketAddr) -> (SocketAddr, std::thread::JoinHandle<Vec<u8>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let overheard = std::thread::spawn(move || {
        let (mut from, _) = listener.accept().unwrap();
        let mut there = TcpStream::connect(to).unwrap();
        let (mut back, mut answers) = (from.try_clone().unwrap(), there.try_clone().unwrap());
        std::thread::spawn(move || io::copy(&mut answers, &mut back));
        let (mut sent, mut bytes) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            sent.extend_from_slice(&bytes[..count]);
            there.write_all(&bytes[..count]).unwrap();
        }
        sent
    });
    (address, overheard)
}

/// Half a greeting each: the handshake counts as a connection whose node is not known.
#[test]
fn thousands_in_the_middle_of_a_handshake_keep_no_edge_out() {
    let secured = Secured::start(&["e1", "e9"], "grace_ms = 1000");
    let mut e9 = secured.join("e9");
    let (to, before) = (secured.listen(), resident_bytes());
    let mut greeting = Vec::new();
    let config = client(&secured, &TLS13, None);
    ClientConnection::new(config, tls::controller()).unwrap().write_tls(&mut greeting).unwrap();
    let idle: Vec<TcpStream> = (0..5000)
        .map(|_| {
            let mut stream = connect_from(&secured.controller, ATTACKER, to);
            // One that had to give way already may be closed.
            let _ = stream.write_all(&greeting[..greeting.len() / 2]);
            stream
        })
        .collect();
    reports_go_on(&secured.controller, &mut e9, 1, Duration::from_secs(10));
    let _e1 = secured.join("e1");
    let open = http::metric_over_tls(&secured, r#"calumma_open_connections{port="switches"}"#);
    assert!(open <= 18.0, "two nodes and 16 more from one address: {open}");
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{} MiB", grown >> 20);
    drop(idle);
}

/// From more addresses than there are places: each has one connection, so that none has the most.
#[test]
fn a_crowd_from_many_addresses_keeps_no_edge_out_that_was_in_before() {
    const PEERS: usize = 8;
    let secured = Secured::start(&["e1", "e9"], "grace_ms = 1000");
    let mut e9 = secured.join("e9");
    drop(secured.join("e1"));
    let (to, connects) = (secured.listen(), Arc::new(AtomicU32::new(0)));
    for peer in 0..PEERS {
        let connects = Arc::clone(&connects);
        // It ends with the controller's threads.
        secured.controller.runtime.spawn(async move {
            let mut open = VecDeque::new();
            for at in (1..=250_u8).cycle().skip(peer * 31).step_by(PEERS) {
                let socket = TcpSocket::new_v4().unwrap();
                socket.set_reuseaddr(true).unwrap();
                socket.bind(([127, 0, 3, at], 0).into()).unwrap();
                open.extend(socket.connect(to).await);
                connects.fetch_add(1, Ordering::Relaxed);
                open.drain(..open.len().saturating_sub(30));
                tokio::task::yield_now().await;
            }
        });
    }
    for _ in 0..10 {
        secured.controller.wait_until_gone("e1");
        drop(secured.join("e1"));
    }
    reports_go_on(&secured.controller, &mut e9, 1, Duration::from_secs(10));
    assert!(connects.load(Ordering::Relaxed) > 1000, "{connects:?}");
}

/// By its own certificate: TLS makes no frame cheaper to send than to refuse.
#[test]
fn an_edge_that_was_let_in_and_floods_stops_no_reports_of_others() {
    let secured = Secured::start(&["e1", "e9"], "grace_ms = 1000");
    let mut e9 = secured.join("e9");
    let mut e1 = secured.join("e1");
    let seal = calumma_chamelemon::frames::Message::Sealed {
        epoch: e1.recent_epoch(),
        late_packets: 0,
        late: Vec::new(),
    };
    let bytes = encoded(&seal).repeat(1000);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let until = stop.clone();
    let flood = std::thread::spawn(move || {
        while !until.load(Ordering::Relaxed) {
            e1.send_bytes(&bytes);
        }
    });
    reports_go_on(&secured.controller, &mut e9, 1, Duration::from_secs(10));
    let status = secured.controller.running.hub().edges()[0].clone();
    assert!(status.late_frames + status.duplicate_frames > 1000, "{status:?}");
    stop.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    let refused = r#"calumma_refused_requests_total{why="unauthorized"}"#;
    assert_eq!(http::metric_over_tls(&secured, refused), 0.0);
}

/// Nobody is protected by a file that only seems to protect.
#[test]
fn a_controller_that_others_reach_does_not_start_without_protection() {
    let starts = |text: &str| {
        let text = format!("edges = ['e1']\n{text}");
        let config = Config::parse(&text, "c.toml").unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let started = runtime.block_on(calumma_controller::server::start(config, Vec::new()));
        started.map(drop).map_err(|problem| format!("{problem:#}"))
    };
    let problem = starts("listen = '0.0.0.0:0'").unwrap_err();
    assert!(problem.contains("other hosts reach it, and there is no [tls]"), "{problem}");
    let problem = starts("listen = '127.0.0.1:0'\nhttp = '0.0.0.0:0'").unwrap_err();
    assert!(problem.contains("needs `tokens`"), "{problem}");
    starts("listen = '0.0.0.0:0'\nhttp = '0.0.0.0:0'\ninsecure = true").unwrap();
    let none = "listen = '127.0.0.1:0'\n[tls]\nca = '/none/a'\ncertificate = 'b'\nkey = 'c'";
    let problem = starts(none).unwrap_err();
    assert!(problem.contains("[tls]") && problem.contains("/none/a"), "{problem}");
}

/// A key that everybody on the host can read is nobody's secret.
#[test]
fn a_key_that_everybody_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let secured = Secured::start(&["e1"], "");
    let files = secured.files("e1");
    std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let problem = format!("{:#}", tls::node_client(&files).unwrap_err());
    assert!(problem.contains("everybody can read it"), "{problem}");
}
