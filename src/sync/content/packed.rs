//! Content that lies in a package: served from there, or made an object where it must be unfolded.
//!
//! What is stored as it is, and what is small enough to be inflated whenever it is read, stays in the
//! package. A large deflated member is inflated once, into an object that is read like any other file:
//! reading here and there in it is then as fast as in a file, and no part of it is held in memory. The
//! same goes for a member with a content coding of its own.

use std::io::{Read, Write as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::download::{Judge, Served};
use super::fetch::Contents;
use super::flight::{Failure, Flight, Kept};
use super::location::expected;
use crate::bounds::Bounds;
use crate::catalog::{Content, Looked, MemberRow, MemberState, PackageId, Stored, VersionId, VersionRow};
use crate::source::{Expected, Form, Hasher, SourceError, Trouble};
use crate::store::archive::{Member, Method};
use crate::store::{Body, Store};
use crate::sync::config::Verify;
use crate::sync::error::SyncError;
use crate::sync::packages;
use crate::sync::packages::members::{Flaw, hold, is_small};
use crate::sync::transfer::package::{Package, archived};
use crate::sync::writer::open_files::Ready;

/// Damaged members that are told of one by one.
const MOST_TOLD: usize = 20;
/// From so many members of one package on, all that is needed of it is brought here at once.
const MANY: usize = 32;

/// What unfolding came to.
enum Unfolded {
    /// It is served from its package.
    Packed(Ready, MemberState, [u8; 32]),
    /// It is an object now.
    Object(Served),
}

/// A member that is to be read, whose package is here as far as it is needed.
struct Opening {
    package: Arc<Package>,
    expected: Expected,
    /// Whether its bytes are coded, so that it is decoded before it is served.
    coded: bool,
    /// What is known of it.
    looked: MemberState,
    store: Arc<Store>,
    url: String,
    verify: Verify,
    bounds: Bounds,
}

impl Opening {
    /// Reads the member, or finds it fit to be served in place. `moved` is called at each progress.
    fn open(self, member: &Member, moved: &dyn Fn()) -> Result<Unfolded, Flaw> {
        let Self { package, expected, coded, looked, store, url, verify, bounds } = self;
        let small = is_small(member);
        if coded {
            let judge = Judge { expected, verify, bounds, coding: None, url };
            return decoded(&package, member, &judge, &store, moved);
        }
        if !small && member.method == Method::Deflated {
            return inflated(&package, member, &expected, &store, moved);
        }
        if looked == MemberState::Unseen || small || verify == Verify::Off {
            return match unfold(&package, member, &expected) {
                Err(Flaw::Damaged(why)) if verify == Verify::Warn => {
                    // The CRC still has to be right.
                    let forgiven = unfold(&package, member, &Expected::default())?;
                    tracing::warn!(url, why, "a member is not what is listed; served, as verify=warn says");
                    Ok(forgiven)
                }
                unfolded => unfolded,
            };
        }
        let body = Body::File(Arc::clone(&package.file), member.data(&package.file)?, member.size);
        let ready = Ready { body, size: member.size, verified: looked == MemberState::Verified };
        Ok(Unfolded::Packed(ready, looked, [0; 32]))
    }
}

impl Contents {
    /// The content of a version that lies in a package, if it can be had without waiting and without much
    /// work.
    pub(in crate::sync) fn packed(&self, version: VersionId, row: &MemberRow) -> Option<Ready> {
        let package = packages::get(&self.context, row.package)?;
        let state = self.state_of(&package, version, row);
        let member = archived(row);
        let small = is_small(&member);
        if row.coded || state == MemberState::Damaged || (!small && (row.deflated || state == MemberState::Unseen)) {
            return None;
        }
        if !package.has_member(&member) {
            return None;
        }
        packages::touch(&self.context, &package);
        if state == MemberState::Unseen || self.context.config.verify == Verify::Off {
            let whole = self.row(version).ok().flatten()?;
            if whole.size.is_some_and(|shown| shown != member.size) || whole.served.is_some() {
                return None;
            }
            let expected = self.expected_of_member(&whole, row);
            // A flaw shows again, and is dealt with, where the version is asked for whole.
            return match unfold(&package, &member, &expected).ok()? {
                Unfolded::Packed(ready, state, sha256) => {
                    self.looked(&package, version, state, sha256);
                    self.keep_packed(&package, version, row, &ready);
                    Some(ready)
                }
                Unfolded::Object(_) => None,
            };
        }
        let body = match row.deflated {
            false => Body::File(Arc::clone(&package.file), member.data(&package.file).ok()?, member.size),
            true => Body::Memory(member.content(&package.file).ok()?.into()),
        };
        let ready = Ready { body, size: member.size, verified: state == MemberState::Verified };
        self.keep_packed(&package, version, row, &ready);
        Some(ready)
    }

    /// What is known of a member in the bytes of the package that are here now.
    pub(in crate::sync) fn state_of(&self, package: &Package, version: VersionId, row: &MemberRow) -> MemberState {
        let noted = if row.epoch == package.epoch { row.state } else { MemberState::Unseen };
        self.context.write_queue.pending_member(version, package.epoch).unwrap_or(noted)
    }

    fn keep_packed(&self, package: &Package, version: VersionId, row: &MemberRow, ready: &Ready) {
        // What has left the store meanwhile can be read to its end, and not be opened anew.
        if package.has_left() {
            return;
        }
        let place = Stored::Package(row.package);
        match ready.body {
            Body::File(..) => self.context.files.put(version, place, ready.clone()),
            Body::Memory(_) => self.context.files.put_inflated(version, place, ready.clone()),
        }
    }

    fn looked(&self, package: &Package, version: VersionId, state: MemberState, sha256: [u8; 32]) {
        // What was not held to anything is looked at again when it is to be.
        if self.context.config.verify == Verify::Off
            || (self.context.config.verify == Verify::Warn && state != MemberState::Verified)
        {
            return;
        }
        // An inode never has other bytes; where no hash holds it to these, this does.
        let sha256 = (state == MemberState::Intact).then_some(sha256);
        self.context.write_queue.member(Looked { version, state, epoch: package.epoch, sha256 });
    }

    /// What the bytes of a member, as coded, are held to.
    fn expected_of_member(&self, row: &VersionRow, member: &MemberRow) -> Expected {
        let expected = expected(row);
        match self.context.config.verify {
            Verify::Off => Expected { encoding: expected.encoding, ..Expected::default() },
            _ => Expected { hashes: member.hashes.clone().unwrap_or(expected.hashes), ..expected },
        }
    }

    /// The content of a version from its package, which is brought here as far as it is needed.
    ///
    /// # Errors
    /// If the package cannot be had, or the member is not what is listed: then it is noted to be damaged.
    pub(in crate::sync) async fn unpack(
        self: &Arc<Self>,
        row: &VersionRow,
        member_row: &MemberRow,
        flight: &Flight,
    ) -> Result<Ready, SourceError> {
        let failed = |trouble| SourceError::new(&row.uri, trouble);
        let Some(package) = packages::get(&self.context, member_row.package) else {
            return Err(failed(Trouble::Nowhere("its package is not known any more".to_owned())));
        };
        let member = archived(member_row);
        packages::bring_member(&self.context, &package, &member, || flight.parts.progress()).await?;
        packages::touch(&self.context, &package);
        let looked = self.state_of(&package, row.id, member_row);
        let opening = Opening {
            package: Arc::clone(&package),
            expected: self.expected_of_member(row, member_row),
            coded: member_row.coded,
            looked,
            store: Arc::clone(&self.context.store),
            url: row.uri.clone(),
            verify: self.context.config.verify,
            bounds: self.context.config.bounds,
        };
        let parts = Arc::clone(&flight.parts);
        let work = tokio::task::spawn_blocking(move || opening.open(&member, &|| parts.progress()));
        let done = work.await.map_err(|error| failed(Trouble::Broken(error.to_string())))?;
        // Only now: it may be more than there is room for, and go again.
        packages::count(&self.context, &package).await;
        let flaw = match done {
            Ok(Unfolded::Packed(ready, state, sha256)) => {
                let fits = row.size.is_none_or(|shown| shown == ready.size);
                let again = looked == state && sha256 == [0; 32];
                let other = row.served.is_some_and(|served| state == MemberState::Intact && served != sha256);
                if fits && (again || !other) {
                    if looked != state {
                        self.looked(&package, row.id, state, sha256);
                    }
                    self.keep_packed(&package, row.id, member_row, &ready);
                    return Ok(ready);
                }
                Flaw::Damaged("it is not what was read, or shown, before".to_owned())
            }
            Ok(Unfolded::Object(served)) => {
                let content = served.content;
                let kept = self.keep(row, content).map_err(|error| failed(Trouble::Nowhere(error.to_string())))?;
                if matches!(kept, Kept::Yes) {
                    let lost = || failed(Trouble::Disk("the cache has lost it".to_owned()));
                    return self.open(row.id, content).ok_or_else(lost);
                }
                Flaw::Damaged(format!("it has {} bytes where something else was shown before", content.size))
            }
            Err(flaw) => flaw,
        };
        match flaw {
            Flaw::Disk(error) => Err(failed(Trouble::Disk(error.to_string()))),
            Flaw::Damaged(why) => Err(self.is_damaged(row, &package, &why)),
        }
    }

    /// Notes that the member of a version is damaged.
    fn is_damaged(&self, row: &VersionRow, package: &Package, why: &str) -> SourceError {
        self.context.files.forget(row.id);
        let (state, epoch) = (MemberState::Damaged, package.epoch);
        self.context.write_queue.member(Looked { version: row.id, state, epoch, sha256: None });
        let told = format!("{}: its member in {} is damaged: {why}", row.uri, package.url);
        self.context.status.error(&told);
        SourceError::new(&package.url, Trouble::Nowhere(format!("the member is damaged: {why}")))
    }

    /// Fetches what members were found to be damaged from their own URLs.
    pub(in crate::sync) async fn mend(
        self: &Arc<Self>,
        package: &Package,
        damage: Vec<crate::sync::packages::members::Damage>,
    ) {
        damage.iter().for_each(|one| self.context.files.forget(one.version));
        for one in damage.iter().take(MOST_TOLD) {
            let uri = self.row(one.version).ok().flatten().map(|row| row.uri).unwrap_or_default();
            self.context.status.error(&format!("{uri}: its member in {} is damaged: {}", package.url, one.why));
        }
        if damage.len() > MOST_TOLD {
            let more = damage.len() - MOST_TOLD;
            self.context.status.error(&format!("{}: {more} more members of it are damaged", package.url));
        }
        if self.context.config.offline || damage.is_empty() {
            return;
        }
        let (mut mended, mut failed) = (0_u64, 0_u64);
        self.many(damage.into_iter().map(|one| (one.version, None)).collect(), |result| match result {
            Ok(_) => mended += 1,
            Err(_) => failed += 1,
        })
        .await;
        if mended > 0 {
            self.context.status.warning(&format!(
                "{}: {mended} of its members, which are damaged, came from their own URLs instead",
                package.url
            ));
        }
        if failed > 0 {
            self.context.status.error(&format!(
                "{}: {failed} of its members, which are damaged, cannot be had elsewhere",
                package.url
            ));
        }
    }

    /// Brings the packages here of which many of these versions are members.
    pub(in crate::sync) async fn bring_packages_of(self: &Arc<Self>, versions: &[VersionId]) -> Result<(), SyncError> {
        let mut members: std::collections::BTreeMap<PackageId, usize> = std::collections::BTreeMap::new();
        for version in versions {
            if let Some(crate::catalog::Place::Member(row)) =
                self.context.readers.ask(|reader| reader.place(*version))?
                && row.state != MemberState::Damaged
            {
                *members.entry(row.package).or_insert(0) += 1;
            }
        }
        for (package, count) in members {
            if let Some(row) = self.context.readers.ask(|reader| reader.package(package))?.filter(|_| count >= MANY) {
                packages::complete_what_is_needed(&self.context, &row)?;
                packages::settled(&self.context, package).await;
            }
        }
        Ok(())
    }

    /// Why a version cannot be had from anywhere.
    pub(in crate::sync) fn not_here(&self, row: &VersionRow) -> Option<Failure> {
        if self.context.config.offline {
            return Some(self.failed(row.id, format!("{}: not in the cache, and the mount is offline", row.uri)));
        }
        None
    }
}

/// Whether a member is still what is listed.
///
/// # Errors
/// If it is not, or cannot be read.
pub(in crate::sync) fn look(package: &Package, member: &Member, expected: &Expected) -> Result<(), Flaw> {
    let sums = Hasher::read(&expected.hashes, member.stream(Arc::clone(&package.file))?)?;
    hold(&sums, expected, package.doubtful.load(Ordering::Acquire)).map(|_| ())
}

/// A member that is served from its package, held to what is listed.
fn unfold(package: &Arc<Package>, member: &Member, expected: &Expected) -> Result<Unfolded, Flaw> {
    let doubtful = package.doubtful.load(Ordering::Acquire);
    let small = is_small(member);
    let (sums, body) = if small {
        let content = member.content(&package.file)?;
        (Hasher::read(&expected.hashes, content.as_slice())?, Body::Memory(content.into()))
    } else {
        let sums = Hasher::read(&expected.hashes, member.stream(Arc::clone(&package.file))?)?;
        (sums, Body::File(Arc::clone(&package.file), member.data(&package.file)?, member.size))
    };
    let state = hold(&sums, expected, doubtful)?;
    let ready = Ready { body, size: member.size, verified: state == MemberState::Verified };
    Ok(Unfolded::Packed(ready, state, sums.sha256))
}

/// A large deflated member, inflated into an object.
fn inflated(
    package: &Arc<Package>,
    member: &Member,
    expected: &Expected,
    store: &Store,
    moved: &dyn Fn(),
) -> Result<Unfolded, Flaw> {
    store.check_room(member.size)?;
    let mut out = store.spool()?;
    let mut hasher = Hasher::new(&expected.hashes);
    let mut stream = member.stream(Arc::clone(&package.file))?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        match stream.read(&mut buffer)? {
            0 => break,
            count => {
                hasher.update(&buffer[..count]);
                out.write_all(&buffer[..count]).map_err(Flaw::Disk)?;
                moved();
            }
        }
    }
    let sums = hasher.finish();
    let state = hold(&sums, expected, package.doubtful.load(Ordering::Acquire))?;
    store.adopt(&sums.sha256, out.into_temp_path()).map_err(Flaw::Disk)?;
    let content = Content { sha256: sums.sha256, size: sums.length, verified: state == MemberState::Verified };
    Ok(Unfolded::Object(Served::new(content, None)))
}

/// A member with a content coding, decoded into an object.
fn decoded(
    package: &Arc<Package>,
    member: &Member,
    judge: &Judge,
    store: &Store,
    moved: &dyn Fn(),
) -> Result<Unfolded, Flaw> {
    let trouble = |trouble: Trouble| match trouble {
        Trouble::Disk(error) => Flaw::Disk(std::io::Error::other(error)),
        other => Flaw::Damaged(other.to_string()),
    };
    let open = || member.stream(Arc::clone(&package.file)).map_err(|error| Trouble::Broken(error.to_string()));
    let sums = Hasher::read(&judge.expected.hashes, open().map_err(trouble)?)?;
    hold(&sums, &judge.expected, package.doubtful.load(Ordering::Acquire))?;
    moved();
    let (form, served) = judge.form(&sums, open, store).map_err(trouble)?;
    if form == Form::Plain {
        let mut out = store.spool()?;
        std::io::copy(&mut open().map_err(trouble)?, &mut out)?;
        store.adopt(&served.content.sha256, out.into_temp_path()).map_err(Flaw::Disk)?;
    }
    Ok(Unfolded::Object(served))
}
