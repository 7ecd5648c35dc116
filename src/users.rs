//! Users and groups of this machine, from wherever its name service has them: files, LDAP, systemd.

use std::path::{Path, PathBuf};

use uzers::os::unix::{GroupExt as _, UserExt as _};

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// As it was given.
    pub name: String,
    /// Its number.
    pub uid: u32,
    /// The number of its primary group.
    pub gid: u32,
}

impl User {
    /// Finds a user by its name or its number.
    ///
    /// # Errors
    /// If there is no such user.
    pub fn find(name: &str) -> Result<Self, String> {
        let by_number = || name.parse().ok().and_then(uzers::get_user_by_uid);
        let found = uzers::get_user_by_name(name)
            .or_else(by_number)
            .ok_or_else(|| format!("-o run_as={name}: there is no such user; create one: useradd --system {name}"))?;
        Ok(Self { name: name.to_owned(), uid: found.uid(), gid: found.primary_group_id() })
    }
}

/// The number of a user, or of a group if `group`, by its name.
pub(crate) fn id(name: &str, group: bool) -> Option<u32> {
    match group {
        true => uzers::get_group_by_name(name).map(|found| found.gid()),
        false => uzers::get_user_by_name(name).map(|found| found.uid()),
    }
}

/// The home directory of a user, as the user database has it.
pub(crate) fn home(uid: u32) -> Option<PathBuf> {
    uzers::get_user_by_uid(uid)
        .map(|user| user.home_dir().to_owned())
        .filter(|home| home.is_absolute() && home != Path::new("/"))
}

/// A user for people: its number, and its name if it has one.
pub(crate) fn describe(uid: u32) -> String {
    match uzers::get_user_by_uid(uid) {
        Some(user) => format!("{uid} ({})", user.name().to_string_lossy()),
        None => uid.to_string(),
    }
}

/// Whether a group is the private group of a user, with no other member: distributions make one for each user, and give
/// its files to it.
pub(crate) fn is_private_group(gid: u32, uid: u32) -> bool {
    let Some((user, group)) = uzers::get_user_by_uid(uid).zip(uzers::get_group_by_gid(gid)) else { return false };
    uid != 0
        && user.primary_group_id() == gid
        && user.name() == group.name()
        && group.members().iter().all(|member| member.as_os_str() == user.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let root = User::find("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(User::find("0").unwrap().uid, 0);
        assert!(User::find("nobody-at-all").unwrap_err().contains("useradd"));
        assert_eq!((id("root", false), id("root", true), id("nobody-at-all", true)), (Some(0), Some(0), None));
        assert_eq!(home(0).as_deref(), Some(Path::new("/root")));
        assert_eq!(describe(0), "0 (root)");
        assert!(!is_private_group(0, 1) && !is_private_group(0, 0));
    }
}
