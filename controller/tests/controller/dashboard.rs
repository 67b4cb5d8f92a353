//! The dashboard in a real browser: what it shows is what the API says.

use std::path::Path;

use calumma_controller::report::Flow;
use serde_json::Value;

use crate::browser::Browser;
use crate::stories::{Controller, Edge, PATIENT, traffic};

/// Every edge delivers, and a few flows of `traffic` are heavy hitters.
fn controller() -> Controller {
    Controller::start(&format!("{PATIENT}\n[tasks]\nheavy_hitter = 180\nheavy_change = 100"))
}

/// Opens the page, at one epoch where `place` is `#` and its number.
fn page(controller: &Controller, browser: &Browser, place: &str) {
    browser.open(&format!("http://{}/{place}", controller.running.http().unwrap()));
}

/// An epoch of [`traffic`], and a flow that grows with every epoch.
fn deliver(controller: &Controller, edges: &mut [Edge; 2], epoch: u64, grown: u64) {
    let mut world = edges[0].world(epoch);
    traffic(&mut world);
    world.send((0, 1), crate::world::flow(5000), 150 * grown, |_| false);
    edges[0].deliver(&world, 0);
    edges[1].deliver(&world, 1);
    assert!(controller.report(epoch).complete);
}

fn showing(browser: &Browser, epoch: u64) {
    browser.wait(&format!("document.body.dataset.epoch === '{epoch}'"));
}

/// A flow as the page writes it.
fn flow(at: &Value) -> String {
    let flow: Flow = serde_json::from_value(at.clone()).unwrap();
    flow.to_string().replace(" > ", " → ")
}

#[test]
fn the_page_says_what_to_do_then_shows_what_the_api_says_and_follows() {
    let Some(browser) = Browser::start() else { return };
    let controller = controller();
    browser.look(1440, 2000, "light");
    page(&controller, &browser, "");
    browser
        .wait("document.querySelector('#waiting').textContent.includes('Not connected: e1, e2')");

    let mut edges = ["e1", "e2"].map(|name| Edge::join(&controller, name));
    let first = edges[0].recent_epoch() - 2;
    (0..3).for_each(|n| deliver(&controller, &mut edges, first + n, n));
    showing(&browser, first + 2);
    let victims = controller.get("/api/v1/victims?last=3");
    browser.wait(&format!(
        "document.querySelector('#tile-victims').textContent === '{}'",
        victims["victims"]
    ));
    assert!(browser.value("document.querySelector('#waiting').hidden") == true);

    let report = controller.get("/api/v1/epochs?last=1").as_array_mut().unwrap().remove(0);
    assert_eq!(browser.text("#epoch-number"), report["epoch"].to_string());
    assert_eq!(browser.text("#state"), "network healthy");
    let text = |value: &Value| value.to_string();
    let wanted: Vec<_> = victims["flows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|at| vec![flow(at), text(&at["lost"]), text(&at["epochs"])])
        .collect();
    assert_eq!(browser.table("#victims"), wanted);

    let hitters = report["edges"][0]["heavy_hitters"].as_array().unwrap();
    assert!(hitters.len() > 5);
    let wanted: Vec<_> =
        hitters.iter().map(|at| vec![flow(at), "e1".to_owned(), text(&at["size"])]).collect();
    assert_eq!(browser.table("#hitters"), wanted);
    let change = &report["edges"][0]["heavy_changes"][0];
    assert_eq!(
        browser.table("#heavy-changes"),
        [[flow(change), "e1".to_owned(), "▲ 150 → 300".to_owned()]]
    );
    let dots = browser.value("document.querySelectorAll('#distribution path.dots')[0].getAttribute('d').match(/M/g).length");
    assert_eq!(dots, report["edges"][0]["size_distribution"].as_array().unwrap().len());

    let shown = browser.table("#edges");
    for (row, edge) in shown.iter().zip(report["edges"].as_array().unwrap()) {
        let group = |value: &Value| value.to_string().replace(".0", "");
        assert_eq!(row[0], edge["edge"].as_str().unwrap());
        assert_eq!(row[1].replace(',', ""), group(&edge["packets_in"]));
        assert_eq!(row[2].replace(',', ""), group(&edge["packets_out"]));
        assert_eq!(row[3].replace(',', ""), group(&edge["cardinality"]));
        assert_eq!(row[4], format!("{:.2} bit", edge["entropy"].as_f64().unwrap()));
        assert_eq!(row[9], "9");
    }
    for (lane, value) in [
        ("hh-buckets", "3,584"),
        ("hl-buckets", "512"),
        ("t-h", "1"),
        ("lost", "29"),
        ("state", "healthy"),
    ] {
        assert_eq!(browser.text(&format!("[data-series='{lane}']")), value);
    }

    // One epoch is kept while others come, until the newest is wanted again.
    browser.press("#lanes", "ArrowLeft");
    showing(&browser, first + 1);
    deliver(&controller, &mut edges, first + 3, 3);
    browser.wait("document.querySelector('#tile-victims + p').textContent === 'in 4 epochs'");
    assert_eq!(browser.text("#epoch-number"), (first + 1).to_string());
    browser.press("body", "Escape");
    showing(&browser, first + 3);

    // A flow's history.
    browser.value("document.querySelector('#victims button.flow').click()");
    browser.wait("document.querySelectorAll('#flow tbody tr').length === 4");
    let shown = browser.table("#flow");
    assert_eq!(
        (shown[0][0].as_str(), shown[0][3].as_str()),
        ((first + 3).to_string().as_str(), "1")
    );
    browser.value("document.querySelector('#flow').close()");
    assert_eq!(browser.complaints(), serde_json::json!([]));

    // Pictures to look at: target/tmp/dashboard-*.png.
    for (width, height, colors) in
        [(1440, 2000, "light"), (1440, 2000, "dark"), (390, 4600, "light")]
    {
        browser.look(width, height, colors);
        browser.wait(&format!("innerWidth === {width}"));
        // One column that needs no scrolling sideways, on a phone as on a desk.
        browser.wait("document.documentElement.scrollWidth <= innerWidth");
        std::thread::sleep(std::time::Duration::from_millis(600));
        let name = format!("dashboard-{width}-{colors}.png");
        browser.picture(&Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
    }
}

#[test]
fn an_incomplete_epoch_is_marked_and_its_losses_are_not_zero_but_unknown() {
    let Some(browser) = Browser::start() else { return };
    let controller = Controller::start("grace_ms = 100");
    browser.look(1440, 2000, "light");
    let mut e1 = Edge::join(&controller, "e1");
    let epoch = e1.recent_epoch();
    let mut world = e1.world(epoch);
    traffic(&mut world);
    e1.deliver(&world, 0);
    controller.report(epoch);
    // Others follow, incomplete as well: this one is kept.
    page(&controller, &browser, &format!("#{epoch}"));
    browser.wait("!document.querySelector('#alarm').hidden");
    let alarm = browser.text("#alarm");
    assert!(alarm.contains("losses are not known") && alarm.contains("nothing came in time"));
    showing(&browser, epoch);
    assert_eq!(browser.text("#tile-loss"), "–");
    assert_eq!(browser.text("#tile-whole"), "0 %");
    assert_eq!(browser.text("[data-series='state']"), "incomplete");
    assert_eq!(browser.text("[data-series='lost']"), "–");
    assert!(browser.text("#victims").starts_with("Not known"));
    assert!(browser.text("#epoch-about").contains("incomplete: e2: nothing came in time"));
    let shown = browser.table("#edges");
    assert_eq!((shown[0][3].as_str(), shown[1][1].as_str()), ("200", "–"));
    assert_eq!(shown[1].last().unwrap(), "not connected");
    assert_eq!((shown[0][5].as_str(), shown[1][5].as_str()), ("0", "–"));
    assert!(browser.text("#hitters-above").contains("not all flows of e2 are known"));
    assert!(browser.text("#hitters").starts_with("None that is known"));
    for tile in ["packets", "flows", "victims"] {
        assert_eq!(browser.text(&format!("#tile-{tile}")), "–", "{tile}");
    }

    // The controller goes: the page says so, and keeps what it has.
    controller.stop();
    browser
        .wait("document.querySelector('#link').textContent.startsWith('controller not reached')");
    assert_eq!(browser.text("#epoch-number"), epoch.to_string());
}

#[test]
fn where_some_losses_are_unknown_no_flow_is_said_to_have_lost_none() {
    let Some(browser) = Browser::start() else { return };
    let controller = Controller::start("grace_ms = 1000");
    browser.look(1440, 2000, "light");
    let mut edges = ["e1", "e2"].map(|name| Edge::join(&controller, name));
    let epoch = edges[0].recent_epoch();
    let world = edges[0].world(epoch);
    edges[0].deliver(&world, 0);
    edges[1].deliver(&world, 1);
    assert!(controller.report(epoch).complete);
    // Nobody delivers any more.
    assert!(!controller.report(epoch + 1).complete);
    page(&controller, &browser, "");
    browser.wait("document.querySelector('#victims').textContent.includes('in those epochs')");
    assert!(browser.text("#tile-victims + p").contains(" not all losses known"));
    assert_eq!(browser.complaints(), serde_json::json!([]));
}

#[test]
fn losses_that_a_later_epoch_takes_back_are_taken_back_on_the_page() {
    let Some(browser) = Browser::start() else { return };
    let controller = controller();
    browser.look(1440, 2000, "light");
    let mut edges = ["e1", "e2"].map(|name| Edge::join(&controller, name));
    let first = edges[0].recent_epoch();
    let [e1, e2] = &mut edges;
    e1.deliver_traffic(e2, first);
    page(&controller, &browser, &format!("#{first}"));
    let shows = |lost: &str| {
        browser.wait(&format!(
            "document.querySelector('#tile-loss + p')?.textContent.startsWith('{lost} of')"
        ));
        let lost = lost.trim_start_matches("at least ");
        browser.wait(&format!(
            "document.querySelector('[data-series=lost]').textContent === '{lost}'"
        ));
    };
    shows("29");
    // An epoch whose marks are the same has a packet too many of a flow that lost one: it may have
    // been any that entered at the same edge.
    for epoch in first + 1..=first + 8 {
        let mut world = e1.world(epoch);
        world.send((0, 1), crate::world::flow(0), 3, |_| false);
        if epoch == first + 8 {
            world.duplicate(1, crate::world::flow(0));
        }
        e1.wait_until_over(epoch);
        e1.deliver(&world, 0);
        e2.deliver(&world, 1);
    }
    assert!(!controller.report(first + 8).amendments.is_empty());
    let left = controller.get("/api/v1/epochs?view=summary&last=9")[0]["lost_at_least"].as_u64();
    let left = format!("at least {}", left.unwrap());
    shows(&left);
    // What past epochs are sent with is not taken back again.
    page(&controller, &browser, "");
    page(&controller, &browser, &format!("#{first}"));
    shows(&left);
    std::thread::sleep(std::time::Duration::from_secs(3));
    shows(&left);
    assert_eq!(browser.complaints(), serde_json::json!([]));
}

/// The controller is started anew with longer epochs, at the same address.
#[test]
fn the_page_goes_on_where_numbers_have_fallen() {
    let Some(browser) = Browser::start() else { return };
    let (first, (tokens, _)) = (controller(), crate::stories::tokens());
    let http = first.running.http().unwrap();
    browser.look(1440, 2000, "light");
    let of = |controller: &Controller| {
        let mut edges = ["e1", "e2"].map(|name| Edge::join(controller, name));
        let epoch = edges[0].recent_epoch();
        deliver(controller, &mut edges, epoch, 1);
        (edges, epoch)
    };
    let (edges, before) = of(&first);
    page(&first, &browser, "");
    showing(&browser, before);
    first.stop();
    drop(edges);
    let second = Controller::start_by(&format!(
        "edges = ['e1', 'e2']\nlisten = '127.0.0.1:0'\nhttp = '{http}'\ntokens = {tokens:?}\n\
         {PATIENT}\n[epoch]\nlength_ms = 100"
    ));
    let (_edges, now) = of(&second);
    assert!(now < before);
    showing(&browser, now);
}
