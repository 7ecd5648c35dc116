//! The ways in which writers that hold numbers as binary floating point write them.

use std::borrow::Cow;

/// How numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbers {
    /// As the document they come from has them.
    AsWritten,
    /// As Python's `repr` has them: integers as they are, `1.0`, `1e+22`.
    Python,
    /// As ECMAScript's `Number::toString` has them: `1`, `1e+22`.
    JavaScript,
}

impl Numbers {
    /// A token's number in this way of writing; what is no number stays.
    pub(super) fn write(self, token: &str) -> Cow<'_, str> {
        let is_number = token.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        let is_whole = !token.contains(['.', 'e', 'E']);
        let (from, to, whole_end, least_exponent) = match self {
            Self::Python if is_number && is_whole => {
                return if token == "-0" { Cow::Borrowed("0") } else { Cow::Borrowed(token) };
            }
            Self::Python => (-4, 16, ".0", 2),
            Self::JavaScript => (-7, 21, "", 1),
            Self::AsWritten => return Cow::Borrowed(token),
        };
        let number = match token.parse::<f64>() {
            Ok(number) if is_number && number.is_finite() => number,
            _ => return Cow::Borrowed(token),
        };
        if self == Self::JavaScript && number == 0.0 {
            return Cow::Borrowed("0");
        }
        // The shortest digits that read back as the same number, which is what both languages ask for.
        let shortest = format!("{:e}", number.abs());
        let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let digits = mantissa.replace('.', "");
        let sign = if number.is_sign_negative() { "-" } else { "" };
        let body = if exponent < from || exponent >= to {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:0least_exponent$}", exponent.abs())
        } else if exponent < 0 {
            let zeros = usize::try_from(-exponent - 1).unwrap_or(0);
            format!("0.{}{digits}", "0".repeat(zeros))
        } else {
            let whole = usize::try_from(exponent + 1).unwrap_or(1);
            match digits.split_at_checked(whole) {
                Some((whole, fraction)) if !fraction.is_empty() => format!("{whole}.{fraction}"),
                _ => format!("{digits}{}{whole_end}", "0".repeat(whole.saturating_sub(digits.len()))),
            }
        };
        Cow::Owned(format!("{sign}{body}"))
    }
}
