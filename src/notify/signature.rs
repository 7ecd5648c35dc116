//! Whether a delivery is from a hub that knows our secret (WebSub 7.1).

use hmac::digest::KeyInit;
use hmac::digest::block_api::EagerHash;
use hmac::{Hmac, Mac};
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512};

/// Whether a value of `X-Hub-Signature`, `method=signature`, is that of a body. All methods of the Recommendation are
/// known; the comparison takes the same time whatever differs.
pub(super) fn verifies(header: &str, secret: &str, body: &[u8]) -> bool {
    let Some((method, signature)) = header.trim().split_once('=') else { return false };
    let Some(signature) = bytes_of(signature.trim()) else { return false };
    match method.trim().to_ascii_lowercase().as_str() {
        "sha1" => holds::<Sha1>(secret, body, &signature),
        "sha256" => holds::<Sha256>(secret, body, &signature),
        "sha384" => holds::<Sha384>(secret, body, &signature),
        "sha512" => holds::<Sha512>(secret, body, &signature),
        _ => false,
    }
}

fn holds<D: EagerHash>(secret: &str, body: &[u8], signature: &[u8]) -> bool
where
    Hmac<D>: Mac + KeyInit,
{
    let Ok(mut mac) = <Hmac<D> as KeyInit>::new_from_slice(secret.as_bytes()) else { return false };
    mac.update(body);
    mac.verify_slice(signature).is_ok()
}

/// The bytes that hexadecimal digits stand for.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    let whole = pairs.remainder().is_empty();
    whole.then(|| pairs.filter_map(|pair| u8::try_from(pair[0] << 4 | pair[1]).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_of_the_recommendation_is_known_and_nothing_else_verifies() {
        // What `openssl dgst -SHA… -hmac Jefe` says of the second test case of RFC 2202 and RFC 4231.
        let body = b"what do ya want for nothing?";
        let good = [
            "sha1=effcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
            "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            "sha384=af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649",
            "sha512=164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            "SHA1=EFFCDF6AE5EB2FA2D27416D5F184DF9C259A7C79",
        ];
        for header in good {
            assert!(verifies(header, "Jefe", body), "{header}");
            assert!(!verifies(header, "jefe", body), "another secret: {header}");
            assert!(!verifies(header, "Jefe", b"what do ya want for nothing!"), "another body: {header}");
            assert!(!verifies(&header[..header.len() - 2], "Jefe", body), "cut short: {header}");
        }
        for header in [
            "",
            "sha1",
            "sha1=",
            "sha256=effcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
            "md5=750c783e6ab0b503eaa86e310a5db738",
            "sha1=effcdf6ae5eb2fa2d27416d5f184df9c259a7c7",
            "sha1=zffcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
            "=effcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
        ] {
            assert!(!verifies(header, "Jefe", body), "{header}");
        }
    }
}
