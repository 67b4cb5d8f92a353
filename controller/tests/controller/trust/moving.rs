//! From no TLS to TLS while a network measures.

use super::*;
use crate::stories::{PATIENT, lost, traffic};

/// The switches' files have `[tls]` first, which counts from their next connection on; then the
/// controller is started anew with its own. What switches measure meanwhile they hold, and the
/// controller that speaks TLS reports it by the kept key.
#[test]
fn a_network_moves_to_tls_and_no_epoch_is_lost() {
    let folder = Folder::new();
    let mut authority = Authority::init(&folder.0, &[], 1).unwrap();
    ["e1", "e2"].iter().for_each(|name| authority.issue(name, 1).unwrap());
    drop(authority);
    let text = format!(
        "edges = ['e1', 'e2']\nlisten = '127.0.0.1:0'\n{PATIENT}\nstate_dir = {:?}",
        folder.0.join("state")
    );
    let plain = Controller::start_by(&text);
    let [mut e1, mut e2] = ["e1", "e2"].map(|name| Edge::join(&plain, name));
    let first = e1.settled_epoch(&mut e2);
    let world = e1.deliver_traffic(&mut e2, first);
    let report = plain.report(first);
    assert!(report.complete);
    assert_eq!(lost(&report), world.lost);
    let held: Vec<_> = (first + 1..first + 5)
        .map(|epoch| {
            let mut world = e1.world(epoch);
            traffic(&mut world);
            world
        })
        .collect();
    plain.stop();

    let TlsFiles { ca, certificate, key, .. } = TlsFiles::of(&folder.0, CONTROLLER);
    let tls = format!("tls = {{ ca = {ca:?}, certificate = {certificate:?}, key = {key:?} }}");
    let controller = Controller::start_by(&format!("{text}\n{tls}"));
    let secured = Secured { controller, authority: folder };
    // A switch whose file was forgotten gets no answer, and goes on holding.
    let mut forgotten = TcpStream::connect(secured.listen()).unwrap();
    forgotten.set_read_timeout(Some(PATIENCE)).unwrap();
    forgotten.write_all(&encoded(&hello("e2"))).unwrap();
    let mut answer = Vec::new();
    let _ = forgotten.read_to_end(&mut answer);
    assert!(answer.len() < 16, "an alert at most: {answer:?}");

    let before = e1.hash_key();
    let [mut e1, mut e2] = ["e1", "e2"].map(|name| secured.join(name));
    assert!(e1.hash_key() == before, "frames that were held are read by it");
    for world in &held {
        e1.wait_until_over(world.epoch);
        e1.deliver(world, 0);
        e2.deliver(world, 1);
    }
    for world in &held {
        let report = secured.controller.report(world.epoch);
        assert!(report.complete, "{:?}", report.incomplete_because);
        assert_eq!(lost(&report), world.lost);
    }
}
