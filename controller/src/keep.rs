//! `calumma-controller pki` and `calumma-controller token`: who may talk to the controller.

use std::path::{Path, PathBuf};

use anyhow::Result;
use calumma_trust::{Authority, CONTROLLER, Role, Tokens};
use chrono::DateTime;
use clap::Subcommand;

/// Where certificates and tokens are, unless it is said otherwise.
const PKI: &str = "/etc/calumma/pki";
const TOKENS: &str = "/etc/calumma/tokens";

/// What is kept beside the configuration.
#[derive(Subcommand)]
pub(crate) enum Keep {
    /// Make, renew and revoke the certificates by which switches and controller know each other
    #[command(after_help = "\
Examples:
  calumma-controller pki init --at 192.0.2.10 --at controller.example
      an authority, and the controller's own certificate; --at is what browsers reach it by
  calumma-controller pki issue e1
      e1.crt and e1.key: bring them to the switch e1 together with ca.crt, and nothing else
  calumma-controller pki issue e1 --metrics-at 192.0.2.11
      e1.metrics.crt and .key besides: for [metrics] of the switch, which Prometheus reads there
  calumma-controller pki revoke e1 && systemctl reload calumma-controller
      e1 is disconnected and kept out until it has another certificate
  calumma-controller pki rotate
      new keys and certificates for all, before the old ones expire

The controller's configuration:
  [tls]
  ca = \"/etc/calumma/pki/ca.crt\"
  certificate = \"/etc/calumma/pki/controller.crt\"
  key = \"/etc/calumma/pki/controller.key\"
  revoked = \"/etc/calumma/pki/revoked.pem\"

A switch's:
  [tls]
  ca = \"/etc/calumma/ca.crt\"
  certificate = \"/etc/calumma/e1.crt\"
  key = \"/etc/calumma/e1.key\"

The controller reads its files again with SIGHUP (systemctl reload), a switch whenever it connects.
All files are made readable by whoever runs this only: run it as the controller's user. Who has
ca.key can be any switch; keep the folder on a host of its own, if you can.")]
    Pki {
        /// The authority's folder
        #[arg(long, value_name = "FOLDER", default_value = PKI, global = true)]
        dir: PathBuf,
        #[command(subcommand)]
        command: Pki,
    },
    /// Make and revoke the tokens by which the HTTP API is asked
    #[command(after_help = "\
Examples:
  calumma-controller token add ada --role operate
      prints a token, which is written nowhere: calumma takes it in CALUMMA_TOKEN or --token-file
  calumma-controller token add grafana
      one that is good for reading
  calumma-controller token revoke ada && systemctl reload calumma-controller

The controller's configuration: tokens = \"/etc/calumma/tokens\"
It reads the file again with SIGHUP (systemctl reload).")]
    Token {
        /// The file, which has hashes only
        #[arg(long, value_name = "FILE", default_value = TOKENS, global = true)]
        file: PathBuf,
        #[command(subcommand)]
        command: Token,
    },
}

/// What can be done with certificates.
#[derive(Subcommand)]
pub(crate) enum Pki {
    /// Make an authority, and the controller's certificate
    Init {
        /// Names and addresses by which browsers and `calumma` reach the controller's host
        #[arg(long, value_name = "HOST")]
        at: Vec<String>,
        #[command(flatten)]
        holds: Holds,
    },
    /// Make a node's key and certificate
    Issue {
        /// Its name, as `edges`, `transits` or `hosts` of the configuration have it
        name: String,
        /// A name or address of its host at which other hosts read its metrics: what it serves
        /// them by is made as well
        #[arg(long, value_name = "HOST")]
        metrics_at: Vec<String>,
        #[command(flatten)]
        holds: Holds,
    },
    /// Let all certificates of a name hold no more
    Revoke {
        /// Whose
        name: String,
    },
    /// Make new keys and certificates; those before hold until they expire
    Rotate {
        /// Whose; all who have one that is not revoked, the controller too, where none is named
        names: Vec<String>,
        #[command(flatten)]
        holds: Holds,
    },
    /// Show who has which certificate, and until when
    List,
}

/// For how long.
#[derive(clap::Args)]
pub(crate) struct Holds {
    /// For how many days the certificate holds
    #[arg(long, default_value_t = 365)]
    days: u64,
}

/// What can be done with tokens.
#[derive(Subcommand)]
pub(crate) enum Token {
    /// Make a token and print it
    Add {
        /// Whose it is, as the audit file is to say
        name: String,
        /// What it is good for: read, or operate, which changes need
        #[arg(long, default_value = "read")]
        role: Role,
    },
    /// Show who has one
    List,
    /// Let one hold no more
    Revoke {
        /// Whose
        name: String,
    },
}

impl Keep {
    pub(crate) fn run(&self) -> Result<()> {
        match self {
            Self::Pki { dir, command } => command.run(dir),
            Self::Token { file, command } => command.run(file),
        }
    }
}

impl Pki {
    fn run(&self, dir: &Path) -> Result<()> {
        match self {
            Self::Init { at, holds } => {
                Authority::init(dir, at, holds.days)?;
                println!(
                    "made an authority in {}; `pki issue NAME` makes a switch a certificate",
                    { dir.display() }
                );
            }
            Self::Issue { name, metrics_at, holds } => {
                let mut authority = Authority::open(dir)?;
                authority.issue(name, holds.days)?;
                let mut files = vec!["ca.crt".to_owned()];
                let mut pair = |name: &str| {
                    files.extend(["crt", "key"].map(|kind| format!("{name}.{kind}")));
                };
                pair(name);
                if !metrics_at.is_empty() {
                    pair(&authority.issue_metrics(name, metrics_at, holds.days)?);
                }
                let place = |file: &String| authority.file(file).display().to_string();
                let files: Vec<_> = files.iter().map(place).collect();
                println!("bring these to {name}: {}", files.join(" "));
            }
            Self::Revoke { name } => {
                let revoked = Authority::open(dir)?.revoke(name)?;
                println!("{revoked} of {name} revoked; the controller learns of it by SIGHUP");
            }
            Self::Rotate { names, holds } => {
                let rotated = Authority::open(dir)?.rotate(names, holds.days)?;
                println!("made anew: {}", rotated.join(", "));
                if rotated.iter().any(|name| name == CONTROLLER) {
                    println!("the controller takes its own by SIGHUP");
                }
            }
            Self::List => {
                for held in Authority::open(dir)?.issued() {
                    let state = match held.revoked {
                        Some(since) => format!("revoked {}", day(since)),
                        None => format!("until {}", day(held.expires)),
                    };
                    println!("{:<24} {state:<20} {}", held.name, held.serial);
                }
            }
        }
        Ok(())
    }
}

fn day(unix_s: u64) -> String {
    let time = DateTime::from_timestamp(unix_s.try_into().unwrap_or(i64::MAX), 0);
    time.map_or_else(|| unix_s.to_string(), |time| time.format("%Y-%m-%d").to_string())
}

impl Token {
    fn run(&self, file: &Path) -> Result<()> {
        match self {
            Self::Add { name, role } => println!("{}", Tokens::add(file, name, *role)?),
            Self::List => {
                for token in Tokens::list(file)? {
                    println!("{:<24} {}", token.name, token.role.name());
                }
            }
            Self::Revoke { name } => {
                Tokens::revoke(file, name)?;
                println!("revoked; the controller learns of it by SIGHUP");
            }
        }
        Ok(())
    }
}
