//! What others can reach of the controller, and what they must show then.

use calumma_trust::{check_name, is_loopback_address};
use calumma_wire::Role;

use super::Config;

impl Config {
    /// Whether what other hosts can reach is protected, or the operator has said that it shall not
    /// be. After `listen` and `http` are what they will be.
    ///
    /// # Errors
    /// What is not, and the remedy.
    pub fn check_exposure(&self) -> Result<(), String> {
        if self.tls.is_some() {
            for role in [Role::Edge, Role::Transit, Role::Host] {
                for name in self.nodes_of(role) {
                    check_name(name).map_err(|problem| format!("{}s: {problem}", role.name()))?;
                }
            }
        }
        if self.insecure {
            return Ok(());
        }
        let listen = self.listen;
        if self.tls.is_none() && !is_loopback_address(listen.ip()) {
            return Err(format!(
                "listen = {listen}: other hosts reach it, and there is no [tls]: whoever names a \
                 switch would be let in as that switch. `calumma-controller pki init` makes \
                 certificates; where nobody else can reach that network, write `insecure = true`"
            ));
        }
        let Some(http) = self.http.filter(|http| !is_loopback_address(http.ip())) else {
            return Ok(());
        };
        if self.tokens.is_none() || self.http_tls.is_none() {
            return Err(format!(
                "http = {http}: other hosts reach it, so it needs `tokens` \
                 (`calumma-controller token add NAME`) and [http_tls]; or let it listen on \
                 127.0.0.1, or write `insecure = true`"
            ));
        }
        Ok(())
    }

    /// Whether the HTTP API may be read without a token.
    pub fn is_read_freely(&self) -> bool {
        self.insecure || self.http.is_none_or(|http| is_loopback_address(http.ip()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exposure(text: &str) -> Result<(), String> {
        let text = format!("edges = ['e1']\n{text}");
        Config::parse(&text, "c.toml").unwrap().check_exposure()
    }

    const TLS: &str = "[tls]\nca = 'a'\ncertificate = 'b'\nkey = 'c'\n";
    const HTTP_TLS: &str = "[http_tls]\ncertificate = 'b'\nkey = 'c'\n";

    #[test]
    fn loopback_needs_nothing_and_other_addresses_all_of_it() {
        assert_eq!(exposure("http = '127.0.0.1:1'"), Ok(()));
        assert_eq!(exposure("listen = '[::1]:1'"), Ok(()));
        for listen in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1"] {
            let open = format!("listen = '{listen}'\n");
            let problem = exposure(&open).unwrap_err();
            assert!(problem.contains("pki init") && problem.contains("insecure = true"));
            assert_eq!(exposure(&format!("{open}insecure = true")), Ok(()));
            assert_eq!(exposure(&format!("{open}{TLS}")), Ok(()));
        }
        let http = "http = '10.0.0.1:1'\n";
        for text in [http.to_owned(), format!("{http}tokens = 't'"), format!("{http}{HTTP_TLS}")] {
            assert!(exposure(&text).unwrap_err().contains("token add"), "{text}");
        }
        assert_eq!(exposure(&format!("{http}tokens = 't'\n{HTTP_TLS}")), Ok(()));
        assert_eq!(exposure(&format!("{http}insecure = true")), Ok(()));
    }

    #[test]
    fn nodes_have_names_that_certificates_can_have() {
        let text = format!("transits = ['Spine 1']\n{TLS}");
        let problem = exposure(&text).unwrap_err();
        assert!(problem.contains("transits: \"Spine 1\""), "{problem}");
    }

    #[test]
    fn only_what_stays_on_the_host_is_read_freely() {
        let freely = |text: &str| {
            Config::parse(&format!("edges = ['e1']\n{text}"), "c.toml").unwrap().is_read_freely()
        };
        assert!(freely("http = '127.0.0.1:1'") && freely("http = '0.0.0.0:1'\ninsecure = true"));
        assert!(!freely("http = '0.0.0.0:1'") && !freely("http = '10.0.0.1:1'"));
    }
}
