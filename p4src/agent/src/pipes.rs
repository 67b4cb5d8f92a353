//! In which of the switch's pipes ports lie. Each pipe has sketches of its own: what enters by one
//! and leaves by another would be lost for both.

use crate::config::{Config, Method};

/// The bits of a port's number that say which of a pipe's ports it is; those above say the pipe.
const BITS_IN_PIPE: u32 = 7;

fn pipe(port: u16) -> u16 {
    port >> BITS_IN_PIPE
}

/// What does not lie in the pipe of the first port, with the remedy.
pub(crate) fn problem(config: &Config) -> Option<String> {
    let first = config.ports.first()?.number;
    let collection = &config.collection;
    let ports = config.ports.iter().map(|port| ("port", port.number));
    let end = ("collection.recirculation_port", collection.recirculation_port);
    // Registers are read without it.
    let by_packets = collection.method == Method::Packets;
    let cpu = by_packets.then_some(("collection.cpu_port", collection.cpu_port));
    let mut all = ports.chain([end]).chain(cpu);
    let (what, number) = all.find(|&(_, number)| pipe(number) != pipe(first))?;
    Some(format!(
        "{what} {number}: it lies in pipe {} of the switch, and port {first} in pipe {}: each pipe \
         has sketches of its own; take all ports, the CPU and the recirculation port of one",
        pipe(number),
        pipe(first)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(ports: [u16; 2], collection: &str) -> Option<String> {
        let [first, second] = ports;
        let text = format!(
            "name = 'e2'\ncontroller = '127.0.0.1:7600'\n[driver]\n\
             [collection]\ninterface = 'cpu0'\n{collection}\n\
             [[port]]\nnumber = {first}\nrole = 'host'\n\
             [[port]]\nnumber = {second}\nrole = 'fabric'\n"
        );
        Config::parse(&text, "switchd.toml").err().map(|problem| problem.to_string())
    }

    #[test]
    fn all_ports_lie_in_one_pipe_and_so_does_what_collects() {
        assert_eq!(problem([1, 63], ""), None);
        let four_pipes = "cpu_port = 192\nrecirculation_port = 196";
        assert_eq!(problem([132, 140], four_pipes), None);
        let registers = "method = 'registers'\nrecirculation_port = 196";
        assert_eq!(problem([132, 140], registers), None, "nothing goes to the CPU");
        for (ports, collection, wanted) in [
            ([1, 140], "", "port 140: it lies in pipe 1 of the switch, and port 1 in pipe 0"),
            ([132, 140], "", "collection.recirculation_port 68: it lies in pipe 0"),
            ([1, 2], "cpu_port = 192", "collection.cpu_port 192: it lies in pipe 1"),
            ([132, 140], "cpu_port = 192", "collection.recirculation_port 68"),
            ([1, 2], "recirculation_port = 196", "collection.recirculation_port 196"),
            ([132, 140], "method = 'registers'", "collection.recirculation_port 68"),
        ] {
            let found = problem(ports, collection).unwrap_or_default();
            assert!(found.contains(wanted), "{ports:?} {collection}: {found}");
        }
    }
}
