//! Which packets are measured.

use calumma_wire::{DEFAULT_FABRIC_MTU, Domain, Prefix};
use serde::Deserialize;

/// Which packets are measured: those from and to addresses in the prefixes, and, where marks are in
/// the identification, those that no link of the fabric cuts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DomainSection {
    /// IPv4 and IPv6 prefixes of the hosts behind all edges; everything where there are none.
    pub prefixes: Vec<String>,
    /// The smallest MTU of the links between edges, in bytes of IPv4's total length.
    pub fabric_mtu: u16,
}

impl Default for DomainSection {
    fn default() -> Self {
        Self { prefixes: Vec::new(), fabric_mtu: DEFAULT_FABRIC_MTU }
    }
}

impl DomainSection {
    /// The domain.
    ///
    /// # Errors
    /// Which prefix is none, or that the MTU is none.
    pub fn domain(&self) -> Result<Domain, String> {
        let prefixes: Result<Vec<Prefix>, String> =
            self.prefixes.iter().map(|prefix| prefix.parse()).collect();
        let domain = Domain::new(prefixes?)?;
        domain.with_fabric_mtu(self.fabric_mtu).map_err(|why| format!("fabric_mtu = {why}"))
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn a_domain_is_prefixes_and_anything_else_is_named() {
        let read = |prefixes: &str| {
            Config::parse(&format!("edges = ['e1']\n[domain]\nprefixes = {prefixes}"), "a test")
        };
        let config = read("['10.0.0.0/8', '2001:db8::/32']").unwrap();
        let domain = config.domain.domain().unwrap();
        assert_eq!(domain.prefixes().len(), 2);
        let problem = read("['10.0.0.1/8']").unwrap_err().to_string();
        assert!(problem.contains("[domain]: 10.0.0.1/8: bits beyond the first 8"), "{problem}");
        let config = Config::parse("edges = ['e1']", "a test").unwrap();
        assert!(config.domain.prefixes.is_empty());
        assert_eq!(config.domain.domain().unwrap().fabric_mtu(), 1280);
    }

    #[test]
    fn a_fabric_has_an_mtu_that_ipv4_allows() {
        let read = |mtu: u16| {
            let text = format!("edges = ['e1']\n[domain]\nfabric_mtu = {mtu}");
            Config::parse(&text, "a test").map(|config| config.domain.domain().unwrap())
        };
        assert_eq!(read(9000).unwrap().fabric_mtu(), 9000);
        let problem = read(67).unwrap_err().to_string();
        assert!(problem.contains("[domain]: fabric_mtu = 67 bytes: every link"), "{problem}");
    }
}
