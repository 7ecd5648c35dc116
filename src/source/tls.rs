//! TLS for other protocols than HTTP, with the same authorities.

use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls_platform_verifier::Verifier;

/// Certificates to trust beside the system's.
pub(super) fn trusted(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: rustls::pki_types::pem::Error| format!("ca={}: {error}", path.display());
    CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(wrong)
}

/// A configuration that trusts the system's authorities, and these.
pub(super) fn config(trusted: &[CertificateDer<'static>]) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier::new_with_extra_roots(trusted.iter().cloned(), Arc::clone(&provider));
    let verifier = verifier.map_err(|error| format!("cannot set up TLS: {error}"))?;
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| format!("cannot set up TLS: {error}"))?;
    Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}
