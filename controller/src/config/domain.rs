//! Whose packets are measured.

use calumma_wire::{Domain, Prefix};
use serde::Deserialize;

/// Whose packets are measured: those from and to addresses in the prefixes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DomainSection {
    /// IPv4 and IPv6 prefixes of the hosts behind all edges; everything where there are none.
    pub prefixes: Vec<String>,
}

impl DomainSection {
    /// The domain.
    ///
    /// # Errors
    /// Which prefix is none.
    pub fn domain(&self) -> Result<Domain, String> {
        let prefixes: Result<Vec<Prefix>, String> =
            self.prefixes.iter().map(|prefix| prefix.parse()).collect();
        Domain::new(prefixes?)
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
        assert!(Config::parse("edges = ['e1']", "a test").unwrap().domain.prefixes.is_empty());
    }
}
