//! The deployment's hash key, changed at an epoch: by command, at the controller's start, or since
//! reports show signs of flows that somebody has chosen.

use std::sync::Mutex;

use calumma_sketch::{FlowKey, KeyKind, WideKey};
use calumma_wire::{Domain, v5};
use tracing::{info, warn};

use super::switching::{Before, Wanted};
use super::{Hub, lock};
use crate::api::{HashKeyStatus, KeyChange, KeyChangeBy};
use crate::report::Flow;
use crate::server::{secret, unix_ns};

/// Epochs beyond the next that can be changed at which the key is, so that nodes that are further
/// away than edges receive it in time, and all have the memory for it.
const KEY_EPOCHS: u64 = 2;

/// Epochs that a key holds at least: nodes know the marks of the last eight.
const LEAST_EPOCHS: u64 = 16;

/// Times that another epoch is chosen since the disk was slow.
const MOST_TRIES: u32 = 8;

/// What has become of the hash key since the controller's start.
#[derive(Debug, Default)]
pub(super) struct Rotation(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Changes by what they came of, in the order of [`KeyChangeBy::ALL`].
    changes: [u64; KeyChangeBy::ALL.len()],
    last: Option<KeyChange>,
    /// What would have changed the key last, and why it stays.
    stays: Option<String>,
}

impl Hub {
    /// What `GET /api/v1/hash-key` shows.
    pub fn hash_key_status(&self) -> HashKeyStatus {
        let state = lock(&self.rotation.0);
        let changes = KeyChangeBy::ALL.into_iter().zip(state.changes).collect();
        let since_epoch = self.keys().newest().from_epoch;
        HashKeyStatus { since_epoch, changes, last: state.last.clone(), stays: state.stays.clone() }
    }

    /// Draws another hash key, by which all nodes measure from one epoch on; gives that epoch. The
    /// disk has the key before any node does. May wait for the disk.
    ///
    /// # Errors
    /// Why it stays.
    pub fn rotate_key(&self, by: KeyChangeBy, reason: &str) -> Result<u64, String> {
        if self.config.hash_key.is_some() {
            return Err("hash_key is set in the controller's configuration, so it stays: take it \
                        out, and set state_dir"
                .to_owned());
        }
        let _alone = lock(&self.admissions);
        if let Some(name) = self.older_node() {
            return Err(format!(
                "{name} speaks version {} of the protocol, in which the hash key can't be changed: \
                 update the switch, or stop it",
                v5::VERSION
            ));
        }
        let (from, now) = (self.keys().newest().from_epoch, self.clock.epoch_at(unix_ns()));
        if from > 0 && now < from.saturating_add(LEAST_EPOCHS) {
            return Err(format!(
                "the hash key is changed in epoch {from} already: try again in a moment"
            ));
        }
        let key: [u8; 32] = rand::random();
        let epoch = self.keep_key(&key)?;
        self.announce_key(epoch, key);
        info!(epoch, by = by.name(), "the hash key changes: {reason}");
        let mut state = lock(&self.rotation.0);
        state.changes[by as usize] += 1;
        let (unix_ns, reason) = (unix_ns(), reason.to_owned());
        state.last = Some(KeyChange { by, reason, effective_epoch: epoch, unix_ns });
        Ok(epoch)
    }

    /// Keeps a key that is to come, and gives the epoch from which it is to hold.
    fn keep_key(&self, key: &[u8; 32]) -> Result<u64, String> {
        for _ in 0..MOST_TRIES {
            let epoch = self.earliest_epoch(unix_ns()) + KEY_EPOCHS;
            secret::keep(&self.config, epoch, key).map_err(|problem| format!("{problem:#}"))?;
            // Unless the disk took longer than there was time.
            if self.earliest_epoch(unix_ns()) < epoch {
                return Ok(epoch);
            }
        }
        Err("the disk of state_dir is too slow to keep a hash key in time".to_owned())
    }

    /// Lets a key hold from `epoch` on, and sends it to every node that is connected. Admissions
    /// must be held.
    fn announce_key(&self, epoch: u64, key: [u8; 32]) {
        self.keys().change(epoch, self.config.hash_key_of(key));
        self.welcome_all(epoch);
    }

    /// Lets other packets be measured from one epoch on: those from and to addresses in `domain`.
    /// Gives that epoch; `None` where it is so already. Admissions are held meanwhile.
    ///
    /// # Errors
    /// Why it stays.
    pub(in crate::server) fn change_domain(&self, domain: Domain) -> Result<Option<u64>, String> {
        let _alone = lock(&self.admissions);
        if *lock(&self.domain) == domain {
            return Ok(None);
        }
        if let Some(name) = self.older_node() {
            return Err(format!(
                "{name} speaks version {} of the protocol, which has no words for prefixes: update \
                 the switch, or stop it",
                v5::VERSION
            ));
        }
        let key_from = self.keys().newest().from_epoch;
        let epoch = (self.earliest_epoch(unix_ns()) + KEY_EPOCHS).max(key_from);
        let before = std::mem::replace(&mut *lock(&self.domain), domain);
        let mut domains_before = lock(&self.domains_before);
        // Reports that are still there are of no older ones.
        domains_before.retain(|(until, _)| until + self.config.history as u64 > epoch);
        domains_before.push((epoch, before));
        drop(domains_before);
        self.welcome_all(epoch);
        Ok(Some(epoch))
    }

    /// Whether packets of a flow are measured in an epoch: their ends have been in the domain, and
    /// keys hold the flow.
    pub(crate) fn measures(&self, flow: &Flow, epoch: u64) -> bool {
        let ends = (flow.src, flow.dst);
        let domain = lock(&self.domain);
        let before = lock(&self.domains_before);
        let domain = before.iter().find(|(until, _)| epoch < *until).map_or(&*domain, |of| &of.1);
        let is_held = match self.config.layout.keys {
            KeyKind::Ipv4 => flow.key::<FlowKey>().is_some(),
            KeyKind::Dual => flow.key::<WideKey>().is_some(),
        };
        is_held && domain.contains(ends)
    }

    /// Whether packets of every address are measured.
    pub(in crate::server) fn measures_all(&self) -> bool {
        lock(&self.domain).prefixes().is_empty()
    }

    /// Sends every node that is connected what it measures by from `epoch` on. Admissions must be
    /// held.
    fn welcome_all(&self, epoch: u64) {
        let (lanes, plan) = (self.lanes(), self.chamelemon.plan());
        for (position, entry) in self.nodes.iter().enumerate() {
            let state = lock(&entry.state);
            let Some(link) = &state.link else { continue };
            let wanted = Wanted::new(&lanes, entry.node.role, &link.offers);
            let of = (&wanted, &Before::Runs(&link.runs));
            let messages = self.welcome(&plan, (position, link.named.as_deref()), of, epoch);
            messages.into_iter().for_each(|message| link.send(&entry.node.name, message));
        }
    }

    /// The name of a node that is connected and can't follow a change of the key.
    fn older_node(&self) -> Option<&str> {
        let is_older = |entry: &&super::Entry| {
            let state = lock(&entry.state);
            state.link.as_ref().is_some_and(|link| link.version == v5::VERSION)
        };
        self.nodes.iter().find(is_older).map(|entry| entry.node.name.as_str())
    }

    /// Whether every expected node is connected.
    pub(in crate::server) fn all_are_connected(&self) -> bool {
        self.nodes.iter().all(|entry| lock(&entry.state).link.is_some())
    }

    /// Changes the key, which nobody asked for, unless it was changed lately or is not to be for
    /// such reasons.
    pub(crate) fn rotate_key_unasked(&self, by: KeyChangeBy, reason: &str) {
        let section = &self.config.key_rotation;
        if self.config.hash_key.is_some() || by == KeyChangeBy::Suspicion && !section.on_suspicion {
            return;
        }
        let from_ns = match self.keys().newest().from_epoch {
            0 => 0,
            from => self.clock.start_of(from),
        };
        let since_ns = unix_ns().saturating_sub(from_ns);
        if since_ns < section.minutes_between.saturating_mul(60_000_000_000) {
            return self.note_key_stays(reason, "it was changed a short time ago");
        }
        if let Err(problem) = self.rotate_key(by, reason) {
            self.note_key_stays(reason, &problem);
        }
    }

    /// Says once why the key stays.
    fn note_key_stays(&self, reason: &str, why: &str) {
        let stays = format!("{reason}; the hash key stays: {why}");
        let mut state = lock(&self.rotation.0);
        if state.stays.as_ref() != Some(&stays) {
            warn!("{stays}");
            state.stays = Some(stays);
        }
    }
}
