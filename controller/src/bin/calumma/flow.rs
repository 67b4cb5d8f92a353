//! One flow over time.

use std::fmt::Write as _;
use std::io::{Write as _, stdout};
use std::net::{IpAddr, SocketAddr};

use calumma_controller::api::FlowInEpoch;
use calumma_controller::report::{Flow, LossClass};

use crate::Window;
use crate::client::{Client, unknown_from};

/// Shows what a flow carried and lost in the latest epochs, and in those to come where that is
/// wanted.
pub(crate) fn show(client: &Client, flow: &Flow, window: Window) -> anyhow::Result<()> {
    let Flow { src, dst, sport, dport, proto } = flow;
    let ask = |last: usize| -> anyhow::Result<Vec<FlowInEpoch>> {
        let query = format!("src={src}&dst={dst}&sport={sport}&dport={dport}&proto={proto}");
        client.get(&format!("/api/v1/flows/history?{query}&last={last}"))
    };
    let mut known = None;
    let mut say = |epochs: Vec<FlowInEpoch>| {
        let numbers: Vec<u64> = epochs.iter().map(|epoch| epoch.epoch).collect();
        for epoch in &epochs[unknown_from(&numbers, known)..] {
            known = Some(epoch.epoch);
            let text = if window.json { serde_json::to_string(epoch)? } else { line(epoch) };
            writeln!(stdout(), "{text}")?;
        }
        anyhow::Ok(())
    };
    if !window.json {
        writeln!(stdout(), "{flow}\n{:>12} {:>8} {:>5}  packets in", "epoch", "lost", "class")?;
    }
    say(ask(window.last)?)?;
    if window.follow {
        let mut events = client.events("summary", 0);
        loop {
            events.next()?;
            // More than one may have come while the last were written.
            say(ask(8)?)?;
        }
    }
    Ok(())
}

fn line(epoch: &FlowInEpoch) -> String {
    let lost = match epoch.lost {
        None => "?".to_owned(),
        Some(lost) if epoch.partial => format!("~{lost}"),
        Some(lost) if epoch.at_least => format!(">={lost}"),
        Some(lost) => lost.to_string(),
    };
    let class = match epoch.class {
        None => "",
        Some(LossClass::Heavy) => "HL",
        Some(LossClass::Light) => "LL",
    };
    let mut text = format!("{:>12} {lost:>8} {class:>5}  ", epoch.epoch);
    let mut between = "";
    for at in epoch.sizes.iter().filter(|at| at.size > 0) {
        let least = if at.exact { String::new() } else { format!("{}-", at.size_min) };
        let _ = write!(text, "{between}{least}{} at {}", at.size, at.edge);
        between = ", ";
    }
    if between.is_empty() {
        // Sizes that are kept are there for every edge that delivered.
        text += if epoch.sizes.is_empty() { "?" } else { "-" };
        text += if epoch.complete { "" } else { " (incomplete epoch)" };
    }
    text
}

/// Reads a flow as reports and tables write it, with or without an arrow, or as five words.
///
/// # Errors
/// What can't be read, and how a flow is written.
pub(crate) fn parse(text: &str) -> Result<Flow, String> {
    let wrong = || {
        format!(
            "{text:?} is no flow: write it as `10.1.0.2:40000 10.2.0.2:5201 tcp` or \
             `[2001:db8::1]:40000 [2001:db8::2]:5201 tcp`, or as source, destination, source port, \
             destination port and protocol number"
        )
    };
    let words: Vec<&str> = text
        .split([' ', ',', '>', '→'])
        .filter(|word| !word.is_empty() && *word != "-" && *word != "proto")
        .collect();
    let end = |word: &str| -> Option<(IpAddr, u16)> {
        match word.parse::<SocketAddr>() {
            Ok(end) => Some((end.ip(), end.port())),
            Err(_) => Some((word.parse().ok()?, 0)),
        }
    };
    let read = || match words[..] {
        [from, to, proto] => {
            let ((src, sport), (dst, dport)) = (end(from)?, end(to)?);
            Some(Flow { src, dst, sport, dport, proto: protocol(proto)? })
        }
        [src, dst, sport, dport, proto] => Some(Flow {
            src: src.parse().ok()?,
            dst: dst.parse().ok()?,
            sport: sport.parse().ok()?,
            dport: dport.parse().ok()?,
            proto: protocol(proto)?,
        }),
        _ => None,
    };
    read().ok_or_else(wrong)
}

fn protocol(word: &str) -> Option<u8> {
    match word.to_ascii_lowercase().as_str() {
        "icmp" => Some(1),
        "tcp" => Some(6),
        "udp" => Some(17),
        "icmp6" => Some(58),
        "sctp" => Some(132),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use calumma_controller::api::SizeAt;

    use super::*;

    #[test]
    fn what_is_a_bound_or_not_known_of_an_epoch_is_shown_as_such() {
        let epoch = FlowInEpoch {
            epoch: 7,
            start_unix_ns: 0,
            complete: true,
            lost: Some(6),
            class: None,
            partial: false,
            at_least: false,
            sizes: Vec::new(),
        };
        let at = |size| {
            let (edge, epoch) = ("e1".to_owned(), 7);
            vec![SizeAt { edge, epoch, size, size_min: size, exact: true }]
        };
        let words = |epoch: FlowInEpoch| {
            let line = line(&epoch);
            line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(epoch.clone()), "6 ?");
        assert_eq!(words(FlowInEpoch { sizes: at(0), ..epoch.clone() }), "6 -");
        let sizes = at(9);
        assert_eq!(words(FlowInEpoch { at_least: true, sizes, ..epoch.clone() }), ">=6 9 at e1");
        assert_eq!(
            words(FlowInEpoch { partial: true, complete: false, ..epoch.clone() }),
            "~6 ? (incomplete epoch)"
        );
        assert_eq!(words(FlowInEpoch { lost: None, ..epoch }), "? ?");
    }

    #[test]
    fn a_flow_is_read_as_it_is_written_anywhere() {
        for proto in [1, 6, 17, 47, 58, 132] {
            let ports = if proto == 47 { (0, 0) } else { (40_000, 5_201) };
            for (src, dst) in [("10.1.0.2", "10.2.0.2"), ("2001:db8:1::2", "fe80::1")] {
                let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
                let flow = Flow { src, dst, sport: ports.0, dport: ports.1, proto };
                assert_eq!(parse(&flow.to_string()), Ok(flow));
                let words = format!("{src} {dst} {} {} {proto}", ports.0, ports.1);
                assert_eq!(parse(&words), Ok(flow));
            }
        }
        assert_eq!(parse("10.1.0.2:1 → 10.2.0.2:2 UDP").unwrap().proto, 17);
    }

    #[test]
    fn what_is_no_flow_is_refused_with_an_example() {
        for text in ["", "10.1.0.2", "10.1.0.2:x 10.2.0.2:1 tcp", "10.1.0.2:1 10.2.0.2:2 quic"] {
            assert!(
                parse(text).unwrap_err().contains("10.1.0.2:40000 10.2.0.2:5201 tcp"),
                "{text}"
            );
        }
    }
}
