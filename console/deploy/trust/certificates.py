"""Certificates of a mesh: of its CA and its daemons (the only importer of ``cryptography``).

They satisfy strict verifiers (Python 3.13): they have the extensions authorityKeyIdentifier, subjectKeyIdentifier,
keyUsage and basicConstraints, critical where required. The identity is a URI, ``redmesh://MESH/ROLE/NAME``; host names
are for other tools.
"""

import datetime
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: Days. Certificates are backdated because clocks may be wrong; every ``mesh up`` and rotation renews a node's.
BACKDATED, CA_LASTS, LEAF_LASTS = 2, 3650, 825

Key = ec.EllipticCurvePrivateKey


def new_key() -> Key:
    """Make a key on P-256: of the curves that every peer supports, it has the fastest handshakes."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: Key) -> bytes:
    """A private key in PEM, unencrypted: the file's mode protects it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def read_key(pem: bytes) -> Key:
    """Parse the result of :func:`key_pem`. Raises ValueError."""
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("no key on a curve")
    return key


def read_certificates(pem: bytes) -> list[x509.Certificate]:
    """The certificates in a bundle. Raises ValueError."""
    return x509.load_pem_x509_certificates(pem)


def pem_of(certificate: x509.Certificate) -> bytes:
    """A certificate in PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def fingerprint(certificate: x509.Certificate) -> str:
    """The SHA-256 fingerprint, as displayed."""
    return certificate.fingerprint(hashes.SHA256()).hex(":")


def authority(mesh: str, key: Key) -> x509.Certificate:
    """The certificate of a CA that may sign certificates of daemons, but not of further CAs."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"redmesh {mesh} CA")])
    builder = _begin(name, name, key, CA_LASTS)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(key, hashes.SHA256())
    )


def daemon(
    ca: x509.Certificate,
    ca_key: Key,
    key: Key,
    identities: Sequence[str],
    addresses: Sequence[str],
    lasts_days: float = LEAF_LASTS,
) -> x509.Certificate:
    """The certificate of a daemon with all of ``identities`` (URIs), reached at ``addresses``.

    A negative ``lasts_days`` makes an expired one, for tests.
    """
    common = identities[0].rpartition("/")[2][:64]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in identities]
    names += [_name_of(address) for address in addresses]
    return (
        _begin(subject, ca.subject, key, lasts_days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _begin(subject: x509.Name, issuer: x509.Name, key: Key, lasts_days: float) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=BACKDATED))
        .not_valid_after(now + datetime.timedelta(days=lasts_days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name_of(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)
