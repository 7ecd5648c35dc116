//! Values of options, and what is wrong with them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::bounds::{self, Bounds, Unfit};
use crate::document::Datetime;
use crate::users;

/// An option as it was given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<'t> {
    pub(super) name: &'t str,
    /// How it is written.
    pub(super) usage: &'static str,
    /// What follows `=`.
    pub(super) text: Option<&'t str>,
    /// Whether limits that are not known are ignored.
    pub(super) sloppy: bool,
}

type Result<T> = std::result::Result<T, String>;

impl<'t> Value<'t> {
    /// The value, which may be empty.
    fn given(self) -> Result<&'t str> {
        self.text.ok_or_else(|| format!("-o {} needs a value: {}", self.name, self.usage))
    }

    /// The value, which is not empty.
    pub(super) fn required(self) -> Result<&'t str> {
        self.text
            .filter(|text| !text.is_empty())
            .ok_or_else(|| format!("-o {} needs a value: {}", self.name, self.usage))
    }

    pub(super) fn choice<T: Clone>(self, known: &[(&str, T)]) -> Result<T> {
        let text = self.required()?;
        let found = known.iter().find(|(one, _)| *one == text).map(|(_, meaning)| meaning.clone());
        found.ok_or_else(|| format!("-o {}={text}: expected {}", self.name, self.usage))
    }

    pub(super) fn number(self, least: u64, most: u64) -> Result<u64> {
        let text = self.required()?;
        text.parse()
            .ok()
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| format!("-o {}={text}: expected a number from {least} to {most}", self.name))
    }

    /// A duration of so many seconds.
    pub(super) fn duration(self, least: u64, most: u64) -> Result<Duration> {
        let text = self.required()?;
        let wrong = || {
            format!(
                "-o {}={text}: expected a duration from {least} to {most} seconds, such as 90, 90s, 15m or 1h",
                self.name
            )
        };
        bounds::duration(text).filter(|span| (least..=most).contains(&span.as_secs())).ok_or_else(wrong)
    }

    /// A duration, such as `examples`.
    pub(super) fn any_duration(self, examples: &str) -> Result<Duration> {
        let text = self.required()?;
        bounds::duration(text).ok_or_else(|| format!("-o {}={text}: not a duration; give {examples}", self.name))
    }

    /// A number of bytes that is not 0.
    pub(super) fn bytes(self) -> Result<u64> {
        let text = self.required()?;
        let wrong = || format!("-o {}={text}: expected a number of bytes, such as 500M or 2G", self.name);
        bounds::bytes(text).filter(|bytes| *bytes > 0).ok_or_else(wrong)
    }

    /// A file, whose relative path is taken from the current directory.
    pub(super) fn file(self) -> Result<PathBuf> {
        let path = self.required()?;
        std::path::absolute(path).map_err(|error| format!("{path}: {error}"))
    }

    /// An address with its port.
    pub(super) fn address(self) -> Result<SocketAddr> {
        let text = self.required()?;
        let wrong = "expected an address and a port, such as 192.0.2.7:8088, 127.0.0.1:8088 or [::]:8088";
        text.parse().map_err(|_| format!("-o {}={text}: {wrong}", self.name))
    }

    /// A URL that a hub could deliver to.
    pub(super) fn callback(self) -> Result<url::Url> {
        let text = self.required()?;
        let url = url::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.filter(|url| url.username().is_empty() && url.password().is_none() && url.fragment().is_none());
        url.ok_or_else(|| {
            format!("-o {}={text}: not a URL that a hub could use, as https://mirror.example/hook/ is", self.name)
        })
    }

    /// A time; none if the value is empty.
    pub(super) fn time(self) -> Result<Option<Datetime>> {
        let text = self.given()?;
        let wrong = |error| format!("-o {}={text}: {error}; give 2013, 2013-01-31 or 2013-01-31T12:00:00Z", self.name);
        match text {
            "" => Ok(None),
            text => Ok(Some(Datetime::parse(text).map_err(wrong)?.0)),
        }
    }

    /// Adds the value to those that the option was given before; an empty one removes them.
    pub(super) fn add_to(self, values: &mut Vec<String>) -> Result<()> {
        match self.given()? {
            "" => values.clear(),
            text => values.push(text.to_owned()),
        }
        Ok(())
    }

    /// The number of a user or group, or its name.
    pub(super) fn id(self) -> Result<u32> {
        let (text, is_group) = (self.required()?, self.name == "gid");
        if let Ok(number) = text.parse() {
            return Ok(number);
        }
        let what = if is_group { "group" } else { "user" };
        users::id(text, is_group)
            .ok_or_else(|| format!("-o {}={text}: neither a number nor a name of a {what}", self.name))
    }

    pub(super) fn umask(self) -> Result<u16> {
        let text = self.required()?;
        u16::from_str_radix(text, 8)
            .ok()
            .filter(|umask| *umask <= 0o777)
            .ok_or_else(|| format!("-o {}={text}: not an octal number up to 777", self.name))
    }

    /// Sets the bound that the option names.
    pub(super) fn set_limit(self, bounds: &mut Bounds) -> Result<()> {
        let name = self.name;
        let is_known = bounds::TABLE.iter().any(|bound| bound.name == name);
        if !is_known && self.sloppy {
            return Ok(());
        }
        let text = if is_known { self.required()? } else { "" };
        bounds.set(name, text).map_err(|unfit| match unfit {
            Unfit::Value(bound) => format!("-o {name}={text}: expected {}", bound.range()),
            Unfit::Unknown => {
                let names: Vec<&str> = bounds::TABLE.iter().map(|bound| bound.name).collect();
                format!("-o {name}: there is no such limit; there are {}", names.join(", "))
            }
        })
    }
}
