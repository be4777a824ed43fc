"""Certificates for a cluster that uses TLS: an authority, and a key that it has signed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def write_certificates(folder: Path) -> Mapping[str, str]:
    """The settings of Dask for a new authority, and for one key that all sides use."""
    folder.mkdir()
    issuer_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = _name("authority")
    rights = x509.BasicConstraints(ca=True, path_length=None)
    (folder / "ca.pem").write_bytes(_sign(issuer, issuer, issuer_key, issuer_key, rights))
    rights = x509.BasicConstraints(ca=False, path_length=None)
    (folder / "cert.pem").write_bytes(_sign(_name("machine"), issuer, key, issuer_key, rights))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    settings = {"distributed.comm.tls.ca-file": str(folder / "ca.pem")}
    for role in ("scheduler", "worker", "client"):
        settings[f"distributed.comm.tls.{role}.cert"] = str(folder / "cert.pem")
        settings[f"distributed.comm.tls.{role}.key"] = str(folder / "key.pem")
    return settings


def as_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of Dask as the variables that it reads them from."""
    return {
        f"DASK_{name.upper().replace('.', '__').replace('-', '_')}": value
        for name, value in settings.items()
    }


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _sign(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    rights: x509.BasicConstraints,
) -> bytes:
    now = dt.datetime.now(dt.timezone.utc)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(rights, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .sign(issuer_key, hashes.SHA256())
    )
    encoded: bytes = signed.public_bytes(serialization.Encoding.PEM)
    return encoded
