//! A small authority in a folder: it makes the certificates of one deployment.
//!
//! | file | what it is |
//! |---|---|
//! | `ca.key` | the authority's key: who has it can be any switch |
//! | `ca.crt` | its certificate, which switches and controller trust |
//! | `ca.json` | what it has issued and revoked |
//! | `revoked.pem` | the certificates that hold no more, for the controller |
//! | `NAME.crt`, `NAME.key` | what `NAME` has; `controller` is the controller |
//! | `NAME.metrics.crt`, `NAME.metrics.key` | what `NAME` serves its metrics by |
//!
//! A switch's certificate is good for nothing but to be that switch: it can't play the controller.
//! One for metrics is good for nothing but that: whoever has it is neither switch nor controller.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevocationReason, RevokedCertParams, SanType, SerialNumber,
};
use rustls::pki_types::DnsName;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::{files, hex, random, unix_s};

/// The controller's name in its certificate. No node may have it.
pub const CONTROLLER: &str = "controller";

/// Names that a node can't have: files have them.
const TAKEN: [&str; 3] = [CONTROLLER, "ca", "revoked"];

/// What the name of a certificate for metrics ends with, behind that of the node.
const METRICS: &str = ".metrics";

/// Bytes that a node's name has at most.
const MOST_NAME: usize = 64;

const DAY: u64 = 24 * 3600;

/// How long the authority's own certificate holds.
const AUTHORITY_DAYS: u64 = 20 * 365;

/// Certificates hold from a little earlier on than they are made: clocks differ.
const EARLIER: u64 = 3600;

/// How long an expired certificate is remembered.
const REMEMBERED: u64 = 30 * DAY;

/// Whether a certificate can name a node so.
///
/// # Errors
/// What names must be like.
pub fn check_name(name: &str) -> Result<(), String> {
    // In certificates names are those of hosts, of which large letters and small are the same.
    let is_plain = name.len() <= MOST_NAME && !name.bytes().any(|byte| byte.is_ascii_uppercase());
    if !is_plain || name.ends_with('.') || DnsName::try_from(name).is_err() {
        return Err(format!(
            "{name:?}: a certificate names nodes by small letters, digits, '-', '_' and '.', at most \
             {MOST_NAME} and not digits alone"
        ));
    }
    if TAKEN.contains(&name) || name.ends_with(METRICS) {
        return Err(format!("{name:?} is taken: give the node another name"));
    }
    Ok(())
}

/// What the authority has issued.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// Its own name, which no other authority has.
    name: String,
    /// Number of the last list of revoked certificates.
    list: u64,
    issued: Vec<Held>,
}

/// A certificate that was issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Whose it is.
    pub name: String,
    /// Its number, in hexadecimal digits.
    pub serial: String,
    /// Names and addresses of the host that serves HTTP by it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at: Vec<String>,
    /// From when on it holds no more, in seconds since the Unix epoch.
    pub expires: u64,
    /// Since when it is revoked, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<u64>,
}

/// An authority, and the only one who changes its folder.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
    record: Record,
    /// No one else changes the folder meanwhile.
    _lock: fs::File,
}

impl Authority {
    /// Makes an authority in a folder, and the controller's certificate for `days`; `at` are names
    /// and addresses of its host, for those who reach it over HTTP.
    ///
    /// # Errors
    /// Where there is one already, or its files can't be written.
    pub fn init(folder: &Path, at: &[String], days: u64) -> Result<Self> {
        files::folder(folder)?;
        let lock = files::lock(&folder.join("ca"))?;
        let path = folder.join("ca.json");
        ensure!(
            !path.exists() && !folder.join("ca.key").exists(),
            "{}: there is an authority already; `rotate` renews what it has issued",
            folder.display()
        );
        let name = format!("Calumma {}", hex(&random::<8>()?));
        let record = Record { name, list: 0, issued: Vec::new() };
        let mut authority = Self { folder: folder.to_owned(), record, _lock: lock };
        let key = KeyPair::generate()?;
        let mut params = authority.params();
        let now = unix_s();
        (params.not_before, params.not_after) = holds(now, now + AUTHORITY_DAYS * DAY)?;
        let certificate = params.self_signed(&key)?;
        files::put(&authority.folder.join("ca.key"), &key.serialize_pem())?;
        files::put(&authority.folder.join("ca.crt"), &certificate.pem())?;
        authority.save()?;
        authority.write_revoked()?;
        authority.make(CONTROLLER, at, days)?;
        Ok(authority)
    }

    /// The authority in a folder.
    ///
    /// # Errors
    /// Where there is none.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join("ca.json");
        ensure!(path.exists(), "{}: no authority is here; `init` makes one", folder.display());
        let lock = files::lock(&folder.join("ca"))?;
        let record = serde_json::from_slice(&files::read(&path)?);
        let record = record.with_context(|| path.display().to_string())?;
        Ok(Self { folder: folder.to_owned(), record, _lock: lock })
    }

    /// What it has issued, the newest last.
    pub fn issued(&self) -> &[Held] {
        &self.record.issued
    }

    /// Where a file of it lies.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes a node's key and certificate.
    ///
    /// # Errors
    /// Where the name can't be one, or the files can't be written.
    pub fn issue(&mut self, name: &str, days: u64) -> Result<()> {
        check_name(name).map_err(anyhow::Error::msg)?;
        self.make(name, &[], days)
    }

    /// Makes a key and a certificate by which a node serves its metrics; `at` are names and
    /// addresses of its host, for those who read them. Gives the name that its files have.
    ///
    /// # Errors
    /// Where no node can have the name, there is no host, one is called as the controller is, or
    /// the files can't be written.
    pub fn issue_metrics(&mut self, node: &str, at: &[String], days: u64) -> Result<String> {
        check_name(node).map_err(anyhow::Error::msg)?;
        ensure!(!at.is_empty(), "{node:?}: by which name or address are its metrics read?");
        ensure!(
            !at.iter().any(|host| host.eq_ignore_ascii_case(CONTROLLER)),
            "{CONTROLLER:?} is the controller's name; give the host another one, or its address"
        );
        let name = format!("{node}{METRICS}");
        self.make(&name, at, days)?;
        Ok(name)
    }

    /// Revokes all that was issued to a name, from when on the controller reads the list again;
    /// gives how many.
    ///
    /// # Errors
    /// Where nothing was, or the files can't be written.
    pub fn revoke(&mut self, name: &str) -> Result<usize> {
        let now = unix_s();
        let held = self.record.issued.iter_mut().filter(|held| held.name == name);
        let mut held: Vec<_> = held.filter(|held| held.revoked.is_none()).collect();
        let revoked = held.len();
        held.iter_mut().for_each(|held| held.revoked = Some(now));
        self.save()?;
        // Also where all were revoked already: an earlier attempt may have ended before this.
        self.write_revoked()?;
        ensure!(revoked > 0, "{name:?}: there is nothing to revoke");
        Ok(revoked)
    }

    /// Makes new keys and certificates for `names`, or for all who have one that is not revoked;
    /// those before hold until they expire. Gives whose were made.
    ///
    /// # Errors
    /// Where a name has none, or the files can't be written.
    pub fn rotate(&mut self, names: &[String], days: u64) -> Result<Vec<String>> {
        let mut last: Vec<Held> = Vec::new();
        for held in &self.record.issued {
            last.retain(|before| before.name != held.name);
            last.push(held.clone());
        }
        last.retain(|held| held.revoked.is_none());
        if let Some(name) = names.iter().find(|name| !last.iter().any(|held| held.name == **name)) {
            bail!("{name:?} has no certificate; `issue` makes one");
        }
        last.retain(|held| names.is_empty() || names.contains(&held.name));
        last.iter().try_for_each(|held| self.make(&held.name, &held.at, days))?;
        Ok(last.into_iter().map(|held| held.name).collect())
    }

    /// Makes a key and a certificate.
    fn make(&mut self, name: &str, at: &[String], days: u64) -> Result<()> {
        ensure!((1..=AUTHORITY_DAYS).contains(&days), "{days} days: at least 1, at most 20 years");
        let key = KeyPair::generate()?;
        let serial = serial()?;
        let expires = unix_s() + days * DAY;
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.distinguished_name = named(name);
        let is_metrics = name.ends_with(METRICS);
        if !is_metrics {
            params.subject_alt_names.push(SanType::DnsName(name.try_into()?));
        }
        for host in at {
            params.subject_alt_names.push(match host.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => {
                    let named = DnsName::try_from(host.as_str());
                    named.with_context(|| format!("{host:?} is neither name nor address"))?;
                    SanType::DnsName(host.as_str().try_into()?)
                }
            });
        }
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![if is_metrics || name == CONTROLLER {
            ExtendedKeyUsagePurpose::ServerAuth
        } else {
            ExtendedKeyUsagePurpose::ClientAuth
        }];
        params.use_authority_key_identifier_extension = true;
        (params.not_before, params.not_after) = holds(unix_s(), expires)?;
        let certificate = params.signed_by(&key, &self.issuer()?)?;
        // First, so that whatever is out there is known here and can be revoked.
        let (name, serial, at) = (name.to_owned(), hex(&serial), at.to_vec());
        let held = Held { name: name.clone(), serial, at, expires, revoked: None };
        self.record.issued.push(held);
        self.save()?;
        files::put(&self.file(&format!("{name}.key")), &key.serialize_pem())?;
        files::put(&self.file(&format!("{name}.crt")), &certificate.pem())
    }

    /// What its own certificate says.
    fn params(&self) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(&self.record.name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
    }

    fn issuer(&self) -> Result<Issuer<'static, KeyPair>> {
        let path = self.file("ca.key");
        let text = String::from_utf8(files::read_secret(&path)?);
        let key = text.context("no text").and_then(|text| Ok(KeyPair::from_pem(&text)?));
        let key = key.with_context(|| path.display().to_string())?;
        Ok(Issuer::new(self.params(), key))
    }

    fn save(&mut self) -> Result<()> {
        let now = unix_s();
        self.record.issued.retain(|held| now < held.expires + REMEMBERED);
        let text = serde_json::to_string_pretty(&self.record)?;
        files::put(&self.file("ca.json"), &format!("{text}\n"))
    }

    /// Writes the list of what is revoked.
    fn write_revoked(&mut self) -> Result<()> {
        self.record.list += 1;
        self.save()?;
        let now = unix_s();
        let mut revoked_certs = Vec::new();
        for held in &self.record.issued {
            let Some(revoked) = held.revoked else { continue };
            revoked_certs.push(RevokedCertParams {
                serial_number: SerialNumber::from_slice(&bytes(&held.serial)?),
                revocation_time: at(revoked)?,
                reason_code: Some(RevocationReason::Unspecified),
                invalidity_date: None,
            });
        }
        let (this_update, next_update) = holds(now, now + AUTHORITY_DAYS * DAY)?;
        let list = CertificateRevocationListParams {
            this_update,
            next_update,
            crl_number: SerialNumber::from(self.record.list),
            issuing_distribution_point: None,
            revoked_certs,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer()?)?;
        files::put(&self.file("revoked.pem"), &list.pem()?)
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut named = DistinguishedName::new();
    named.push(DnType::CommonName, name);
    named
}

/// A number that no other certificate has: positive, and of 16 bytes as it is written.
fn serial() -> Result<[u8; 16]> {
    let mut serial: [u8; 16] = random()?;
    serial[0] = serial[0] & 0x3F | 0x40;
    Ok(serial)
}

fn bytes(hex: &str) -> Result<Vec<u8>> {
    let digits = hex.as_bytes().chunks(2);
    let byte = |digits: &[u8]| Ok(u8::from_str_radix(std::str::from_utf8(digits)?, 16)?);
    digits.map(byte).collect::<Result<_>>().with_context(|| format!("ca.json: serial {hex:?}"))
}

fn at(unix_s: u64) -> Result<OffsetDateTime> {
    Ok(OffsetDateTime::from_unix_timestamp(unix_s.try_into()?)?)
}

/// From when to when something holds that is made now.
fn holds(now: u64, until: u64) -> Result<(OffsetDateTime, OffsetDateTime)> {
    Ok((at(now.saturating_sub(EARLIER))?, at(until)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn names_in_certificates_are_plain() {
        for name in ["e1", "leaf-3", "rack_2.e7", "0a"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in [
            "",
            "E1",
            "e1.",
            "../e1",
            "e 1",
            "é",
            "ca",
            "controller",
            "e1.metrics",
            "17",
            "*",
            ".e1",
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(check_name(&"a".repeat(65)).is_err());
    }

    #[test]
    fn all_files_are_their_owners_and_nothing_is_made_twice() {
        let folder = std::env::temp_dir().join(format!("calumma-authority-{}", std::process::id()));
        let mut authority = Authority::init(&folder, &["10.0.0.1".to_owned()], 1).unwrap();
        authority.issue("e1", 1).unwrap();
        drop(authority);
        let again = Authority::init(&folder, &[], 1).unwrap_err().to_string();
        assert!(again.contains("there is an authority already"), "{again}");
        let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap());
        let modes: Vec<u32> = files.map(|it| it.metadata().unwrap().permissions().mode()).collect();
        assert_eq!(modes.len(), 9, "keys, certificates, the record, the list, the lock");
        assert!(modes.iter().all(|mode| mode & 0o777 == 0o600), "{modes:?}");

        let mut authority = Authority::open(&folder).unwrap();
        assert!(authority.revoke("e2").is_err());
        assert!(authority.rotate(&["e2".to_owned()], 1).is_err());
        assert_eq!(authority.rotate(&[], 1).unwrap(), ["controller", "e1"]);
        assert_eq!(authority.revoke("e1").unwrap(), 2, "the one before as well");
        assert_eq!(authority.rotate(&[], 1).unwrap(), ["controller"]);
        let at: Vec<&[String]> = authority.issued().iter().map(|held| &held.at[..]).collect();
        assert_eq!(at[0], at[2], "its host goes with the controller");
        fs::remove_dir_all(&folder).unwrap();
    }
}
